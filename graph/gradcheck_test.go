package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/internal/xlatest"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// form is one way to write a function.
type form = func(b *Builder, x []*Value) []*Value

// checked is a function whose values and gradients are checked. Many are put
// into one program, since compiling costs far more than running.
type checked struct {
	name string
	// in are the arguments; float64 ones are differentiated.
	in []array
	f  form
	// want computes the results in plain Go, where there is a simple way.
	want func(x []array) []array
	// same are other formulations, which must have the same values and gradients
	// to rounding.
	same []form
	// onlyValues spares the gradients of same.
	onlyValues bool
	// tol is the relative tolerance of gradients, 1e-6 unless given, and of
	// values, a thousandth of that.
	tol float64
	// zero: the gradient is zero by definition, whatever differences say.
	zero bool
}

// fn makes a checked function of one result.
func fn(name string, f func(x []*Value) *Value, in ...array) checked {
	return checked{name: name, in: in, f: func(_ *Builder, x []*Value) []*Value { return []*Value{f(x)} }}
}

// is adds the expected result, computed element by element from the arguments,
// which must have the result's shape.
func (c checked) is(f func(x ...float64) float64) checked {
	c.want = func(in []array) []array {
		out := array{in[0].Type, make([]float64, len(in[0].data))}
		for i := range out.data {
			xs := make([]float64, len(in))
			for k := range in {
				xs[k] = in[k].data[i]
			}
			out.data[i] = f(xs...)
		}
		return []array{out}
	}
	return c
}

// equals adds the expected result.
func (c checked) equals(out ...array) checked {
	c.want = func([]array) []array { return out }
	return c
}

// within sets the tolerance.
func (c checked) within(tol float64) checked {
	c.tol = tol
	return c
}

// checkAll puts all cases into one program, for as many devices as m has, and
// checks each in a subtest: values against want, and gradients, of the results
// times random cotangents, against central differences along random directions
// and along every element of small arguments.
func checkAll(t *testing.T, m *mesh.Mesh, cases []checked) {
	t.Helper()
	s, err := prepare(t, m, cases)
	require.NoError(t, err)
	defer s.close()
	s.measure(t)
	for _, c := range s.cases {
		t.Run(c.name, func(t *testing.T) { require.NoError(t, c.check()) })
	}
}

// prepare traces and compiles the program of the cases.
func prepare(t testing.TB, m *mesh.Mesh, cases []checked) (*session, error) {
	s := &session{cases: make([]*caseRun, len(cases)), r: rand.New(rand.NewPCG(7, 7))}
	mod, err := Trace("test", m, func(b *Builder) error {
		var all [][]*Value
		for i := range cases {
			s.cases[i] = &caseRun{checked: cases[i], first: s.inputs}
			s.inputs += len(cases[i].in)
			var xs []*Value
			for _, a := range cases[i].in {
				xs = append(xs, b.Input(cases[i].name, a.Type, copies(b)))
			}
			all = append(all, xs)
		}
		for i, c := range s.cases {
			c.record(b, s, all[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.p = &program{mod, nil, 1}
	if m != nil {
		s.p.n = m.Size()
	}
	s.p.exe, err = xlatest.CPU(t).Compile([]byte(mod.StableHLO()), pjrt.CompileOptions{Partitions: s.p.n, Shardy: true, Flags: xlatest.LittleEffort()})
	return s, err
}

func (s *session) close() { _ = s.p.exe.Close() }

// session runs one program on many arguments.
type session struct {
	p       *program
	r       *rand.Rand
	cases   []*caseRun
	inputs  int
	outputs int
}

// caseRun is a case in a program, and what was measured.
type caseRun struct {
	checked
	first  int // of its inputs
	loss   int // output that is Σ results·cotangents
	form   formulation
	others []*formulation // of same
	probes []probe
}

// formulation is one way to write a case: its outputs in the program, and what
// they were.
type formulation struct {
	values []int
	grads  []int // output, or -1, for each argument
	got    []array
	grad   []array
}

// probe is a step of the arguments, and the difference quotient along it.
type probe struct {
	what     string
	step     [][]float64
	quotient float64
}

// record writes the function, Σ results·cotangents, and its gradient, and the
// same for the other formulation.
func (c *caseRun) record(b *Builder, s *session, xs []*Value) {
	outs := c.f(b, xs)
	cts := make([]*Value, len(outs))
	loss := b.Scalar(F64, 0)
	for i, o := range outs {
		if !o.DType().IsFloat() {
			continue
		}
		ct := array{o.Type(), nil}
		for range ct.Elements() {
			ct.data = append(ct.data, s.r.NormFloat64())
		}
		cts[i] = b.Const(ct.Type, ct.encode(ct.DType))
		loss = Add(loss, Sum(Mul(Convert(o, F64), Convert(cts[i], F64))))
	}
	c.loss = s.output(b, c.name, loss)
	c.form.record(b, c, s, xs, outs, cts, false)
	for _, f := range c.same {
		o := &formulation{}
		o.record(b, c, s, xs, f(b, xs), cts, c.onlyValues)
		c.others = append(c.others, o)
	}
}

// copies says that every device holds all of an input or output.
func copies(b *Builder) PortOption {
	if b.Mesh() == nil {
		return nil
	}
	return Sharded(sharding.P())
}

func (s *session) output(b *Builder, name string, v *Value) int {
	b.Output(name, v, copies(b))
	s.outputs++
	return s.outputs - 1
}

func (f *formulation) record(b *Builder, c *caseRun, s *session, xs, outs, cts []*Value, onlyValues bool) {
	for _, o := range outs {
		f.values = append(f.values, s.output(b, c.name, o))
	}
	var wrt []*Value
	var at []int
	for i, x := range xs {
		f.grads = append(f.grads, -1)
		if x.DType() == F64 {
			wrt, at = append(wrt, x), append(at, i)
		}
	}
	if onlyValues || len(wrt) == 0 || !slices.ContainsFunc(cts, func(ct *Value) bool { return ct != nil }) {
		return
	}
	for i, g := range VJP(outs, cts, wrt) {
		f.grads[at[i]] = s.output(b, c.name, g)
	}
}

// read takes the formulation's results from the program's.
func (f *formulation) read(outs []array) {
	for _, v := range f.values {
		f.got = append(f.got, outs[v])
	}
	f.grad = make([]array, len(f.grads))
	for i, g := range f.grads {
		if g >= 0 {
			f.grad[i] = outs[g]
		}
	}
}

const directions, smallArgument = 3, 40

// measure runs the program at the cases' arguments and at steps from them; one
// run serves a step of every case.
func (s *session) measure(t testing.TB) {
	t.Helper()
	base := make([]array, s.inputs)
	for _, c := range s.cases {
		copy(base[c.first:], c.in)
	}
	outs := s.p.run(t, base...)
	probes := 0
	for _, c := range s.cases {
		c.form.read(outs)
		for _, o := range c.others {
			o.read(outs)
		}
		c.plan(s.r)
		probes = max(probes, len(c.probes))
	}
	for k := range probes {
		for _, q := range quotient {
			in := append([]array(nil), base...)
			for _, c := range s.cases {
				if k < len(c.probes) {
					c.probes[k].apply(in[c.first:], q.step)
				}
			}
			for i, loss := range s.losses(t, in) {
				if c := s.cases[i]; k < len(c.probes) {
					c.probes[k].quotient += loss * q.weight
				}
			}
		}
	}
}

// quotient is the central difference quotient of fourth order.
const h = 1e-4

var quotient = []struct{ step, weight float64 }{
	{h, 8 / (12 * h)}, {-h, -8 / (12 * h)}, {2 * h, -1 / (12 * h)}, {-2 * h, 1 / (12 * h)},
}

func (p probe) apply(in []array, h float64) {
	for i, step := range p.step {
		if step == nil {
			continue
		}
		moved := append([]float64(nil), in[i].data...)
		for e, d := range step {
			moved[e] += h * d
		}
		in[i].data = moved
	}
}

// plan chooses the steps.
func (c *caseRun) plan(r *rand.Rand) {
	wanted := false
	for _, g := range c.form.grads {
		wanted = wanted || g >= 0
	}
	if !wanted {
		return
	}
	for d := range directions {
		p := probe{what: fmt.Sprintf("direction %d", d), step: make([][]float64, len(c.in))}
		for i, a := range c.in {
			for range a.data {
				if c.form.grads[i] >= 0 {
					p.step[i] = append(p.step[i], r.NormFloat64())
				}
			}
		}
		c.probes = append(c.probes, p)
	}
	for i, a := range c.in {
		if c.form.grads[i] < 0 || len(a.data) > smallArgument {
			continue
		}
		for e := range a.data {
			p := probe{what: fmt.Sprintf("element %d of argument %d", e, i), step: make([][]float64, len(c.in))}
			p.step[i] = make([]float64, len(a.data))
			p.step[i][e] = 1
			c.probes = append(c.probes, p)
		}
	}
}

// losses runs the program and reads only the cases' losses.
func (s *session) losses(t testing.TB, in []array) []float64 {
	t.Helper()
	bufs := make([][]*pjrt.Buffer, s.p.n)
	defer func() { _ = pjrt.CloseBuffers(bufs...) }()
	for _, a := range in {
		raw := a.encode(a.DType)
		for d := range bufs {
			b, err := s.p.exe.Client().Put(raw, a.DType, a.Shape, s.p.exe.Devices()[d])
			require.NoError(t, err)
			bufs[d] = append(bufs[d], b)
		}
	}
	outs, err := s.p.exe.Run(bufs, pjrt.ExecuteOptions{})
	require.NoError(t, err)
	defer func() { _ = pjrt.CloseBuffers(outs...) }()
	losses := make([]float64, len(s.cases))
	for i, c := range s.cases {
		raw, err := outs[0][c.loss].Bytes()
		require.NoError(t, err)
		losses[i] = decode(T(F64), raw).data[0]
	}
	return losses
}

// check compares what was measured with what is expected.
func (c *caseRun) check() error {
	tol := c.tol
	if tol == 0 {
		tol = 1e-6
	}
	if c.want != nil {
		want := c.want(c.in)
		if len(want) != len(c.form.got) {
			return fmt.Errorf("%d results, want %d", len(c.form.got), len(want))
		}
		for i, w := range want {
			if err := differ(w, c.form.got[i], tol/1000); err != nil {
				return fmt.Errorf("result %d: %w", i, err)
			}
		}
	}
	for k, o := range c.others {
		if len(o.got) != len(c.form.got) {
			return fmt.Errorf("formulation %d has %d results, the first has %d", k, len(o.got), len(c.form.got))
		}
		for i, got := range o.got {
			if err := differ(c.form.got[i], got, tol/1000); err != nil {
				return fmt.Errorf("formulation %d against the first, result %d: %w", k, i, err)
			}
		}
		for i, got := range o.grad {
			if o.grads[i] < 0 {
				continue
			}
			if err := differ(c.form.grad[i], got, tol/1000); err != nil {
				return fmt.Errorf("formulation %d against the first, gradient of argument %d: %w", k, i, err)
			}
		}
	}
	for _, p := range c.probes {
		exact, scale := 0.0, 1.0
		for i, step := range p.step {
			for e, d := range step {
				exact += d * c.form.grad[i].data[e]
				scale += math.Abs(d * c.form.grad[i].data[e])
			}
		}
		quotient := p.quotient
		if c.zero {
			quotient = 0
		}
		if !(math.Abs(exact-quotient) <= tol*scale) {
			return wrongGradient{fmt.Sprintf("gradient along %s is %v, differences give %v", p.what, exact, quotient)}
		}
	}
	return nil
}

// wrongGradient is a disagreement with differences.
type wrongGradient struct{ msg string }

func (e wrongGradient) Error() string { return e.msg }
