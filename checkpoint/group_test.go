package checkpoint

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage/faultfs"
	"titan/mesh"
)

// Several processes step through a save in a random order. All of them stop
// together, or one dies, or an operation of one fails: the outcome is the same
// for all, and the next run finds only whole checkpoints.
func TestGroupFaults(t *testing.T) {
	const processes = 3
	m3, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 3}, {Name: "tp", Size: 2}}, nil)
	require.NoError(t, err)
	var devices []mesh.DeviceInfo
	for i := range 6 {
		devices = append(devices, mesh.DeviceInfo{ID: i, Process: i / 2})
	}
	m3, err = m3.WithDevices(devices)
	require.NoError(t, err)
	tensors := smallTensors()
	tensors[0].Shape = []int{6, 6}

	type fault struct {
		kind    string // "", "crash", "die", "EIO"
		process int
		at      int // operation: of all for a crash, else of the process
	}
	// run saves three checkpoints, the last over the second, and returns the
	// number of operations of each process.
	run := func(fs *faultfs.FS, f fault, seed uint64) (*history, []int) {
		rng := rand.New(rand.NewPCG(seed, 9))
		h := &history{keep: 2}
		ops := make([]int, processes)
		stores := make([]*Store, processes)
		for i, g := range LocalGroup(processes) {
			o := testOptions(h.keep)
			o.Group = g
			s, err := NewStore(fs, o)
			if err != nil {
				return h, ops
			}
			defer s.Close()
			stores[i] = s
		}
		if f.kind == "crash" {
			fs.CrashAfter(f.at)
		}
		dead := make([]bool, processes)
		for i, step := range []int{1, 2, 2} {
			next := save{step, i + 1}
			h.tried = append(h.tried, next)
			snap := snapshot(step, next.id, m3, tensors)
			runs := make([]*saveRun, processes)
			var waiting [processes]bool
			errs := make([]error, processes)
			finished := make([]bool, processes)
			for p, s := range stores {
				if !dead[p] {
					runs[p], err = s.begin(&snap)
					require.NoError(t, err)
				}
			}
			for {
				var ready []int
				for p := range stores {
					if !dead[p] && !finished[p] && !waiting[p] {
						ready = append(ready, p)
					}
				}
				if len(ready) == 0 {
					messages, lost := [][]byte{}, false
					someone := false
					for p := range stores {
						someone = someone || waiting[p]
						if waiting[p] {
							messages = append(messages, runs[p].p.message())
						} else {
							lost = true
						}
					}
					if !someone {
						break
					}
					for p := range stores {
						if waiting[p] && lost {
							runs[p].p.done(errors.New("a process is gone"), nil)
						} else if waiting[p] {
							runs[p].p.done(nil, messages)
						}
						waiting[p] = false
					}
					continue
				}
				p := ready[rng.IntN(len(ready))]
				if o, ok := runs[p].p.next(); ok && o.kind == opExchange {
					waiting[p] = true
					continue
				}
				ops[p]++
				if f.kind == "die" && p == f.process && ops[p] == f.at {
					dead[p] = true
					continue
				}
				if f.kind == "EIO" && p == f.process && ops[p] == f.at {
					fs.SetFault(func(op faultfs.Op) (int, error) { return 0, syscall.EIO })
				}
				more, err := runs[p].advance(ctx)
				fs.SetFault(nil)
				if err != nil || !more {
					errs[p], finished[p] = err, true
				}
			}
			ok := !slices.Contains(dead, true)
			for _, err := range errs {
				ok = ok && err == nil
			}
			if ok {
				h.acked = append(h.acked, next)
			}
			if f.kind == "EIO" && !ok {
				for p, err := range errs {
					require.Error(t, err, "process %d thinks step %d is saved, another does not: %v", p, step, errs)
				}
			}
		}
		return h, ops
	}

	clean := faultfs.New()
	h, ops := run(clean, fault{}, 1)
	require.Len(t, h.acked, 3)
	require.NoError(t, h.check(clean, tensors))
	require.NoError(t, checkTidy(clean))
	for p := range ops {
		require.Positive(t, ops[p])
	}
	list, err := NewFolder(clean).List()
	require.NoError(t, err)
	require.Equal(t, 3, list[0].Manifest.Processes)
	byProcess := map[byte]int{}
	for _, f := range list[0].Manifest.Files {
		byProcess[f.Name[10]]++
	}
	require.Len(t, byProcess, 3, "every process has written: %v", byProcess)

	var faults []fault
	for n := range clean.Count() {
		faults = append(faults, fault{"crash", 0, n + 1})
	}
	for p := range processes {
		for n := range ops[p] {
			faults = append(faults, fault{"die", p, n + 1}, fault{"EIO", p, n + 1})
		}
	}
	seeds := uint64(1)
	if long {
		seeds = 20
	}
	for i, f := range faults {
		for seed := range seeds {
			fs := faultfs.New()
			h, _ := run(fs, f, seed)
			rng := rand.New(rand.NewPCG(uint64(i), seed))
			for k := range 3 {
				after := fs.Killed()
				if k > 0 {
					after = fs.Crashed(rng)
				}
				require.NoError(t, h.check(after, tensors), "%v, acknowledged %v", f, h.acked)
				require.NoError(t, h.works(after, smallMesh(t, 1), tensors), "%v, acknowledged %v", f, h.acked)
			}
		}
	}
	t.Logf("%d faults", len(faults))
}

// Where there is no checkpoint every process is told so in the same way: a run
// that may begin anew begins anew everywhere.
func TestGroupFindsNone(t *testing.T) {
	fs := faultfs.New()
	load := func(step int) []error {
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for i, g := range LocalGroup(3) {
			wg.Go(func() {
				_, errs[i] = NewFolder(fs).Load(ctx, LoadOptions{Step: step, Group: g}, func(*Checkpoint) error { return nil })
			})
		}
		wg.Wait()
		return errs
	}
	for _, err := range load(Latest) {
		var none *NotFoundError
		require.ErrorAs(t, err, &none)
		require.Equal(t, Latest, none.Step)
	}
	tensors := smallTensors()
	saveAll(t, fs, 1, func() Options { return testOptions(0) }, snapshot(3, 1, smallMesh(t, 1), tensors))
	for _, err := range load(7) {
		var none *NotFoundError
		require.ErrorAs(t, err, &none)
		require.Equal(t, 7, none.Step)
		require.Equal(t, []int{3}, none.Available)
	}
	for _, err := range load(3) {
		require.NoError(t, err)
	}
}

// Parts lists what Save asks a process for, no more and no less.
func TestParts(t *testing.T) {
	m := smallMesh(t, 2)
	tensors := smallTensors()
	asked := make([]map[Part]bool, 2)
	snaps := make([]Snapshot, 2)
	stores := make([]*Store, 2)
	fs := faultfs.New()
	for i, g := range LocalGroup(2) {
		snaps[i] = snapshot(1, 1, m, tensors)
		asked[i] = map[Part]bool{}
		var mu sync.Mutex
		shard := snaps[i].Shard
		snaps[i].Shard = func(ctx context.Context, tensor, position int) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[i][Part{tensor, position}] = true
			return shard(ctx, tensor, position)
		}
		o := testOptions(0)
		o.Group = g
		s, err := NewStore(fs, o)
		require.NoError(t, err)
		defer s.Close()
		stores[i] = s
	}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range stores {
		wg.Go(func() { _, errs[i] = stores[i].Save(ctx, snaps[i]) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for i := range stores {
		parts, err := stores[i].Parts(&snaps[i])
		require.NoError(t, err)
		require.NotEmpty(t, parts)
		require.Len(t, parts, len(asked[i]))
		for _, p := range parts {
			require.True(t, asked[i][p])
			d, _ := m.Device(p.Position)
			require.Equal(t, i, d.Process)
		}
	}
}
