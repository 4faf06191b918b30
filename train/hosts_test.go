package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/dtype"
	"titan/launch"
	"titan/pjrt"
)

// pod is several hosts in this process: the devices of one client belong to
// several trainers, each of which reads, feeds, keeps and saves what its own
// devices have. A program begins when all have given it their arguments, as on
// real hosts.
type pod struct {
	hosts  int
	whose  func(device int) int // the host of a device
	client *Machine

	mu    sync.Mutex
	round *podRound
}

// podRound is a program that hosts are about to begin.
type podRound struct {
	name  string
	args  [][]*pjrt.Buffer
	given int
	outs  [][]*pjrt.Buffer
	done  *pjrt.Event
	err   error
	begun chan struct{}
}

// machine is how host number rank sees the pod.
func (p *pod) machine(r *configs.Recipe, group *launch.Group) (*Machine, error) {
	processes := map[int]int{}
	for _, d := range p.client.Client.Devices() {
		processes[d.ID] = p.whose(d.ID)
	}
	m := *p.client
	var err error
	if m.Mesh, err = arranged(m.Client, r, processes); err != nil {
		return nil, err
	}
	if m.local, err = positionsOf(m.Mesh, group.Rank()); err != nil {
		return nil, err
	}
	m.together = func(c *Compiled, args [][]*pjrt.Buffer) ([][]*pjrt.Buffer, *pjrt.Event, error) {
		return p.execute(group, c, args)
	}
	return &m, nil
}

func (p *pod) execute(group *launch.Group, c *Compiled, args [][]*pjrt.Buffer) ([][]*pjrt.Buffer, *pjrt.Event, error) {
	p.mu.Lock()
	if p.round == nil {
		p.round = &podRound{name: c.Module.Name(), args: make([][]*pjrt.Buffer, len(c.Devices)), begun: make(chan struct{})}
	}
	r := p.round
	if r.name != c.Module.Name() {
		r.err = fmt.Errorf("a host runs %s, another %s", c.Module.Name(), r.name)
	}
	for at, list := range args {
		mine := p.whose(c.Devices[at].ID) == group.Rank()
		if !mine && list != nil {
			r.err = fmt.Errorf("host %d gives arguments for a device of another", group.Rank())
		}
		if mine {
			r.args[at] = list
		}
	}
	if r.given++; r.given == p.hosts {
		p.round = nil
		if r.err == nil {
			r.outs, r.done, r.err = c.Exe.Execute(r.args, pjrt.ExecuteOptions{}) // in the order of positions
		}
		close(r.begun)
	}
	p.mu.Unlock()
	select {
	case <-r.begun:
	case <-group.Context().Done():
		return nil, nil, errors.New("the others do not come")
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	outs := make([][]*pjrt.Buffer, len(args))
	for _, at := range c.machine.local {
		outs[at] = r.outs[at]
	}
	return outs, r.done, nil
}

// identities are those of n processes that meet over the loopback.
func identities(t *testing.T, n int) []launch.Identity {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	out := make([]launch.Identity, n)
	for i := range out {
		out[i] = launch.Identity{Process: i, Processes: n, Slices: 1, Worker: i, Workers: n, Coordinator: l.Addr().String(), Source: launch.EnvProcesses}
	}
	return out
}

// ran is how a run went on one host.
type ran struct {
	res *Result
	err error
	log string
}

// run trains a recipe on the pod; each changes what the options are on a host.
func (p *pod) run(t *testing.T, r *configs.Recipe, each func(host int, o *RunOptions)) []ran {
	t.Helper()
	ids := identities(t, p.hosts)
	var err error
	p.client, err = open("cpu", "mesh.platform", r.Mesh.Devices, nil)
	require.NoError(t, err)
	c := p.client.Client
	held, err := c.Put([]byte{1}, dtype.U8, nil, c.LocalDevices()[0]) // a client that has buffers does not close
	require.NoError(t, err)
	defer func() {
		require.NoError(t, held.Close())
		_ = c.Close() // refused if a compilation was abandoned
	}()
	out := make([]ran, p.hosts)
	logs := make([]bytes.Buffer, p.hosts)
	var wg sync.WaitGroup
	for i := range p.hosts {
		wg.Go(func() {
			o := RunOptions{
				Recipe: r, Version: "test", Out: &logs[i],
				identity: func(context.Context, string) (launch.Identity, error) {
					return ids[i], nil
				},
				machine: p.machine,
			}
			if each != nil {
				each(i, &o)
			}
			out[i].res, out[i].err = Run(ctx, o)
		})
	}
	wg.Wait()
	for i := range logs {
		out[i].log = logs[i].String()
	}
	return out
}

// good requires a run to have gone well on all hosts.
func good(t *testing.T, list []ran) []ran {
	t.Helper()
	var errs []error
	for _, r := range list {
		errs = append(errs, r.err)
	}
	require.NoError(t, errors.Join(errs...), "%s", list[0].log)
	return list
}

// signalAt returns a log that, at a text, sends a signal to another host.
func signalAt(out io.Writer, text string, to chan<- os.Signal) io.Writer {
	return &at2{out, &at{text: text, do: func() { to <- syscall.SIGTERM }}}
}

type at2 struct {
	log io.Writer
	at  *at
}

func (a *at2) Write(p []byte) (int, error) {
	_, _ = a.at.Write(p)
	return a.log.Write(p)
}

// Two hosts of four devices train, stop for a signal at one of them, go on, and
// come to the bits of one host of eight devices; so does that one host from what
// the two have saved.
func TestTwoHosts(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 60, 5, 60)...)
	for name, c := range map[string]struct {
		whose func(device int) int
		set   []string
	}{
		"replicas on two hosts": {func(d int) int { return d / 4 }, []string{
			"parallelism.data_parallel_replicate_degree=2", "parallelism.context_parallel_degree=2", "training.global_batch_size=8",
			"data.mask_boundaries=true", "checkpoint.async_mode=async"}},
		"every row on both hosts": {func(d int) int { return d % 2 }, []string{
			"parallelism.context_parallel_degree=2", "parallelism.tensor_parallel_degree=2", "training.global_batch_size=4",
			"validation.enable=true", "validation.freq=3", "validation.dataset_path=" + dataset(t, documents(9, 30, 20, 30)...)}},
	} {
		t.Run(name, func(t *testing.T) {
			set := append([]string{"mesh.devices=8"}, c.set...)
			alone := recipe(t, data, set...)
			run(t, alone)

			p := &pod{hosts: 2, whose: c.whose}
			r := recipe(t, data, set...)
			stop := make(chan os.Signal, 1)
			first := good(t, p.run(t, r, func(host int, o *RunOptions) {
				if host == 0 {
					o.Out = signalAt(o.Out, "step:  3 ", stop)
				} else {
					o.Stop = stop
				}
			}))
			at := first[0].res.Step
			for _, h := range first {
				require.True(t, h.res.Preempted())
				require.True(t, h.res.Saved)
				require.Equal(t, at, h.res.Step)
			}
			require.Contains(t, []int64{3, 4, 5}, at)
			require.Regexp(t, `^process 1 of 2, coordinator .*\n$`, first[1].log, "one host writes the log")
			require.Contains(t, first[0].log, "process 0 of 2, coordinator ")
			list, err := folder(t, r).List()
			require.NoError(t, err)
			last := list[len(list)-1]
			require.EqualValues(t, at, last.Step)
			require.Equal(t, 2, last.Manifest.Processes)
			wrote := map[string]bool{}
			for _, f := range last.Manifest.Files {
				wrote[f.Name[:11]] = true
			}
			require.Equal(t, map[string]bool{"shard-00000": true, "shard-00001": true}, wrote)

			// One host goes on from what two have saved.
			single := recipe(t, data, set...)
			from := filepath.Join(r.Job.DumpFolder, r.Checkpoint.Folder, filepath.Base(last.Path))
			copyDir(t, from, filepath.Join(single.Job.DumpFolder, single.Checkpoint.Folder, filepath.Base(last.Path)))
			run(t, single)
			sameState(t, saved(t, alone, 6), saved(t, single, 6), "one host after two")

			second := good(t, p.run(t, r, nil))
			require.Contains(t, second[0].log, "resumed from ")
			require.Nil(t, second[1].res.Stopped)
			for _, step := range []int{2, 6} {
				sameState(t, saved(t, alone, step), saved(t, r, step), fmt.Sprint("step ", step))
			}
			require.Equal(t, curve(t, alone, loss, 6), curve(t, r, loss, 6))
			require.Equal(t, curve(t, alone, "n_tokens_seen", 6), curve(t, r, "n_tokens_seen", 6))
			for step, rec := range records(t, r, "validation") { // one that the signal met is left out
				require.Equal(t, records(t, alone, "validation")[step][evalLoss], rec[evalLoss])
			}
			require.Equal(t, r.Validation.Enable, len(records(t, r, "validation")) > 0)
		})
	}
}

// Hosts that would run different things find out before they run anything, and
// what ends one of them ends all, with its reason.
func TestHostsDiffer(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	other := dataset(t, documents(2, 40, 5, 60)...)
	r := recipe(t, data, "mesh.devices=8")
	p := &pod{hosts: 2, whose: func(d int) int { return d / 4 }}
	host, err := os.Hostname()
	require.NoError(t, err)

	for _, h := range p.run(t, r, func(host int, o *RunOptions) {
		if host == 1 {
			o.Recipe, o.Version = recipe(t, other, "mesh.devices=8"), "another"
		}
	}) {
		require.ErrorContains(t, h.err, "the hosts would not run the same: titan: process 1 ("+host+") has another, process 0 ("+host+") has test; recipe: process 1")
		require.ErrorContains(t, h.err, "; data: process 1 (")
		require.ErrorContains(t, h.err, "start the same titan with the same recipe")
	}

	broken := p.run(t, r, func(host int, o *RunOptions) {
		if host == 1 {
			o.Recipe = recipe(t, filepath.Join(t.TempDir(), "none"), "mesh.devices=8")
		}
	})
	require.ErrorContains(t, broken[1].err, "none.idx")
	require.ErrorContains(t, broken[0].err, "process 1 ("+host+") failed: ")
	require.ErrorContains(t, broken[0].err, "none.idx")
	require.Empty(t, steps(t, r))
}

// A signal on one host while hosts set up: all end, as preempted, with nothing
// saved.
func TestSignalBeforeTheFirstStepOfTwoHosts(t *testing.T) {
	quickly(t)
	r := recipe(t, dataset(t, documents(1, 40, 5, 60)...), "mesh.devices=8")
	p := &pod{hosts: 2, whose: func(d int) int { return d / 4 }}
	stop := make(chan os.Signal, 1)
	for _, h := range good(t, p.run(t, r, func(host int, o *RunOptions) {
		if host == 0 {
			o.Out = signalAt(o.Out, "compiled: ", stop)
		} else {
			o.Stop = stop
		}
	})) {
		require.True(t, h.res.Preempted())
		require.False(t, h.res.Saved)
		require.Zero(t, h.res.Step)
	}
	require.Empty(t, steps(t, r))
}

// Nobody waits for devices that wait for a host that is gone, nor for ever.
func TestTogether(t *testing.T) {
	groups := make([]*launch.Group, 2)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, id := range identities(t, 2) {
		wg.Go(func() { groups[i], errs[i] = launch.Join(ctx, id, launch.Options{Host: fmt.Sprint("host-", i)}) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	block := make(chan int)
	defer close(block)
	wait := func() (int, error) { return <-block, nil }

	h := &hosts{group: groups[0], comm: configs.Comm{InitTimeout: 1, TrainTimeout: 1}, longest: 1}
	v, err := together(h, "step 7", func() (int, error) { return 3, nil })
	require.NoError(t, err)
	require.Equal(t, 3, v)
	require.False(t, h.lost)
	_, err = together(h, "step 8", wait)
	require.EqualError(t, err, "train: step 8 has not ended after 1s, though all hosts are there")
	require.True(t, h.lost)

	h = &hosts{group: groups[0], comm: configs.Comm{InitTimeout: 3000, TrainTimeout: 3000}}
	go groups[1].Fail(errors.New("no space left on device"))
	_, err = together(h, "step 8", wait)
	require.EqualError(t, err, "launch: process 1 (host-1) failed: no space left on device")
	require.True(t, h.lost)
	device := &pjrt.Error{Message: "slice health check failed"}
	require.Equal(t, device, h.blame(device), "what failed by itself is not to blame for it")
	groups[0].Fail(err)
}

// What differs is named with both values, and with the hosts.
func TestCompareFacts(t *testing.T) {
	name := func(p int) string { return fmt.Sprintf("%d (host-%d)", p, p) }
	same := []fact{{"recipe", "a"}, {"program step", "b"}}
	require.NoError(t, compare([][]fact{same, same, same}, name))
	err := compare([][]fact{same, same, {{"recipe", "a"}, {"program step", "c"}}, {{"recipe", "a"}}}, name)
	require.EqualError(t, err, "train: the hosts would not run the same: program step: process 2 (host-2) has c, process 0 (host-0) has b; "+
		"process 3 (host-3) compares 1 things, process 0 (host-0) 2; start the same titan with the same recipe, data and plugin on all")
	many := [][]fact{same}
	for range 20 {
		many = append(many, []fact{{"recipe", "x"}, {"program step", "b"}})
	}
	require.ErrorContains(t, compare(many, name), "; and 12 more differences;")
}
