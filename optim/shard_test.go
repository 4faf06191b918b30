package optim_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/optim"
	"titan/pjrt"
	"titan/pjrt/hlo"
	"titan/sharding"
)

var wideParams = []optim.Param{{Name: "embed", Shape: []int{64, 24}}, {Name: "layers.w", Shape: []int{3, 24, 40}}, {Name: "norm", Shape: []int{24}}}

// The norm is that of the whole gradients whatever the mesh, and so the update
// is the same; replicas agree (the harness checks it).
func TestShardedEqualsOneDevice(t *testing.T) {
	s := newSetup(wideParams...)
	s.cfg.LR, s.sched.WarmupSteps = 1e-2, 0
	one := s.start(t, initial(s.params))
	for name, c := range map[string]struct {
		axes  []mesh.Axis
		specs []sharding.Spec
	}{
		"fsdp 8":                  {[]mesh.Axis{{Name: "s", Size: 8}}, []sharding.Spec{sharding.P("s"), sharding.P(nil, "s"), sharding.P("s")}},
		"replicate 2 x shard 4":   {[]mesh.Axis{{Name: "r", Size: 2}, {Name: "s", Size: 4}}, []sharding.Spec{sharding.P("s"), sharding.P(nil, nil, "s"), sharding.P()}},
		"two axes, one dimension": {[]mesh.Axis{{Name: "r", Size: 2}, {Name: "s", Size: 4}}, []sharding.Spec{sharding.P([]string{"r", "s"}), sharding.P(nil, "r", "s"), sharding.P("r")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			m, err := mesh.New(c.axes, nil)
			require.NoError(t, err)
			s.mesh, s.specs = m, c.specs
			many, single := s.start(t, initial(s.params)), *one
			for n := range 4 {
				g := gradients(s.params, n, 1)
				single.step(n, 0, g...)
				many.step(n, 0, g...)
				require.InEpsilon(t, single.norm, many.norm, 1e-6)
			}
			for i := range s.params {
				a, b := decode(dtype.F32, single.params[i]), decode(dtype.F32, many.params[i])
				require.InDeltaSlice(t, a, b, 1e-6)
			}
			broken := gradients(s.params, 4, 1)
			broken[1][len(broken[1])-1] = float32(math.NaN()) // on one device only
			before := many.params
			many.step(4, 0, broken...)
			require.Equal(t, before, many.params)
			require.EqualValues(t, 1, many.skips)
		})
	}
}

// The sum of squares does not lose its small terms: a plain running sum in f32
// of as many would lose nearly all of them.
func TestNormOfManyElements(t *testing.T) {
	const n = 1 << 21
	s := newSetup(optim.Param{Name: "w", Shape: []int{n}})
	s.sched.WarmupSteps = 0
	g := make([]float32, n)
	for i := range g {
		g[i] = 0.1
	}
	g[0] = 1e3
	r := s.start(t, [][]float32{make([]float32, n)})
	r.step(0, 0, g)
	x := float64(float32(0.1))
	require.InEpsilon(t, math.Sqrt(1e6+(n-1)*x*x), float64(r.norm), 1e-6)
}

// big lists the instructions of the entry computation that write an array of at
// least n elements, by opcode.
func big(m *hlo.Module, n int) map[string]int {
	out := map[string]int{}
	for _, i := range m.Entry.Order() {
		if i.Opcode == "parameter" || i.Opcode == "tuple" || strings.HasPrefix(i.Opcode, "get-tuple-element") {
			continue
		}
		i.Shape.Leaves(func(s hlo.Shape) {
			if elements(s.Dims) >= n {
				out[i.Opcode]++
			}
		})
	}
	return out
}

// Compiled for the CPU the update is three loops a parameter, in place: no
// copies of the moments, no clipped gradients in memory. The norms of the
// parameters are reduced across devices together.
func TestCompiledForCPU(t *testing.T) {
	s := newSetup(optim.Param{Name: "embed", Shape: []int{2048, 256}}, optim.Param{Name: "layers.w", Shape: []int{4, 256, 768}})
	compile := func() *hlo.Module {
		prog, err := s.trace(t, s.optimizer(t))
		require.NoError(t, err)
		x := xlatest.Compile(t, xlatest.CPU(t), prog.StableHLO(), s.size())
		stats, err := x.MemoryStats()
		require.NoError(t, err)
		require.Less(t, stats.Temp, int64(64<<10), "nothing of a parameter's size is materialised")
		m, err := x.OptimizedHLO()
		require.NoError(t, err)
		return m
	}
	require.Equal(t, map[string]int{"fusion": 6}, big(compile(), 1000))

	var err error
	s.mesh, err = mesh.New([]mesh.Axis{{Name: "r", Size: 2}, {Name: "s", Size: 4}}, nil)
	require.NoError(t, err)
	s.specs = []sharding.Spec{sharding.P("s"), sharding.P(nil, "s")}
	m := compile()
	require.Equal(t, map[string]int{"fusion": 6}, big(m, 1000))
	require.Len(t, m.Collectives(), 1, "one all-reduce for all sums of squares")
	require.Equal(t, "all-reduce", m.Collectives()[0].Kind())
}

// Compiled for a TPU, without MomentsFirst, it is one loop a parameter, which
// writes three arrays.
func TestCompiledForTPU(t *testing.T) {
	topo, err := xlatest.TPU(t).NewTopology("v5e:2x4", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, topo.Close()) }()
	s := newSetup(optim.Param{Name: "embed", Shape: []int{2048, 256}}, optim.Param{Name: "layers.w", Shape: []int{4, 256, 768}})
	s.fused = true
	prog, err := s.trace(t, s.optimizer(t))
	require.NoError(t, err)
	x, err := topo.Compile([]byte(prog.StableHLO()), pjrt.CompileOptions{Shardy: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	m, err := x.OptimizedHLO()
	require.NoError(t, err)
	loops := 0
	for _, i := range m.Entry.Order() {
		if i.Opcode == "fusion" && len(i.Shape.Elements) == 3 {
			loops++
		}
	}
	require.Equal(t, 2, loops, "%s", m.Text())
}
