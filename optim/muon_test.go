package optim_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/optim"
)

// muonParams are those of testdata/optax_muon.py: wide and tall matrices, sides
// of two dimensions, stacks of one and two.
var muonParams = []optim.Param{
	{Name: "embed", Shape: []int{7, 4}, Axes: []string{"vocab", "embed"}},
	{Name: "layers.wq", Shape: []int{3, 4, 2, 3}, Axes: []string{"layer", "embed", "heads", "head_dim"}},
	{Name: "layers.wo", Shape: []int{3, 2, 3, 4}, Axes: []string{"layer", "heads", "head_dim", "embed"}},
	{Name: "layers.experts.w_up", Shape: []int{2, 3, 4, 5}, Axes: []string{"layer", "expert", "embed", "expert_mlp"}},
	{Name: "layers.experts.w_down", Shape: []int{2, 3, 5, 4}, Axes: []string{"layer", "expert", "expert_mlp", "embed"}},
	{Name: "layers.router", Shape: []int{2, 4, 3}, Axes: []string{"layer", "embed", ""}},
	{Name: "layers.norm", Shape: []int{3, 4}, Axes: []string{"layer", "norm"}},
	{Name: "output", Shape: []int{4, 7}, Axes: []string{"embed", "vocab"}},
}

// muonSetup has a constant learning rate and iterates in f32, so that results
// are comparable to rounding.
func muonSetup(lr float64, params ...optim.Param) setup {
	s := newSetup(params...)
	s.cfg.Name, s.cfg.LR, s.cfg.MuonNSDType = optim.Muon, lr, "float32"
	s.sched.WarmupSteps, s.sched.DecayRatio = 0, ptr(0)
	return s
}

// chirps give arrays whose matrices have full rank.
func chirps(params []optim.Param) [][]float32 {
	return fill(params, func(i, k int) float64 { return math.Sin(0.37 * float64((k+1)*(k+1)*(i+1))) })
}

func chirpGradients(params []optim.Param, step int, scale float64) [][]float32 {
	return fill(params, func(i, k int) float64 { return scale * math.Cos(0.37*float64((k+1)*(k+1)*(i+1))+float64(step)) })
}

func TestMuonAgainstOptax(t *testing.T) {
	var golden map[string]map[string][]float64
	data, err := os.ReadFile("testdata/optax_muon.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &golden))
	cases := map[string]struct {
		steps  int
		scale  float64
		change func(*setup)
	}{
		"plain":    {8, 1, func(s *setup) { s.cfg.MuonNesterov = false }},
		"nesterov": {8, 1, func(s *setup) {}},
		"original": {8, 1, func(s *setup) {
			s.cfg.LR, s.cfg.MuonLR, s.cfg.WeightDecay, s.cfg.MuonMomentum, s.cfg.MuonAdjustLR = 1e-3, ptr(2e-2), 0.01, 0.9, "original"
		}},
		"seven iterations": {4, 3, func(s *setup) {
			s.cfg.WeightDecay, s.cfg.MuonLR, s.cfg.MuonNSSteps, s.maxNorm = 0, ptr(5e-3), 7, 0
		}},
	}
	require.Len(t, golden, len(cases))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := muonSetup(1e-2, muonParams...)
			c.change(&s)
			r := s.start(t, chirps(s.params))
			for n := range c.steps {
				r.step(n, 0, chirpGradients(s.params, n, c.scale)...)
			}
			for i, p := range s.params {
				require.Len(t, golden[name][p.Name], elements(p.Shape))
				require.InDeltaSlice(t, golden[name][p.Name], decode(dtype.F32, r.params[i]), 2e-6, p.Name)
			}
		})
	}
}

// matrix is a float64 matrix by rows.
type matrix [][]float64

func newMatrix(rows, cols int, data []float64) matrix {
	m := make(matrix, rows)
	for i := range m {
		m[i] = slices.Clone(data[i*cols : (i+1)*cols])
	}
	return m
}

func (a matrix) transposed() matrix {
	t := make(matrix, len(a[0]))
	for j := range t {
		for i := range a {
			t[j] = append(t[j], a[i][j])
		}
	}
	return t
}

func (a matrix) times(b matrix) matrix {
	c := make(matrix, len(a))
	for i := range a {
		c[i] = make([]float64, len(b[0]))
		for k, x := range a[i] {
			for j, y := range b[k] {
				c[i][j] += x * y
			}
		}
	}
	return c
}

// plus is x·a + y·b.
func (a matrix) plus(x, y float64, b matrix) matrix {
	c := make(matrix, len(a))
	for i := range a {
		for j := range a[i] {
			c[i] = append(c[i], x*a[i][j]+y*b[i][j])
		}
	}
	return c
}

// eigenvalues are those of a symmetric matrix, by Jacobi's rotations.
func (a matrix) eigenvalues() []float64 {
	n := len(a)
	for range 30 {
		for p := range n {
			for q := p + 1; q < n; q++ {
				if a[p][q] == 0 {
					continue
				}
				theta := 0.5 * math.Atan2(2*a[p][q], a[q][q]-a[p][p])
				c, s := math.Cos(theta), math.Sin(theta)
				for k := range n {
					a[k][p], a[k][q] = c*a[k][p]-s*a[k][q], s*a[k][p]+c*a[k][q]
				}
				for k := range n {
					a[p][k], a[q][k] = c*a[p][k]-s*a[q][k], s*a[p][k]+c*a[q][k]
				}
			}
		}
	}
	var out []float64
	for i := range n {
		out = append(out, a[i][i])
	}
	return out
}

// newtonSchulz is written as the doc of Update has it, in float64.
func newtonSchulz(x matrix, steps int, eps float64) matrix {
	if len(x) > len(x[0]) {
		return newtonSchulz(x.transposed(), steps, eps).transposed()
	}
	sum := 0.0
	for _, row := range x {
		for _, v := range row {
			sum += v * v
		}
	}
	x = x.plus(1/math.Max(math.Sqrt(sum), eps), 0, x)
	for range steps {
		a := x.times(x.transposed())
		x = x.plus(3.4445, 1, a.plus(-4.7750, 2.0315, a.times(a)).times(x))
	}
	return x
}

// sides are the rows, columns and number of a parameter's matrices, as
// testdata/optax_muon.py says them.
func sides(p optim.Param) (rows, cols, count int) {
	switch p.Name {
	case "layers.wq":
		return p.Shape[1], p.Shape[2] * p.Shape[3], p.Shape[0]
	case "layers.wo":
		return p.Shape[1] * p.Shape[2], p.Shape[3], p.Shape[0]
	}
	n := len(p.Shape)
	return p.Shape[n-2], p.Shape[n-1], elements(p.Shape[:n-2])
}

// The state is rounded to bfloat16 only where it is stored; and a matrix whose
// update is below muon_eps moves by less.
func TestMuonAgainstReference(t *testing.T) {
	params := muonParams[1:4]
	for name, c := range map[string]struct {
		state  string
		scale  float64
		tol    float64
		moment float64
	}{"float32": {"float32", 1, 2e-6, 1e-7}, "bfloat16": {"bfloat16", 1, 3e-4, 1.0 / 256}, "tiny": {"float32", 1e-8, 2e-6, 1e-15}} {
		t.Run(name, func(t *testing.T) {
			s := muonSetup(1e-2, params...)
			s.cfg.StateDType, s.maxNorm = c.state, 0
			r := s.start(t, chirps(s.params))
			round := func(x float64) float64 { return x }
			d := r.o.State()[0].DType
			if c.state == "bfloat16" {
				require.Equal(t, dtype.BF16, d)
				round = func(x float64) float64 { return decode(d, encode(d, []float32{float32(x)}))[0] }
			}
			require.Len(t, r.o.State(), len(params)+2, "no second moments")
			ps, ms := make([][]float64, len(params)), make([][]float64, len(params))
			for i, x := range chirps(s.params) {
				ps[i], ms[i] = decode(dtype.F32, encode(dtype.F32, x)), make([]float64, len(x))
			}
			exact := 0.0
			for n := range 4 {
				grads := chirpGradients(s.params, n, c.scale)
				r.step(n, 0, grads...)
				for i, p := range params {
					u := make([]float64, len(ms[i]))
					for k, g := range grads[i] {
						m := 0.95*ms[i][k] + 0.05*float64(g)
						ms[i][k] = round(m)
						exact = math.Max(exact, math.Abs(m-ms[i][k]))
						u[k] = 0.95*ms[i][k] + 0.05*float64(g)
					}
					rows, cols, count := sides(p)
					adjust := 0.2 * math.Sqrt(float64(max(rows, cols)))
					for l := range count {
						at := l * rows * cols
						x := newtonSchulz(newMatrix(rows, cols, u[at:at+rows*cols]), 5, 1e-7)
						for k := range rows * cols {
							ps[i][at+k] = ps[i][at+k]*(1-1e-2*0.1) - 1e-2*adjust*x[k/cols][k%cols]
						}
					}
					require.InDeltaSlice(t, ps[i], decode(dtype.F32, r.params[i]), c.tol, "step %d, %s", n, p.Name)
					require.InDeltaSlice(t, ms[i], decode(d, r.state[i]), c.moment, "step %d, %s", n, p.Name)
				}
			}
			require.Equal(t, c.state == "bfloat16", exact > 1e-5)
		})
	}
}

// An update has the singular vectors of the momentum and singular values within
// the band that Jordan gives, whatever theirs were, as long as the condition is
// not beyond what five iterations undo; in bf16 it is a little wider.
func TestMuonIsOrthogonal(t *testing.T) {
	p := optim.Param{Name: "layers.w", Shape: []int{2, 12, 20}, Axes: []string{"layer", "embed", "mlp"}}
	for name, c := range map[string]struct {
		dtype    string
		lo, hi   float64
		symmetry float64
	}{"float32": {"float32", 0.67, 1.21, 1e-4}, "bfloat16": {"bfloat16", 0.6, 1.3, 0.05}} {
		t.Run(name, func(t *testing.T) {
			s := muonSetup(1, p)
			s.cfg.WeightDecay, s.cfg.MuonAdjustLR, s.cfg.MuonNSDType = 0, "original", c.dtype
			r := s.start(t, [][]float32{make([]float32, elements(p.Shape))})
			g := chirpGradients(s.params, 0, 1)
			for k := range g[0] { // rows of very different size
				g[0][k] *= float32(math.Pow(10, -float64(k/20%12)/8))
			}
			r.step(0, 0, g...)
			got := decode(dtype.F32, r.params[0])
			for l := range 2 {
				size := 12 * 20
				grad := newMatrix(12, 20, decode(dtype.F32, encode(dtype.F32, g[0]))[l*size:])
				x := newMatrix(12, 20, got[l*size:])
				x = x.plus(-1/math.Sqrt(20.0/12), 0, x)
				spread := grad.times(grad.transposed()).eigenvalues()
				require.Greater(t, math.Sqrt(slices.Max(spread)/slices.Min(spread)), 10.0, "the gradient is far from orthogonal")
				for _, v := range x.times(x.transposed()).eigenvalues() {
					require.Greater(t, math.Sqrt(v), c.lo)
					require.Less(t, math.Sqrt(v), c.hi)
				}
				sym := x.times(grad.transposed()) // U f(S) S Uᵀ
				scale := math.Sqrt(slices.Max(spread))
				for i := range sym {
					for j := range i {
						require.InDelta(t, sym[i][j], sym[j][i], c.symmetry*scale)
					}
				}
			}
		})
	}
}

// A skipped step leaves momenta and matrices as they were, too.
func TestMuonSkipsNonfiniteSteps(t *testing.T) {
	s := muonSetup(1e-2, muonParams[:3]...)
	s.loss = true
	r := s.start(t, chirps(s.params))
	r.step(0, 1, chirpGradients(s.params, 0, 1)...)
	params, state := r.params, r.state
	bad := chirpGradients(s.params, 1, 1)
	bad[1][3] = float32(math.NaN())
	r.step(1, 1, bad...)
	r.step(1, float32(math.Inf(1)), chirpGradients(s.params, 1, 1)...)
	require.Equal(t, params, r.params)
	require.Equal(t, state[:len(state)-1], r.state[:len(state)-1])
	require.EqualValues(t, 2, r.skips)
	r.step(1, 1, chirpGradients(s.params, 1, 1)...)
	for i := range params {
		require.NotEqual(t, params[i], r.params[i])
	}
}

// A matrix without gradient so far stays but for its decay; the others move.
func TestMuonOfZeroGradient(t *testing.T) {
	s := muonSetup(1e-2, muonParams[3])
	r := s.start(t, chirps(s.params))
	g := chirpGradients(s.params, 0, 1)
	for k := range 20 { // the first expert of the first layer
		g[0][k] = 0
	}
	before := decode(dtype.F32, r.params[0])
	r.step(0, 0, g...)
	after := decode(dtype.F32, r.params[0])
	for k := range after {
		if decayed := before[k] * (1 - 1e-2*0.1); k < 20 {
			require.InDelta(t, decayed, after[k], 1e-7)
		} else {
			require.Greater(t, math.Abs(decayed-after[k]), 1e-6, "%d", k)
		}
	}
}
