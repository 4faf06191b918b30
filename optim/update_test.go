package optim_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/optim"
)

func ptr(x float64) *float64 { return &x }

var smallParams = []optim.Param{{Name: "embed", Shape: []int{4, 3}}, {Name: "layers.w", Shape: []int{2, 3, 5}}, {Name: "layers.norm", Shape: []int{2, 3}}}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// initial and gradients give the arrays of testdata/optax_adamw.py, by parameter.
func initial(params []optim.Param) [][]float32 {
	return fill(params, func(i, k int) float64 { return math.Sin(float64((k + 1) * (i + 1))) })
}

func gradients(params []optim.Param, step int, scale float64) [][]float32 {
	return fill(params, func(i, k int) float64 { return scale * math.Cos(float64((k+1)*(i+1)+step)) })
}

func fill(params []optim.Param, f func(i, k int) float64) [][]float32 {
	out := make([][]float32, len(params))
	for i, p := range params {
		for k := range elements(p.Shape) {
			out[i] = append(out[i], float32(f(i, k)))
		}
	}
	return out
}

// The update is that of optax, in float64, for every setting there is.
func TestAgainstOptax(t *testing.T) {
	var golden map[string]struct {
		Norms  []float64
		Params map[string][]float64
	}
	data, err := os.ReadFile("testdata/optax_adamw.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &golden))

	constant := func(lr float64) func(*setup) {
		return func(s *setup) { s.cfg.LR, s.sched.WarmupSteps, s.sched.DecayRatio = lr, 0, ptr(0) }
	}
	cases := map[string]struct {
		scale float64
		lr    func(*setup)
		more  func(*setup)
	}{
		"constant":  {1, constant(1e-3), nil},
		"unclipped": {1, constant(1e-2), func(s *setup) { s.maxNorm = 0 }},
		"within":    {0.1, constant(1e-2), func(s *setup) { s.maxNorm = 100 }},
		"beta2 0.999": {1, constant(1e-3), func(s *setup) {
			s.cfg.Beta1, s.cfg.Beta2, s.cfg.Eps = 0.99, 0.999, 1e-6
		}},
		"tiny gradients": {1e-7, constant(1e-3), nil},
		"warm-up":        {1, func(s *setup) { s.cfg.LR, s.steps, s.sched.WarmupSteps = 1e-2, 12, 4 }, nil},
		"groups": {1, constant(1e-2), func(s *setup) {
			s.cfg.ParamGroups = []optim.Group{
				{Pattern: "norm$", LRFactor: ptr(2), WeightDecay: ptr(0), Beta1: ptr(0.8), Beta2: ptr(0.9), Eps: ptr(1e-5)},
				{Pattern: "embed", LR: ptr(0.25e-2), WeightDecay: ptr(0)},
			}
		}},
	}
	require.Len(t, golden, len(cases))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSetup(smallParams...)
			c.lr(&s)
			if c.more != nil {
				c.more(&s)
			}
			r := s.start(t, initial(s.params))
			want := golden[name]
			for n, norm := range want.Norms {
				r.step(n, 0, gradients(s.params, n, c.scale)...)
				require.InEpsilon(t, norm, r.norm, 1e-6)
			}
			for i, p := range s.params {
				got := decode(dtype.F32, r.params[i])
				for k, x := range want.Params[p.Name] {
					require.InDelta(t, x, got[k], 2e-6, "%s[%d]", p.Name, k)
				}
			}
			require.Equal(t, []float64{float64(len(want.Norms))}, decode(dtype.S32, r.state[6]), optim.StepName)
			require.Zero(t, r.skips)
		})
	}
}

// A step whose norm or loss is not finite leaves everything as it was, bit for
// bit, but for the counter; and the following steps are those of a run that
// never saw it, bias correction included.
func TestNonfiniteStepsAreSkipped(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, bad := range map[string]struct {
		loss, grad float32
	}{
		"infinite gradient": {1, inf}, "NaN gradient": {1, nan}, "negative infinite": {1, -inf},
		"NaN loss": {nan, 0.5}, "infinite loss": {inf, 0.5}, "norm overflows": {1, 3e38},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(smallParams...)
			s.loss, s.sched.WarmupSteps, s.sched.DecayRatio = true, 0, ptr(0)
			calm, hit := s.start(t, initial(s.params)), s.start(t, initial(s.params))
			broken := gradients(s.params, 0, 1)
			broken[1][7] = bad.grad
			calm.step(0, 1, gradients(s.params, 0, 1)...)
			hit.step(0, 1, gradients(s.params, 0, 1)...)
			before := [][][]byte{hit.params, hit.state[:7]}
			hit.step(1, bad.loss, broken...)
			require.Equal(t, before, [][][]byte{hit.params, hit.state[:7]})
			require.EqualValues(t, 1, hit.skips)
			hit.step(1, bad.loss, broken...)
			for n := 1; n < 4; n++ {
				calm.step(n, 1, gradients(s.params, n, 1)...)
				hit.step(n, 1, gradients(s.params, n, 1)...)
			}
			require.Equal(t, calm.params, hit.params)
			require.Equal(t, calm.state[:7], hit.state[:7])
			require.EqualValues(t, 2, hit.skips)
			require.NotEqual(t, before[0], hit.params)
		})
	}
}

func TestNonfiniteStepsAreTakenWhenTheRecipeSaysSo(t *testing.T) {
	s := newSetup(smallParams...)
	s.cfg.SkipNonfinite = false
	r := s.start(t, initial(s.params))
	bad := gradients(s.params, 0, 1)
	bad[0][0] = float32(math.NaN())
	r.step(0, 0, bad...)
	require.Zero(t, r.skips)
	require.Equal(t, []float64{1}, decode(dtype.S32, r.state[6]))
	require.True(t, math.IsNaN(decode(dtype.F32, r.params[2])[0]), "the norm is NaN, and so is every update")
}

// The arithmetic of one step in float64, from the formulas in the doc of Update.
type reference struct {
	lr, b1, b2, eps, wd, maxNorm float64
	t                            float64
	m, v                         [][]float64
}

func (r *reference) step(params [][]float64, grads [][]float32, round func(float64) float64) {
	sum := 0.0
	for _, g := range grads {
		for _, x := range g {
			sum += float64(x) * float64(x)
		}
	}
	scale := math.Min(1, r.maxNorm/(math.Sqrt(sum)+1e-6))
	r.t++
	if r.m == nil {
		for _, p := range params {
			r.m, r.v = append(r.m, make([]float64, len(p))), append(r.v, make([]float64, len(p)))
		}
	}
	for i, p := range params {
		for k := range p {
			g := float64(grads[i][k]) * scale
			r.m[i][k] = round(r.b1*r.m[i][k] + (1-r.b1)*g)
			r.v[i][k] = round(r.b2*r.v[i][k] + (1-r.b2)*g*g)
			mh, vh := r.m[i][k]/(1-math.Pow(r.b1, r.t)), r.v[i][k]/(1-math.Pow(r.b2, r.t))
			p[k] = p[k]*(1-r.lr*r.wd) - r.lr*mh/(math.Sqrt(vh)+r.eps)
		}
	}
}

// With bfloat16 moments the arithmetic is that of f32, and only what is stored
// is rounded. Where a moment lies near the middle of two neighbours f32 and
// float64 may round differently: one unit in the last place, 2^-8.
func TestBfloat16State(t *testing.T) {
	s := newSetup(smallParams...)
	s.cfg.StateDType, s.cfg.LR, s.sched.WarmupSteps, s.sched.DecayRatio = "bfloat16", 1e-2, 0, ptr(0)
	r := s.start(t, initial(s.params))
	require.Equal(t, dtype.BF16, r.o.State()[0].DType)
	ref := reference{lr: 1e-2, b1: 0.9, b2: 0.95, eps: 1e-8, wd: 0.1, maxNorm: 1}
	var params [][]float64
	for _, p := range initial(s.params) {
		params = append(params, decode(dtype.F32, encode(dtype.F32, p)))
	}
	bf16 := func(x float64) float64 { return decode(dtype.BF16, encode(dtype.BF16, []float32{float32(x)}))[0] }
	plain := reference{lr: 1e-2, b1: 0.9, b2: 0.95, eps: 1e-8, wd: 0.1, maxNorm: 1}
	exact := make([][]float64, len(params))
	for i := range params {
		exact[i] = append([]float64(nil), params[i]...)
	}
	apart := 0.0
	for n := range 10 {
		r.step(n, 0, gradients(s.params, n, 1)...)
		ref.step(params, gradients(s.params, n, 1), bf16)
		plain.step(exact, gradients(s.params, n, 1), func(x float64) float64 { return x })
		for i := range params {
			got, m := decode(dtype.F32, r.params[i]), decode(dtype.BF16, r.state[i])
			for k := range got {
				require.InDelta(t, params[i][k], got[k], 1e-4, "step %d, parameter %d[%d]", n, i, k)
				require.InDelta(t, ref.m[i][k], m[k], math.Abs(ref.m[i][k])/100+1e-4)
				apart = math.Max(apart, math.Abs(exact[i][k]-got[k]))
			}
		}
	}
	require.Greater(t, apart, 1e-4, "rounding the moments must show")
}

// Parameters in bfloat16 are updated in f32 and rounded.
func TestBfloat16Parameters(t *testing.T) {
	s := newSetup(smallParams...)
	s.dtype, s.cfg.LR, s.sched.WarmupSteps, s.sched.DecayRatio = dtype.BF16, 1e-1, 0, ptr(0)
	r := s.start(t, initial(s.params))
	ref := reference{lr: 1e-1, b1: 0.9, b2: 0.95, eps: 1e-8, wd: 0.1, maxNorm: 1}
	var params [][]float64
	for _, p := range initial(s.params) {
		params = append(params, decode(dtype.BF16, encode(dtype.BF16, p)))
	}
	r.step(0, 0, gradients(s.params, 0, 1)...)
	ref.step(params, gradients(s.params, 0, 1), func(x float64) float64 { return x })
	for i := range params {
		for k, x := range decode(dtype.BF16, r.params[i]) {
			require.InDelta(t, params[i][k], x, math.Abs(params[i][k])/256+1e-6)
		}
	}
}
