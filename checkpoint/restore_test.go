package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
	"titan/checkpoint/storage/faultfs"
	"titan/dtype"
	"titan/mesh"
	"titan/sharding"
)

// randomMesh returns a mesh of up to 12 devices, spread over some processes.
func randomMesh(t *testing.T, rng *rand.Rand, processes int) *mesh.Mesh {
	var axes []mesh.Axis
	n := 1
	for i := range 1 + rng.IntN(3) {
		size := 1 + rng.IntN(4)
		if n*size > 12 {
			size = 1
		}
		n *= size
		axes = append(axes, mesh.Axis{Name: string(rune('a' + i)), Size: size})
	}
	ids := rng.Perm(n)
	m, err := mesh.New(axes, ids)
	require.NoError(t, err)
	devices := make([]mesh.DeviceInfo, n)
	for i := range devices {
		devices[i] = mesh.DeviceInfo{ID: i, Process: rng.IntN(processes)}
	}
	m, err = m.WithDevices(devices)
	require.NoError(t, err)
	return m
}

// randomSpec returns a spec that splits the shape over the mesh evenly.
func randomSpec(rng *rand.Rand, m *mesh.Mesh, shape []int) sharding.Spec {
	axes := m.Axes()
	rng.Shuffle(len(axes), func(i, j int) { axes[i], axes[j] = axes[j], axes[i] })
	s := sharding.Replicated(len(shape))
	for _, a := range axes {
		if len(shape) == 0 || rng.IntN(4) == 0 {
			continue
		}
		d := rng.IntN(len(shape))
		n := a.Size
		for _, b := range s.Dims[d] {
			n *= m.AxisSize(b)
		}
		if shape[d]%n == 0 {
			s.Dims[d] = append(s.Dims[d], a.Name)
		}
	}
	return s
}

func randomTensors(rng *rand.Rand) []Tensor {
	var out []Tensor
	for i := range 1 + rng.IntN(5) {
		t := Tensor{Name: fmt.Sprintf("layers.%d/w", i), DType: dtype.Bool + dtype.DType(rng.IntN(int(dtype.F64-dtype.Bool)+1)), Shape: []int{}}
		for range rng.IntN(4) {
			t.Shape = append(t.Shape, []int{0, 1, 2, 3, 4, 6, 8, 12, 24}[rng.IntN(9)])
		}
		out = append(out, t)
	}
	return out
}

func withSpecs(rng *rand.Rand, m *mesh.Mesh, tensors []Tensor) []Tensor {
	out := slices.Clone(tensors)
	for i := range out {
		out[i].Spec = randomSpec(rng, m, out[i].Shape)
	}
	return out
}

// saveAll saves from all processes at once.
func saveAll(t *testing.T, fs storage.FS, processes int, options func() Options, snap Snapshot) []*Saved {
	out := make([]*Saved, processes)
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i, g := range LocalGroup(processes) {
		o := options()
		o.Group = g
		s, err := NewStore(fs, o)
		require.NoError(t, err)
		defer s.Close()
		wg.Go(func() { out[i], errs[i] = s.Save(ctx, snap) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return out
}

// Whatever mesh, processes, specs, shapes and element types a checkpoint was
// saved under, it comes back to the bit on any other mesh.
func TestRestoreOntoAnyMesh(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	rounds := 150
	if long {
		rounds = 5000
	}
	for round := range rounds {
		fs := faultfs.New()
		processes := 1 + rng.IntN(3)
		from := randomMesh(t, rng, processes)
		tensors := withSpecs(rng, from, randomTensors(rng))
		o := testOptions(0)
		o.ChunkSize, o.FileSize, o.Workers = int64(1+rng.IntN(300)), int64(1+rng.IntN(2000)), 1+rng.IntN(3)
		saved := saveAll(t, fs, processes, func() Options { return o }, snapshot(round, round, from, tensors))

		var total int64
		distinct := 0
		for _, x := range tensors {
			distinct += len(whole(round, x))
		}
		for _, s := range saved {
			total += s.Bytes
		}
		require.EqualValues(t, distinct, total, "every shard is written once")

		c, err := NewFolder(fs).Open(Latest)
		require.NoError(t, err)
		id, err := readID(c, tensors)
		require.NoError(t, err)
		require.Equal(t, round, id)

		to := randomMesh(t, rng, 1)
		wanted := withSpecs(rng, to, tensors)
		rng.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })
		wanted = wanted[:1+rng.IntN(len(wanted))]
		positions := rng.Perm(to.Size())[:1+rng.IntN(to.Size())]
		target := Target{Mesh: to, Tensors: wanted, Positions: positions, Memory: int64(1 + rng.IntN(3000))}
		if rng.IntN(3) == 0 {
			target.Positions = nil
			positions = rng.Perm(to.Size())
		}
		for name, restore := range map[string]func(Deliver) error{
			"Restore":     func(d Deliver) error { return c.Restore(ctx, target, d) },
			"RestoreFrom": func(d Deliver) error { return RestoreFrom(ctx, "source", c, target, d) },
		} {
			got := map[[2]int][]byte{}
			require.NoError(t, restore(func(tensor int, at []int, data []byte) error {
				for _, p := range at {
					require.NotContains(t, got, [2]int{tensor, p}, "delivered twice")
					got[[2]int{tensor, p}] = data
				}
				return nil
			}))
			require.Len(t, got, len(positions)*len(wanted))
			for i, x := range wanted {
				l, err := x.layout(to)
				require.NoError(t, err)
				want, err := l.Split(whole(round, x), x.DType.Size(), positions)
				require.NoError(t, err)
				for k, p := range positions {
					require.Equal(t, want[k], got[[2]int{i, p}], "%s: round %d, %v of %v on %v", name, round, p, x, to)
				}
			}
		}
		require.NoError(t, c.Close())
	}
}

// countFS counts the bytes read of each file.
type countFS struct {
	storage.FS
	bytes atomic.Int64
	reads atomic.Int64
}

type countObject struct {
	storage.Object
	f *countFS
}

func (f *countFS) Open(name string) (storage.Object, error) {
	o, err := f.FS.Open(name)
	return countObject{o, f}, err
}

func (o countObject) ReadAt(p []byte, off int64) (int, error) {
	o.f.bytes.Add(int64(len(p)))
	o.f.reads.Add(1)
	return o.Object.ReadAt(p, off)
}

// A process reads its share, not the checkpoint, and no chunk twice.
func TestRestoreReadsItsShare(t *testing.T) {
	m := smallMesh(t, 1)
	const rows, columns, chunk = 512, 256, 4096
	tensors := []Tensor{
		{"a", dtype.F32, []int{rows, columns}, sharding.P("dp", "tp")},
		{"b", dtype.F32, []int{rows, columns}, sharding.P("dp", "tp")},
	}
	local, err := storage.Local(t.TempDir())
	require.NoError(t, err)
	o := testOptions(0)
	o.ChunkSize, o.FileSize = chunk, 0
	saveAll(t, local, 1, func() Options { return o }, snapshot(1, 1, m, tensors))

	total := int64(2 * rows * columns * 4)
	for _, c := range []struct {
		name      string
		spec      sharding.Spec
		positions []int
		share     int64 // of the data, in bytes
	}{
		{"the same split", sharding.P("dp", "tp"), []int{3}, total / 4},
		{"rows", sharding.P([]string{"tp", "dp"}), []int{2}, total / 4},
		{"columns: half of each row of half the pieces", sharding.P(nil, []string{"tp", "dp"}), []int{0}, total / 2},
		{"everything, eight times over", sharding.P(), nil, total},
	} {
		counted := &countFS{FS: local}
		ckpt, err := NewFolder(counted).Open(1)
		require.NoError(t, err)
		counted.bytes.Store(0)
		wanted := slices.Clone(tensors)
		for i := range wanted {
			wanted[i].Spec = c.spec
		}
		require.NoError(t, ckpt.Restore(ctx, Target{Mesh: m, Tensors: wanted, Positions: c.positions}, func(int, []int, []byte) error { return nil }))
		require.GreaterOrEqual(t, counted.bytes.Load(), c.share, c.name)
		require.LessOrEqual(t, counted.bytes.Load(), c.share+8*2*chunk, c.name)
		require.NoError(t, ckpt.Close())
	}
}

func TestRestoreErrors(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	fs := faultfs.New()
	saveAll(t, fs, 1, func() Options { return testOptions(0) }, snapshot(3, 1, m, tensors))
	c, err := NewFolder(fs).Open(3)
	require.NoError(t, err)
	never := func(int, []int, []byte) error { t.Error("delivered"); return nil }
	restore := func(f func(*Target)) error {
		target := Target{Mesh: m, Tensors: smallTensors()}
		f(&target)
		return c.Restore(ctx, target, never)
	}
	err = restore(func(x *Target) {
		x.Tensors[0].Shape = []int{4, 8}
		x.Tensors[1].DType = dtype.F32
		x.Tensors[2].Name = "maks"
	})
	require.EqualError(t, err, `checkpoint: faultfs/step-00000003 does not fit the model: "w" has shape [4 6], the model wants [4 8]; "norm" is bf16, the model wants f32; "maks" is missing; did you mean "mask"?`)
	require.ErrorContains(t, restore(func(x *Target) { x.Tensors[1].Spec = sharding.P("pp") }), `tensor "norm": sharding: `)
	require.ErrorContains(t, restore(func(x *Target) { x.Positions = []int{4} }), "no position 4")
	require.ErrorContains(t, restore(func(x *Target) { x.Mesh = nil }), "no mesh")
	require.ErrorContains(t, restore(func(x *Target) { x.Tensors[1] = x.Tensors[0] }), `two tensors are named "w"`)
	err = c.Restore(ctx, Target{Mesh: m, Tensors: tensors}, func(int, []int, []byte) error { return errors.New("device is full") })
	require.ErrorContains(t, err, "device is full")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.Restore(cancelled, Target{Mesh: m, Tensors: tensors}, never), context.Canceled)

	require.ErrorContains(t, c.ReadRegion("w", sharding.Whole([]int{4, 7}), nil), "reaches outside")
	require.ErrorContains(t, c.ReadRegion("w", sharding.Whole([]int{4}), nil), "the ranks differ")
	require.ErrorContains(t, c.ReadRegion("w", sharding.Whole([]int{4, 6}), nil), "is 96 bytes, the buffer has 0")
	require.ErrorContains(t, c.ReadRegion("cuont", sharding.Whole(nil), nil), `no tensor "cuont"; did you mean "count"?`)
	var v int
	require.ErrorContains(t, c.State("dta", &v), `no state "dta"; did you mean "data"?`)
	require.ErrorContains(t, c.State("data", &v), `state "data"`)
	require.NoError(t, c.Close())
	require.ErrorContains(t, c.ReadRegion("w", sharding.Whole([]int{4, 6}), make([]byte, 96)), "closed")
}

// Every distinct shard has one writer among the processes that hold it, all
// agree on who, and replicas share the work.
func TestAssign(t *testing.T) {
	m, err := mesh.New([]mesh.Axis{{Name: "replicate", Size: 4}, {Name: "shard", Size: 8}}, nil)
	require.NoError(t, err)
	var devices []mesh.DeviceInfo
	for i := range 32 {
		devices = append(devices, mesh.DeviceInfo{ID: i, Process: i / 4})
	}
	m, err = m.WithDevices(devices)
	require.NoError(t, err)
	var tensors []Tensor
	for i := range 24 {
		tensors = append(tensors, Tensor{fmt.Sprint("w", i), dtype.F32, []int{64 * (1 + i%3), 16}, sharding.P("shard")})
	}
	tensors = append(tensors, Tensor{"step", dtype.S32, nil, sharding.P()})
	snap := snapshot(1, 1, m, tensors)
	type key struct{ tensor, start int }
	writer := map[key]int{}
	load := make([]int64, 8)
	for rank := range 8 {
		parts, err := assign(&snap, rank, 8)
		require.NoError(t, err)
		for _, p := range parts {
			k := key{p.tensor, 0}
			if len(p.region.Offset) > 0 {
				k.start = p.region.Offset[0]
			}
			_, twice := writer[k]
			require.False(t, twice)
			writer[k] = rank
			require.Equal(t, rank, p.position/4, "the writer has it")
			load[rank] += p.bytes
		}
	}
	require.Len(t, writer, 24*8+1)
	require.LessOrEqual(t, float64(slices.Max(load)), 1.15*float64(slices.Min(load)), "%v", load)

	_, err = assign(&snap, 0, 4)
	require.ErrorContains(t, err, "belongs to process 4; there are 4")
	bare, err := mesh.New(m.Axes(), nil)
	require.NoError(t, err)
	snap.Mesh = bare
	_, err = assign(&snap, 0, 8)
	require.ErrorContains(t, err, "WithDevices")
	_, err = assign(&snap, 0, 1)
	require.NoError(t, err, "a single process needs no places")
}
