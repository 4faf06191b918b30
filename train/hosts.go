package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"titan/checkpoint"
	"titan/configs"
	"titan/launch"
	"titan/pjrt"
)

// hosts is what a run knows of its other processes, each on a host of its own.
type hosts struct {
	group   *launch.Group // nil: it is alone
	comm    configs.Comm
	stop    *stopper
	joined  time.Time
	longest time.Duration // that was waited for the devices so far
	lost    bool          // the devices wait for a host that is gone
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// leads reports whether this process writes the files of the run.
func (h *hosts) leads() bool { return h.group == nil || h.group.Rank() == 0 }

// Identity finds out which process of a run on a platform this one is.
func Identity(ctx context.Context, platform string) (launch.Identity, error) {
	env := os.Getenv
	if platform == "tpu" && noTPU(platform, "/dev") == "" {
		var err error
		if env, err = launch.WithMetadata(env, launch.Metadata(ctx, env)); err != nil {
			return launch.Identity{}, err
		}
	}
	id, err := launch.FromEnv(env)
	if platform != "cpu" || err == nil && id.Source == launch.EnvProcesses && id.Processes > 1 {
		if err == nil && platform == "cpu" {
			err = fmt.Errorf("train: %s is %d, but mesh.platform is cpu, whose plugin joins no processes: unset it", launch.EnvProcesses, id.Processes)
		}
		return id, err
	}
	return launch.Single(), nil // what Cloud TPU says is about devices that are not used
}

// join comes together with the other processes of the run, if there are any.
func (t *trainer) join(ctx context.Context, find func(ctx context.Context, platform string) (launch.Identity, error)) error {
	h := &t.hosts
	id, err := find(ctx, t.recipe.Mesh.Platform)
	if err != nil {
		return err
	}
	h.comm, h.stop, h.joined = t.recipe.Comm, t.stop, time.Now()
	if id.Processes == 1 {
		return nil
	}
	t.logf("%v", id)
	h.group, err = launch.Join(ctx, id, launch.Options{Join: seconds(h.comm.InitTimeout), Limit: seconds(h.comm.InitTimeout), Silence: min(seconds(h.comm.TrainTimeout), maxSilence)})
	if err != nil {
		return err
	}
	h.joined = time.Now()
	go func() { // a signal here is one for all, and one elsewhere is one here
		select {
		case <-h.stop.asked:
			if sig, ok := h.stop.sig.(syscall.Signal); ok {
				h.group.Stop(int(sig))
			}
		case <-h.group.Asked():
			h.stop.ask(syscall.Signal(h.group.Stopping().Signal))
		case <-h.group.Context().Done():
		}
	}()
	return nil
}

// maxSilence is after how long without a word a host counts as lost. Hosts speak
// all the time, whatever their devices do.
const maxSilence = 30 * time.Second

// heard notes a signal elsewhere that this process has heard of.
func (h *hosts) heard() {
	if h.group == nil {
		return
	}
	if s := h.group.Stopping(); s != nil {
		h.stop.ask(syscall.Signal(s.Signal))
	}
}

// part takes leave of the others. If the run failed they are told why.
func (h *hosts) part(err error) error {
	if h.group == nil {
		return nil
	}
	if sig, ok := h.stop.signal().(syscall.Signal); ok {
		h.group.Stop(int(sig))
	}
	if err != nil {
		h.group.Fail(err)
		return nil
	}
	return h.group.Leave()
}

// members is the group as checkpoints need it.
func (h *hosts) members() checkpoint.Group {
	if h.group == nil {
		return checkpoint.Alone()
	}
	return saving{h.group, seconds(h.comm.SaveTimeout)}
}

// saving is a group in which hosts may wait for each other as long as a save takes.
type saving struct {
	*launch.Group
	limit time.Duration
}

func (s saving) Exchange(ctx context.Context, key string, message []byte) ([][]byte, error) {
	return s.ExchangeFor(ctx, s.limit, key, message)
}

// ready waits until all hosts are about to begin. From here on they stop together
// or not at all.
func (t *trainer) ready(ctx context.Context) error {
	h := &t.hosts
	if h.group == nil {
		return nil
	}
	const stopping = "stop"
	word := ""
	if ctx.Err() != nil {
		word = stopping
	}
	replies, err := h.group.ExchangeFor(context.WithoutCancel(ctx), h.patience(), "train/ready", []byte(word))
	if err != nil {
		return fmt.Errorf("train: waiting for all hosts to begin: %w", err)
	}
	for _, r := range replies {
		if string(r) == stopping {
			select { // the signal is on its way here, if it was one
			case <-h.stop.asked:
			case <-h.group.Context().Done():
			case <-time.After(maxSilence):
			}
			return errAbandoned
		}
	}
	h.group.SetLimit(seconds(h.comm.TrainTimeout))
	return nil
}

// turn returns the signal for which the run ends before the next program that
// all hosts run; nil: it goes on.
func (t *trainer) turn(ctx context.Context) (os.Signal, error) {
	if t.hosts.group == nil {
		return t.stop.signal(), nil
	}
	s, err := t.hosts.group.Turn(ctx)
	if s == nil || err != nil {
		return nil, err
	}
	return syscall.Signal(s.Signal), nil
}

// together waits for what the devices of all hosts do together. It gives up when
// a host is lost, which the devices may not notice, and when it takes far longer
// than ever before.
func together[T any](h *hosts, what string, f func() (T, error)) (T, error) {
	if h.group == nil {
		return f()
	}
	limit := max(seconds(h.comm.TrainTimeout), 20*h.longest)
	if h.longest == 0 {
		limit = max(limit, seconds(h.comm.InitTimeout))
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(h.group.Context(), limit)
	defer cancel()
	v, err := abandonable(ctx, f)
	h.longest = max(h.longest, time.Since(began))
	if errors.Is(err, errAbandoned) {
		h.lost = true
		if err = context.Cause(h.group.Context()); err == nil {
			err = fmt.Errorf("train: %s has not ended after %v, though all hosts are there", what, limit)
			if b := h.group.Behind(); b != "" {
				err = fmt.Errorf("%w: %s", err, b)
			}
		}
	}
	return v, err
}

// blame finds the reason of an error of devices: that a host is lost, which shows
// a little later than its devices do.
func (h *hosts) blame(err error) error {
	var device *pjrt.Error
	var oom *pjrt.OutOfMemory
	if h.group == nil || !errors.As(err, &device) || errors.As(err, &oom) {
		return err
	}
	select {
	case <-h.group.Context().Done():
		if cause := context.Cause(h.group.Context()); launch.Passing(cause) {
			return fmt.Errorf("%w; it showed as: %w", cause, err)
		}
	case <-time.After(2 * maxSilence):
	}
	return err
}
