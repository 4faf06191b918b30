package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
	"titan/dtype"
	"titan/mesh"
	"titan/sharding"
)

var ctx = context.Background()

// long is set for the sweeps that take minutes: TITAN_LONG=1.
var long = os.Getenv("TITAN_LONG") != ""

// whole returns the content of a tensor in the save with this id. It depends on
// every byte's place, so that parts that end up elsewhere are noticed.
func whole(id int, t Tensor) []byte {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", id, t.Name)
	rng := rand.New(rand.NewPCG(h.Sum64(), 0))
	out := make([]byte, sharding.Whole(t.Shape).Elements()*t.DType.Size()+8)
	for i := 0; i+8 <= len(out); i += 8 {
		binary.LittleEndian.PutUint64(out[i:], rng.Uint64())
	}
	return out[:len(out)-8]
}

// snapshot returns the snapshot of a step whose content the id decides.
func snapshot(step, id int, m *mesh.Mesh, tensors []Tensor) Snapshot {
	return Snapshot{
		Step: step, Mesh: m, Tensors: tensors,
		State: map[string]any{"id": id, "data": map[string]int{"position": 7 * id}},
		Shard: func(_ context.Context, tensor, position int) ([]byte, error) {
			t := tensors[tensor]
			l, err := t.layout(m)
			if err != nil {
				return nil, err
			}
			shards, err := l.Split(whole(id, t), t.DType.Size(), []int{position})
			if err != nil {
				return nil, err
			}
			return shards[0], nil
		},
	}
}

// readID checks that a checkpoint holds exactly one of our saves and returns its id.
func readID(c *Checkpoint, tensors []Tensor) (int, error) {
	var id int
	if err := c.State("id", &id); err != nil {
		return 0, err
	}
	if err := c.Verify(ctx); err != nil {
		return 0, err
	}
	for _, t := range tensors {
		want := whole(id, t)
		got := make([]byte, len(want))
		if err := c.ReadRegion(t.Name, sharding.Whole(t.Shape), got); err != nil {
			return 0, err
		}
		if !slices.Equal(want, got) {
			return 0, fmt.Errorf("tensor %q is not that of save %d", t.Name, id)
		}
	}
	return id, nil
}

func smallMesh(t *testing.T, processes int) *mesh.Mesh {
	m, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, nil)
	require.NoError(t, err)
	var devices []mesh.DeviceInfo
	for i := range 4 {
		devices = append(devices, mesh.DeviceInfo{ID: i, Process: i * processes / 4})
	}
	m, err = m.WithDevices(devices)
	require.NoError(t, err)
	return m
}

func smallTensors() []Tensor {
	return []Tensor{
		{"w", dtype.F32, []int{4, 6}, sharding.P("dp", "tp")},
		{"norm", dtype.BF16, []int{6}, sharding.P()},
		{"mask", dtype.Bool, []int{2, 3}, sharding.P("tp", nil)},
		{"count", dtype.S64, nil, sharding.P()},
		{"none", dtype.F32, []int{0, 4}, sharding.P(nil, "tp")},
	}
}

// testOptions make many small files and chunks, and everything repeatable.
func testOptions(keep int) Options {
	var n atomic.Int64
	return Options{
		KeepLatest: keep, ChunkSize: 64, FileSize: 40, Workers: 1,
		Creator: map[string]string{"titan": "test"}, Recipe: "abc",
		now:   func() time.Time { return time.Unix(1_700_000_000, 0) },
		nonce: func() string { return fmt.Sprintf("%04x", n.Add(1)) },
	}
}

// save is one call of Save in a history.
type save struct{ step, id int }

// history is what the caller of the store knows, and so may rely on.
type history struct {
	keep  int
	tried []save // in order
	acked []save // those for which Save returned no error
}

// check looks at a folder after whatever happened. Nothing may be damaged; every
// complete checkpoint must be one that was saved under its step and not older
// than the last acknowledged; and what was acknowledged last must be there.
func (h *history) check(fs storage.FS, tensors []Tensor) error {
	f := NewFolder(fs)
	list, err := f.List()
	if err != nil {
		return err
	}
	there := map[int]int{} // step to id
	latest := Listed{}
	for _, l := range list {
		if l.Status == HalfWritten {
			continue
		}
		if l.Status != Complete {
			return l.Err
		}
		c, err := f.open(l)
		if err != nil {
			return err
		}
		id, err := readID(c, tensors)
		if err != nil {
			return err
		}
		if !slices.Contains(h.tried, save{l.Step, id}) {
			return fmt.Errorf("step %d holds save %d, which was never tried", l.Step, id)
		}
		for _, a := range h.acked {
			if a.step == l.Step && a.id > id {
				return fmt.Errorf("step %d holds save %d although save %d was acknowledged", l.Step, id, a.id)
			}
		}
		there[l.Step] = id
		if l.generation > latest.generation {
			latest = l
		}
	}
	if len(h.acked) == 0 {
		return nil
	}
	if len(there) < h.distinct() {
		return fmt.Errorf("only %v are left of the acknowledged %v", there, h.acked)
	}
	last := h.acked[len(h.acked)-1]
	id, ok := there[last.step]
	if !ok {
		return fmt.Errorf("the last acknowledged save %v is lost; there are %v", last, there)
	}
	if id < last.id {
		return fmt.Errorf("the last acknowledged save %v became save %d", last, id)
	}
	c, err := f.Open(Latest)
	if err != nil {
		return err
	}
	if c.Step() != latest.Step {
		return fmt.Errorf("the latest is step %d, opened was %d", latest.Step, c.Step())
	}
	if latestID := there[latest.Step]; latestID < last.id {
		return fmt.Errorf("the latest is save %d, older than the acknowledged %d", latestID, last.id)
	}
	return nil
}

// distinct returns how many acknowledged checkpoints there must be at least.
func (h *history) distinct() int {
	steps := map[int]bool{}
	for _, a := range h.acked {
		steps[a.step] = true
	}
	return min(h.keep, len(steps))
}

// checkTidy verifies that there is nothing in a folder but checkpoints and the lock.
func checkTidy(fs storage.FS) error {
	entries, err := fs.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if kind, step := parseName(e.Name); kind != stepName && e.Name != lockName {
			return fmt.Errorf("%s was left behind", e.Name)
		} else if kind == stepName {
			if l, err := NewFolder(fs).probe(e.Name, step); err != nil || l.Status != Complete {
				return fmt.Errorf("%s was left behind: %v %v", e.Name, l.Err, err)
			}
		}
	}
	return nil
}

// works verifies that a folder can be used again: opened for saving, which
// leaves it tidy, and saved into.
func (h *history) works(fs storage.FS, m *mesh.Mesh, tensors []Tensor) error {
	o := testOptions(h.keep)
	s, err := NewStore(fs, o)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := checkTidy(fs); err != nil {
		return err
	}
	if err := h.check(fs, tensors); err != nil {
		return fmt.Errorf("after tidying: %w", err)
	}
	next := save{1000, 1000}
	if _, err := s.Save(ctx, snapshot(next.step, next.id, m, tensors)); err != nil {
		return err
	}
	after := history{keep: h.keep, tried: append(slices.Clone(h.tried), next), acked: append(slices.Clone(h.acked), next)}
	if err := after.check(fs, tensors); err != nil {
		return fmt.Errorf("after a further save: %w", err)
	}
	list, err := s.List()
	if err != nil {
		return err
	}
	if len(list) > h.keep {
		return fmt.Errorf("%d checkpoints are kept instead of %d", len(list), h.keep)
	}
	return checkTidy(fs)
}
