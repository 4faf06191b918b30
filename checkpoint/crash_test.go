package checkpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage/faultfs"
	"titan/mesh"
)

// workload saves some steps, one of them twice, and one that is lower than those
// before it, as after going back. It goes on after failures.
func workload(fs *faultfs.FS, m *mesh.Mesh, tensors []Tensor) *history {
	return saves(fs, m, tensors, 2, 10, 20, 30, 30, 15)
}

// saves saves the given steps one after the other.
func saves(fs *faultfs.FS, m *mesh.Mesh, tensors []Tensor, keep int, steps ...int) *history {
	h := &history{keep: keep}
	s, err := NewStore(fs, testOptions(h.keep))
	if err != nil {
		return h
	}
	defer s.Close()
	for i, step := range steps {
		next := save{step, i + 1}
		h.tried = append(h.tried, next)
		if _, err := s.Save(ctx, snapshot(step, next.id, m, tensors)); err == nil {
			h.acked = append(h.acked, next)
		}
	}
	return h
}

// The machine stops after every single change to the file system, with any part
// of what was not synced lost. Also the process alone is killed there. After
// either, nothing acknowledged is lost, nothing is seen in part, and the next
// run tidies up, which may itself be cut short after every change.
func TestCrashAfterEveryOperation(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	clean := faultfs.New()
	h := workload(clean, m, tensors)
	require.Len(t, h.acked, 5)
	require.NoError(t, h.check(clean, tensors))
	require.NoError(t, checkTidy(clean))
	total := clean.Count()
	require.Greater(t, total, 100)

	states, recovered, samples := 0, 0, 6
	if long {
		samples = 60
	}
	for n := 1; n <= total; n++ {
		fs := faultfs.New()
		fs.CrashAfter(n)
		h := workload(fs, m, tensors)
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		explain := func(after *faultfs.FS) string {
			trace := fs.Trace()
			return fmt.Sprintf("crash after operation %d, %v; acknowledged %v; then\n%s", n, trace[len(trace)-1], h.acked, after.Dump())
		}
		for k := range samples {
			var after *faultfs.FS
			switch k {
			case 0:
				after = fs.Crashed(nil)
			case 1:
				after = fs.Killed()
			default:
				after = fs.Crashed(rng)
			}
			states++
			require.NoError(t, h.check(after, tensors), explain(after))
			if k < 2 || long {
				recovered += crashWhileTidying(t, h, after, m, tensors, rng, explain)
			}
			require.NoError(t, h.works(after, m, tensors), explain(after))
		}
	}
	t.Logf("%d operations, %d states after a crash, %d of a crash while tidying", total, states, recovered)
	require.Positive(t, recovered)
}

// crashWhileTidying opens the folder for saving and crashes after every change
// that this makes.
func crashWhileTidying(t *testing.T, h *history, found *faultfs.FS, m *mesh.Mesh, tensors []Tensor, rng *rand.Rand, explain func(*faultfs.FS) string) int {
	states := 0
	for n := 1; ; n++ {
		fs := found.Killed() // a copy, what is pending included
		fs.CrashAfter(n)
		s, err := NewStore(fs, testOptions(h.keep))
		if err == nil {
			require.NoError(t, s.Close())
			return states
		}
		require.ErrorIs(t, err, faultfs.ErrCrashed)
		after := fs.Crashed(rng)
		states++
		require.NoError(t, h.check(after, tensors), "tidying, crash after %d: %s", n, explain(after))
		if rng.IntN(8) == 0 || long {
			require.NoError(t, h.works(after, m, tensors), explain(after))
		}
	}
}

// Every operation fails once, or it and all after it, in every way: no space, an
// input/output error, a write that stores less than it says. A failed save says
// so and takes itself back; others are not touched; once the fault is gone saves
// work again and leave nothing behind.
func TestFaultAtEveryOperation(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	clean := faultfs.New()
	workload(clean, m, tensors)
	trace := clean.Trace()
	faults, times := 0, []int{1, 1 << 30}
	if long {
		times = []int{1, 2, 3, 5, 8, 1 << 30}
	}
	for n := 1; n <= len(trace); n++ {
		for _, sticky := range times {
			for _, kind := range []string{"EIO", "ENOSPC", "short"} {
				if kind != "EIO" && trace[n-1].Kind != "write" && trace[n-1].Kind != "create" && trace[n-1].Kind != "mkdir" {
					continue
				}
				fs := faultfs.New()
				hit := 0
				fs.SetFault(func(op faultfs.Op) (int, error) {
					reads := op.Kind == "open" || op.Kind == "read" || op.Kind == "readdir"
					if op.N < n || op.N >= n+sticky || reads {
						return op.Size, nil
					}
					hit++
					switch kind {
					case "ENOSPC":
						if op.Kind != "write" && op.Kind != "create" && op.Kind != "mkdir" {
							return 0, nil // the others need no space
						}
						return op.Size / 2, syscall.ENOSPC
					case "short":
						return op.Size / 2, nil
					}
					return op.Size / 3, syscall.EIO
				})
				h := workload(fs, m, tensors)
				require.Positive(t, hit)
				faults++
				explain := fmt.Sprintf("%s at operation %d (%v), %d times; acknowledged %v\n%s", kind, n, trace[n-1], sticky, h.acked, fs.Dump())
				fs.SetFault(nil)
				require.NoError(t, h.check(fs, tensors), explain)
				after := fs.Crashed(rand.New(rand.NewPCG(uint64(n), 2)))
				require.NoError(t, h.check(after, tensors), "then a crash: "+explain)
				require.NoError(t, h.works(fs, m, tensors), explain)
			}
		}
	}
	t.Logf("%d faults", faults)
}

// An operation fails, once or a few times, and the machine stops while the save
// takes itself back.
func TestCrashAfterFault(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()[:2]
	run := func(fs *faultfs.FS) *history { return saves(fs, m, tensors, 1, 10, 10, 20) }
	clean := faultfs.New()
	require.Len(t, run(clean).acked, 3)
	states, samples := 0, 3
	if long {
		samples = 30
	}
	for n := 1; n <= clean.Count(); n++ {
		for _, pattern := range []string{"x", "xx", "xxx", "x.x"} {
			for later := len(pattern); later < 10; later++ {
				fs := faultfs.New()
				fs.SetFault(func(op faultfs.Op) (int, error) {
					if op.Kind != "open" && op.Kind != "read" && op.Kind != "readdir" && op.N >= n && op.N < n+len(pattern) && pattern[op.N-n] == 'x' {
						return 0, syscall.EIO
					}
					return op.Size, nil
				})
				fs.CrashAfter(n + later)
				h := run(fs)
				rng := rand.New(rand.NewPCG(uint64(n), uint64(later)))
				for range samples {
					states++
					after := fs.Crashed(rng)
					require.NoError(t, h.check(after, tensors), "faults %s from operation %d, crash %d later: %v\n%s", pattern, n, later, fs.Trace()[n-1:], after.Dump())
				}
			}
		}
	}
	t.Logf("%d states", states)
}

// What a failed save could not take back is removed by the next one.
func TestTidyAfterFailedSave(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	fs := faultfs.New()
	s, err := NewStore(fs, testOptions(0))
	require.NoError(t, err)
	fs.SetFault(func(op faultfs.Op) (int, error) {
		if op.Kind == "sync" || op.Kind == "remove" {
			return 0, syscall.EIO
		}
		return op.Size, nil
	})
	_, err = s.Save(ctx, snapshot(1, 1, m, tensors))
	require.ErrorIs(t, err, syscall.EIO)
	fs.SetFault(nil)
	require.ErrorContains(t, checkTidy(fs), "was left behind")
	_, err = s.Save(ctx, snapshot(1, 2, m, tensors))
	require.NoError(t, err)
	require.NoError(t, checkTidy(fs))
	require.NotEmpty(t, s.Notes())

	// A replacement that fails puts the earlier one back in its place at once.
	fs.SetFault(func(op faultfs.Op) (int, error) {
		if op.Kind == "rename" && strings.HasSuffix(op.Name, ".tmp → "+stepDir(1)) {
			return 0, syscall.EIO
		}
		return op.Size, nil
	})
	_, err = s.Save(ctx, snapshot(1, 3, m, tensors))
	require.ErrorIs(t, err, syscall.EIO)
	require.NoError(t, checkTidy(fs))
	c, err := s.Open(1)
	require.NoError(t, err)
	id, err := readID(c, tensors)
	require.NoError(t, err)
	require.Equal(t, 2, id)

	// Retiring that fails spoils nothing, is told, and is made up for.
	s.o.KeepLatest = 1
	fs.SetFault(func(op faultfs.Op) (int, error) {
		if op.Kind == "remove" && strings.Contains(op.Name, ".trash/") {
			return 0, syscall.EIO
		}
		return op.Size, nil
	})
	saved, err := s.Save(ctx, snapshot(2, 4, m, tensors))
	require.NoError(t, err)
	require.Equal(t, []int{1}, saved.Removed)
	require.ErrorContains(t, errors.New(strings.Join(saved.Notes, "\n")), "removing older checkpoints")
	require.ErrorContains(t, checkTidy(fs), "was left behind")
	fs.SetFault(nil)
	_, err = s.Save(ctx, snapshot(3, 5, m, tensors))
	require.NoError(t, err)
	require.NoError(t, checkTidy(fs))
}

// Reading fails at every point, once or from there on: a save that cannot see
// the folder fails, and nothing is removed, nor the order of commits mistaken, on
// the strength of what could not be read.
func TestReadFaults(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	for _, times := range []int{1, 2, 5, 1 << 30} {
		for n := 1; ; n++ {
			fs := faultfs.New()
			reads := 0
			fs.SetFault(func(op faultfs.Op) (int, error) {
				if op.Kind == "open" || op.Kind == "read" || op.Kind == "readdir" {
					if reads++; reads >= n && reads < n+times {
						return 0, syscall.EIO
					}
				}
				return op.Size, nil
			})
			h := workload(fs, m, tensors)
			if reads < n {
				require.Greater(t, n, 30)
				break
			}
			fs.SetFault(nil)
			require.NoError(t, h.check(fs, tensors), "read %d, %d times", n, times)
			require.NoError(t, h.works(fs, m, tensors), "read %d, %d times", n, times)
		}
	}
}

// A checkpoint that cannot be read hides how many commits there were, and thus
// what is the latest: nothing is saved on top.
func TestSaveBesideUnreadable(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	fs := faultfs.New()
	saves(fs, m, tensors, 0, 10, 20)
	fs.SetFault(func(op faultfs.Op) (int, error) {
		if op.Kind == "read" && op.Name == stepDir(20)+"/"+commitName {
			return 0, syscall.EIO
		}
		return op.Size, nil
	})
	s, err := NewStore(fs, testOptions(1))
	require.NoError(t, err)
	_, err = s.Save(ctx, snapshot(30, 3, m, tensors))
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "a checkpoint that is there cannot be read")
	require.ErrorContains(t, err, "step-00000020 is damaged: COMMIT: it cannot be read")
	fs.SetFault(nil)
	list, err := s.List()
	require.NoError(t, err)
	require.Len(t, list, 2)
}

// The disk is full after every number of bytes. Saves fail, naming the file; what
// was there stays; and when there is room again they succeed.
func TestDiskFull(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	failed := 0
	for free := 0; ; free += 23 {
		fs := faultfs.New()
		fs.SetFree(free)
		h := workload(fs, m, tensors)
		require.NoError(t, h.check(fs, tensors), "%d bytes free", free)
		require.NoError(t, checkTidy(fs), "%d bytes free: failed saves take themselves back", free)
		if len(h.acked) == 5 {
			break
		}
		failed++
		fs.SetFree(1 << 20)
		require.NoError(t, h.works(fs, m, tensors), "%d bytes free", free)
	}
	require.Greater(t, failed, 100)

	fs := faultfs.New()
	s, err := NewStore(fs, testOptions(0))
	require.NoError(t, err)
	fs.SetFree(10)
	_, err = s.Save(ctx, snapshot(5, 1, m, tensors))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "checkpoint: saving step 5 to faultfs/step-00000005: writing faultfs/.titan-step-00000005-")
	require.ErrorContains(t, err, "shard-00000-000.safetensors")
}
