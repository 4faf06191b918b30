package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
	"titan/checkpoint/storage/faultfs"
	"titan/dtype"
	"titan/mesh"
	"titan/sharding"
)

func TestNames(t *testing.T) {
	for step, name := range map[int]string{0: "step-00000000", 42: "step-00000042", 99999999: "step-99999999", 100000000: "step-100000000"} {
		require.Equal(t, name, stepDir(step))
		kind, got := parseName(name)
		require.Equal(t, stepName, kind)
		require.Equal(t, step, got)
		for _, k := range []nameKind{tempName, oldName, trashName} {
			kind, got := parseName(workDir(step, "00ff", k))
			require.Equal(t, k, kind)
			require.Equal(t, step, got)
		}
	}
	for _, name := range []string{"step-1", "step-000000001", "step-00000001x", "step--0000001", ".titan-step-00000001.tmp", ".titan-step-00000001-xyz.tmp",
		"titan-step-00000001-00.tmp", ".titan-lock", "step-99999999999999999999", "", "."} {
		kind, _ := parseName(name)
		require.Equal(t, otherName, kind, name)
	}
}

// The lock keeps two runs apart: the second neither writes nor tidies, so what
// a live run is writing is safe.
func TestOneRunAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outputs", "checkpoint")
	fs, err := storage.Local(dir)
	require.NoError(t, err)
	first, err := NewStore(fs, testOptions(2))
	require.NoError(t, err)
	inProgress := workDir(5, "abcd", tempName)
	require.NoError(t, fs.Mkdir(inProgress))

	_, err = NewStore(fs, testOptions(2))
	require.ErrorIs(t, err, storage.ErrLocked)
	require.ErrorContains(t, err, "checkpoint: opening "+dir+" for saving")
	require.ErrorContains(t, err, "process ", "it says who has it")
	_, err = fs.ReadDir(inProgress)
	require.NoError(t, err)
	_, err = NewFolder(fs).List()
	require.NoError(t, err, "reading needs no lock")

	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	_, err = first.Save(ctx, snapshot(1, 1, smallMesh(t, 1), smallTensors()))
	require.ErrorContains(t, err, "the store is closed")
	second, err := NewStore(fs, testOptions(2))
	require.NoError(t, err)
	defer second.Close()
	require.Equal(t, []string{"removed " + inProgress}, second.Notes())
	require.Empty(t, second.Notes())
	require.NoError(t, checkTidy(fs))

	_, err = NewStore(fs, Options{KeepLatest: -1})
	require.ErrorContains(t, err, "none can be negative")
}

func TestStorageWithoutLocks(t *testing.T) {
	fs := faultfs.New()
	fs.SetNoLocks()
	left := workDir(5, "abcd", tempName)
	require.NoError(t, fs.Mkdir(left))
	s, err := NewStore(fs, testOptions(1))
	require.NoError(t, err)
	require.ErrorContains(t, errors.New(fmt.Sprint(s.Notes())), "no locks: left-overs of crashed saves are not removed")
	for step := range 3 {
		_, err = s.Save(ctx, snapshot(step, step, smallMesh(t, 1), smallTensors()))
		require.NoError(t, err)
	}
	_, err = fs.ReadDir(left)
	require.NoError(t, err, "it may be somebody's")
	list, err := s.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, s.Close())
}

func TestRetention(t *testing.T) {
	of := func(step, generation int, s Status) Listed {
		return Listed{Step: step, generation: generation, Status: s}
	}
	steps := func(list []Listed) []int {
		out := []int{}
		for _, l := range list {
			out = append(out, l.Step)
		}
		slices.Sort(out)
		return out
	}
	straight := []Listed{of(10, 1, Complete), of(20, 2, Complete), of(30, 3, Complete), of(40, 4, Complete)}
	for keep, want := range [][]int{{}, {10, 20, 30}, {10, 20}, {10}, {}, {}} {
		require.Equal(t, want, steps(planRetention(straight, 40, keep)), "keep %d", keep)
	}
	// Gone back to 10 and on from there: the old branch goes first.
	back := []Listed{of(10, 1, Complete), of(15, 5, Complete), of(20, 2, Complete), of(30, 3, Complete), of(40, 4, Complete)}
	require.Equal(t, []int{10, 20, 30}, steps(planRetention(back, 15, 2)))
	// Damaged ones do not count as kept, and are left for a human to see.
	damaged := []Listed{of(10, 1, Complete), of(20, 2, Complete), of(30, 3, Damaged), of(40, 0, Damaged), of(45, 0, Foreign), of(50, 6, Complete)}
	require.Equal(t, []int{10}, steps(planRetention(damaged, 50, 2)))
	require.Equal(t, []int{10, 20}, steps(planRetention(damaged, 50, 1)))
	// If the one just committed cannot be seen, it is still not removed.
	require.Empty(t, planRetention([]Listed{of(10, 1, Complete), of(20, 2, Complete)}, 10, 1))
}

// While saving goes on with keep 1, whoever looks always finds a complete one.
func TestAlwaysOneToLoad(t *testing.T) {
	fs, err := storage.Local(t.TempDir())
	require.NoError(t, err)
	s, err := NewStore(fs, testOptions(1))
	require.NoError(t, err)
	defer s.Close()
	m, tensors := smallMesh(t, 1), smallTensors()
	_, err = s.Save(ctx, snapshot(0, 0, m, tensors))
	require.NoError(t, err)
	done := make(chan struct{})
	var wg sync.WaitGroup
	looks := 0
	wg.Go(func() {
		for {
			list, err := NewFolder(fs).List()
			complete := 0
			for _, l := range list {
				if l.Status == Complete {
					complete++
				}
			}
			if err != nil || complete == 0 {
				t.Errorf("%d complete of %v: %v", complete, list, err)
				return
			}
			looks++
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for i := range 30 {
		_, err := s.Save(ctx, snapshot(i/2, i, m, tensors)) // every other replaces one
		require.NoError(t, err)
	}
	close(done)
	wg.Wait()
	require.Positive(t, looks)
}

func TestSaveErrors(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	fs := faultfs.New()
	s, err := NewStore(fs, testOptions(0))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   string
	}{
		"negative step": {func(s *Snapshot) { s.Step = -3 }, "step -3 is negative"},
		"no mesh":       {func(s *Snapshot) { s.Mesh = nil }, "no mesh"},
		"no function":   {func(s *Snapshot) { s.Shard = nil }, "no function Shard"},
		"same name":     {func(s *Snapshot) { s.Tensors = append(slices.Clone(s.Tensors), s.Tensors[0]) }, `two tensors are named "w"`},
		"no name":       {func(s *Snapshot) { s.Tensors = []Tensor{{DType: dtype.F32}} }, "it needs a name"},
		"uneven":        {func(s *Snapshot) { s.Tensors = []Tensor{{"x", dtype.F32, []int{3}, sharding.P("dp")}} }, `tensor "x": sharding: dimension 0 of size 3`},
		"open":          {func(s *Snapshot) { s.Tensors = []Tensor{{"x", dtype.F32, []int{4}, sharding.P(sharding.Any)}} }, "is open"},
		"state":         {func(s *Snapshot) { s.State = map[string]any{"f": func() {}} }, `state "f" cannot be encoded`},
		"shard error": {func(s *Snapshot) {
			s.Shard = func(context.Context, int, int) ([]byte, error) { return nil, errors.New("device lost") }
		}, `at position 0: device lost`},
		"shard size": {func(s *Snapshot) {
			s.Shard = func(context.Context, int, int) ([]byte, error) { return make([]byte, 5), nil }
		}, `has 5 bytes instead of`},
	} {
		snap := snapshot(1, 1, m, tensors)
		c.change(&snap)
		released := 0
		snap.Release = func() { released++ }
		_, err := s.Save(ctx, snap)
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, "checkpoint: saving step", name)
		require.Equal(t, 1, released, name)
		require.NoError(t, checkTidy(fs), name)
	}
	cancelled, cancel := context.WithCancel(ctx)
	snap := snapshot(1, 1, m, tensors)
	read := snap.Shard
	snap.Shard = func(ctx context.Context, i, p int) ([]byte, error) { cancel(); return read(ctx, i, p) }
	_, err = s.Save(cancelled, snap)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, checkTidy(fs))
	list, err := s.List()
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = s.Save(ctx, snapshot(1, 1, m, tensors))
	require.NoError(t, err)
}

// If one process of several fails, all fail, none waits for ever, and nothing
// stays.
func TestGroupFailsTogether(t *testing.T) {
	m, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}, nil)
	require.NoError(t, err)
	m, err = m.WithDevices([]mesh.DeviceInfo{{ID: 0, Process: 0}, {ID: 1, Process: 1}, {ID: 2, Process: 2}, {ID: 3, Process: 2}})
	require.NoError(t, err)
	tensors := smallTensors()
	for name, c := range map[string]struct {
		change func(rank int, s *Snapshot)
		want   string
	}{
		"device": {func(rank int, s *Snapshot) {
			if rank == 2 {
				s.Shard = func(context.Context, int, int) ([]byte, error) { return nil, errors.New("device lost") }
			}
		}, "device lost"},
		"leader's state": {func(rank int, s *Snapshot) {
			if rank == 0 {
				s.State = map[string]any{"f": func() {}}
			}
		}, `state "f"`},
		"another step": {func(rank int, s *Snapshot) { s.Step += rank / 2 }, "is saving something else than process"},
		"another spec": {func(rank int, s *Snapshot) {
			s.Tensors = slices.Clone(s.Tensors)
			s.Tensors[0].Spec = sharding.P([]string{"dp", "tp"}[rank/2])
		}, "is saving something else than process"},
	} {
		fs := faultfs.New()
		errs := make([]error, 3)
		stores := make([]*Store, 3)
		group := LocalGroup(3)
		for i := range stores {
			o := testOptions(1)
			o.Group = group[i]
			stores[i], err = NewStore(fs, o)
			require.NoError(t, err)
		}
		all := func(change func(int, *Snapshot)) {
			var wg sync.WaitGroup
			for i, s := range stores {
				snap := snapshot(4, 1, m, tensors)
				change(i, &snap)
				wg.Go(func() { _, errs[i] = s.Save(ctx, snap) })
			}
			wg.Wait()
		}
		all(c.change)
		for i := range errs {
			require.ErrorContains(t, errs[i], c.want, "%s: process %d", name, i)
		}
		require.NoError(t, checkTidy(fs), name)
		all(func(int, *Snapshot) {})
		require.NoError(t, errors.Join(errs...), "%s: the next save works", name)
		require.NoError(t, stores[0].Close())
	}
}

// A process that stops waiting ends the save for all.
func TestGroupCancelled(t *testing.T) {
	m := smallMesh(t, 2)
	fs := faultfs.New()
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, g := range LocalGroup(2) {
		o := testOptions(1)
		o.Group = g
		s, err := NewStore(fs, o)
		require.NoError(t, err)
		snap := snapshot(4, 1, m, smallTensors())
		if i == 1 { // never comes to the exchange: it waits for its device
			snap.Shard = func(ctx context.Context, _, _ int) ([]byte, error) { cancel(); <-ctx.Done(); return nil, ctx.Err() }
		}
		wg.Go(func() { _, errs[i] = s.Save(cancelled, snap) })
	}
	wg.Wait()
	for i := range errs {
		require.ErrorIs(t, errs[i], context.Canceled, "process %d", i)
	}
	list, err := NewFolder(fs).List()
	require.NoError(t, err)
	require.Empty(t, list)
}

// A process whose disk is its own is found out.
func TestGroupWithoutSharedStorage(t *testing.T) {
	m := smallMesh(t, 2)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, g := range LocalGroup(2) {
		fs := faultfs.New()
		o := testOptions(1)
		o.Group = g
		s, err := NewStore(fs, o)
		require.NoError(t, err)
		wg.Go(func() { _, errs[i] = s.Save(ctx, snapshot(4, 1, m, smallTensors())) })
	}
	wg.Wait()
	for i := range errs {
		require.Error(t, errs[i], "process %d", i)
	}
}

// staleFS shows old content of one file, as a cache of another host's writes may.
type staleFS struct{ storage.FS }

type staleObject struct{ storage.Object }

func (f staleFS) Open(name string) (storage.Object, error) {
	o, err := f.FS.Open(name)
	if err == nil && path.Base(name) == partialName(1) {
		o = staleObject{o}
	}
	return o, err
}

func (o staleObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	for i, c := range p[:n] { // other checksums, still JSON
		if c == '1' {
			p[i] = '2'
		}
	}
	return n, err
}

// The leader commits only what the others say they wrote.
func TestGroupStaleView(t *testing.T) {
	m := smallMesh(t, 2)
	fs := faultfs.New()
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, g := range LocalGroup(2) {
		o := testOptions(1)
		o.Group = g
		var view storage.FS = fs
		if i == 0 {
			view = staleFS{fs}
		}
		s, err := NewStore(view, o)
		require.NoError(t, err)
		wg.Go(func() { _, errs[i] = s.Save(ctx, snapshot(4, 1, m, smallTensors())) })
	}
	wg.Wait()
	for i := range errs {
		require.ErrorContains(t, errs[i], "process-00001.json is not what process 1 wrote", "process %d", i)
	}
	require.NoError(t, checkTidy(fs))
}

// A checkpoint in today's format: a later version must read them,
// or raise the version.
func TestGoldenCheckpoint(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	o := testOptions(0)
	o.FileSize = 0
	fs := faultfs.New()
	saveAll(t, fs, 1, func() Options { return o }, snapshot(42, 7, m, tensors))
	golden, err := storage.ExistingLocal("testdata")
	require.NoError(t, err)
	entries, err := fs.ReadDir(stepDir(42))
	require.NoError(t, err)
	for _, e := range entries {
		name := path.Join(stepDir(42), e.Name)
		got, err := storage.ReadFile(fs, name, 1<<20)
		require.NoError(t, err)
		want, err := storage.ReadFile(golden, name, 1<<20)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), e.Name)
	}
	c, err := NewFolder(golden).Open(42)
	require.NoError(t, err)
	defer c.Close()
	id, err := readID(c, tensors)
	require.NoError(t, err)
	require.Equal(t, 7, id)
	require.Equal(t, "abc", c.Manifest().Recipe)
}
