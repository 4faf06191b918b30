package optim_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/optim"
	"titan/pjrt"
	"titan/sharding"
)

// setup is an optimizer over a few parameters, as a program of one update.
type setup struct {
	cfg     optim.Config
	sched   optim.Schedule
	steps   int
	maxNorm float64
	params  []optim.Param
	specs   []sharding.Spec // how each parameter lies on mesh; nil: whole
	mesh    *mesh.Mesh
	dtype   dtype.DType // of the parameters
	loss    bool        // the program takes a loss as well
	fused   bool        // written as for a TPU
	silent  bool        // Update is not told the specs
	split   *float64    // flops a byte costs, for Muon
}

func newSetup(params ...optim.Param) setup {
	return setup{cfg: optim.Defaults(), sched: optim.DefaultSchedule(), steps: 1000, maxNorm: 1, params: params, dtype: dtype.F32}
}

func (s setup) optimizer(t testing.TB) *optim.Optimizer {
	t.Helper()
	o, err := optim.New(s.cfg, s.sched, s.steps, s.maxNorm, s.params)
	require.NoError(t, err)
	if s.split != nil {
		optim.SetFlopsPerByte(o, *s.split)
	}
	return o
}

func (s setup) spec(i int) sharding.Spec {
	if s.specs == nil {
		return sharding.P()
	}
	return s.specs[i]
}

func (s setup) size() int {
	if s.mesh == nil {
		return 1
	}
	return s.mesh.Size()
}

// trace gives the program: lr, parameters, gradients, state (and loss) in;
// parameters, state, norm, skipped out.
func (s setup) trace(t testing.TB, o *optim.Optimizer) (*graph.Module, error) {
	t.Helper()
	port := func(spec sharding.Spec, more ...graph.PortOption) []graph.PortOption {
		if s.mesh == nil {
			return more
		}
		return append(more, graph.Sharded(spec))
	}
	return graph.Trace("update", s.mesh, func(b *graph.Builder) error {
		in := optim.Inputs{MomentsFirst: !s.fused, LR: b.Input("lr", o.LRType(), port(sharding.P())...)}
		for i, p := range s.params {
			in.Params = append(in.Params, b.Input(p.Name, graph.T(s.dtype, p.Shape...), port(s.spec(i), graph.Donated())...))
		}
		for i, p := range s.params {
			in.Grads = append(in.Grads, b.Input("grad."+p.Name, graph.T(dtype.F32, p.Shape...), port(s.spec(i))...))
		}
		if s.mesh != nil && !s.silent {
			in.Specs = s.specs
		}
		specs := make([]sharding.Spec, len(o.State()))
		for i, v := range o.State() {
			if v.Param >= 0 {
				specs[i] = s.spec(v.Param)
			}
			in.State = append(in.State, b.Input(v.Name, graph.T(v.DType, v.Shape...), port(specs[i], graph.Donated())...))
		}
		if s.loss {
			in.Loss = b.Input("loss", graph.T(dtype.F32), port(sharding.P())...)
		}
		r := o.Update(b, in)
		for i, p := range s.params {
			b.Output(p.Name, r.Params[i], port(s.spec(i), graph.Into(in.Params[i]))...)
		}
		for i, v := range o.State() {
			b.Output(v.Name, r.State[i], port(specs[i], graph.Into(in.State[i]))...)
		}
		b.Output("norm", r.GradNorm, port(sharding.P())...)
		b.Output("skipped", r.Skipped, port(sharding.P())...)
		return nil
	})
}

// run is a training run on fixed gradients.
type run struct {
	setup
	*testing.T
	o      *optim.Optimizer
	exe    *pjrt.LoadedExecutable
	params [][]byte
	state  [][]byte
	norm   float32
	skips  int32
}

func (s setup) start(t *testing.T, params [][]float32) *run {
	t.Helper()
	r := &run{setup: s, T: t, o: s.optimizer(t)}
	prog, err := s.trace(t, r.o)
	require.NoError(t, err)
	r.exe = xlatest.Compile(t, xlatest.CPU(t), prog.StableHLO(), s.size())
	for _, p := range params {
		r.params = append(r.params, encode(s.dtype, p))
	}
	for _, v := range r.o.State() {
		r.state = append(r.state, make([]byte, graph.T(v.DType, v.Shape...).Bytes()))
	}
	return r
}

func encode(d dtype.DType, x []float32) []byte {
	var out []byte
	for _, v := range x {
		out = dtype.AppendFloat(out, d, float64(v))
	}
	return out
}

func decode(d dtype.DType, data []byte) []float64 {
	out := make([]float64, len(data)/d.Size())
	for i := range out {
		out[i] = dtype.Float(d, data, i)
	}
	return out
}

// step runs the update number n.
func (r *run) step(n int, loss float32, grads ...[]float32) {
	r.Helper()
	args := make([][]xlatest.Array, r.size())
	add := func(d dtype.DType, shape []int, spec sharding.Spec, data []byte) {
		shards := [][]byte{data}
		local := shape
		if r.mesh != nil {
			l, err := sharding.NewLayout(r.mesh, spec, shape)
			require.NoError(r, err)
			shards, err = l.Split(data, d.Size(), nil)
			require.NoError(r, err)
			local = l.Local()
		}
		for i := range args {
			args[i] = append(args[i], xlatest.Array{DType: d, Dims: local, Data: shards[i]})
		}
	}
	rates := r.o.Rates(n)
	add(dtype.F32, []int{len(rates)}, sharding.P(), pjrt.AsBytes(rates))
	for i, p := range r.setup.params {
		add(r.dtype, p.Shape, r.spec(i), r.params[i])
	}
	for i, p := range r.setup.params {
		add(dtype.F32, p.Shape, r.spec(i), pjrt.AsBytes(grads[i]))
	}
	specOf := func(v optim.StateVar) sharding.Spec {
		if v.Param < 0 {
			return sharding.P()
		}
		return r.spec(v.Param)
	}
	for i, v := range r.o.State() {
		add(v.DType, v.Shape, specOf(v), r.state[i])
	}
	if r.loss {
		add(dtype.F32, []int{}, sharding.P(), pjrt.AsBytes([]float32{loss}))
	}
	outs := xlatest.RunExecutable(r, r.exe, args)
	k := 0
	take := func(d dtype.DType, shape []int, spec sharding.Spec) []byte {
		shards := make([][]byte, len(outs))
		for i := range outs {
			shards[i] = outs[i][k].Data
		}
		k++
		if r.mesh == nil {
			return shards[0]
		}
		data, err := sharding.Join(shards, d.Size(), shape, spec, r.mesh) // checks that replicas agree
		require.NoError(r, err)
		return data
	}
	r.params, r.state = slices.Clone(r.params), slices.Clone(r.state) // others may hold the old ones
	for i, p := range r.setup.params {
		r.params[i] = take(r.dtype, p.Shape, r.spec(i))
	}
	for i, v := range r.o.State() {
		r.state[i] = take(v.DType, v.Shape, specOf(v))
	}
	r.norm = float32(decode(dtype.F32, take(dtype.F32, nil, sharding.P()))[0])
	r.skips = int32(decode(dtype.S32, take(dtype.S32, nil, sharding.P()))[0])
}
