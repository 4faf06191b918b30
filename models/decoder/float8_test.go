package decoder

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/pjrt"
)

// matrix is a plain matrix, in which the tests work out what products in 8-bit
// floats are: rows are tokens, or what a parameter is multiplied over.
type matrix struct {
	rows, cols int
	x          []float64
}

func newMatrix(rows int, x []float32) matrix {
	m := matrix{rows, len(x) / rows, make([]float64, len(x))}
	for i, v := range x {
		m.x[i] = float64(v)
	}
	return m
}

func (m matrix) transposed() matrix {
	t := matrix{m.cols, m.rows, make([]float64, len(m.x))}
	for i := range m.rows {
		for j := range m.cols {
			t.x[j*m.rows+i] = m.x[i*m.cols+j]
		}
	}
	return t
}

func (m matrix) times(o matrix) matrix {
	z := matrix{m.rows, o.cols, make([]float64, m.rows*o.cols)}
	for i := range m.rows {
		for k := range m.cols {
			for j := range o.cols {
				z.x[i*o.cols+j] += m.x[i*m.cols+k] * o.x[k*o.cols+j]
			}
		}
	}
	return z
}

func (m matrix) floats() []float32 {
	out := make([]float32, len(m.x))
	for i, v := range m.x {
		out[i] = float32(v)
	}
	return out
}

// format is an 8-bit float: its fraction bits, the exponent of its smallest normal
// number, its largest number.
type format struct {
	fraction, least int
	largest         float32
}

var (
	e4m3 = format{3, -6, 448}
	e5m2 = format{2, -14, 57344}
)

// round rounds to the nearest number of the format, of two to the even one.
func (f format) round(x float64) float64 {
	if x == 0 {
		return 0
	}
	unit := math.Ldexp(1, max(math.Ilogb(x), f.least)-f.fraction)
	x = math.RoundToEven(x/unit) * unit
	return max(-float64(f.largest), min(float64(f.largest), x))
}

// quantized returns what is left of m in 8 bits. by is "row", "column" or "all".
func (m matrix) quantized(f format, by string) matrix {
	q := matrix{m.rows, m.cols, make([]float64, len(m.x))}
	group := func(i int) int {
		return map[string]int{"row": i / m.cols, "column": i % m.cols, "all": 0}[by]
	}
	most := map[int]float32{}
	for i, v := range m.x {
		most[group(i)] = max(most[group(i)], float32(math.Abs(v)))
	}
	for i, v := range m.x {
		scale := f.largest / max(most[group(i)], 1e-12)
		if by != "all" {
			scale = float32(math.Ldexp(1, math.Ilogb(float64(scale))))
		}
		q.x[i] = f.round(float64(float32(v)*scale)) / float64(scale)
	}
	return q
}

// powerOfTwo is quantized with one scale, a power of two.
func (m matrix) powerOfTwo(f format) matrix {
	one := matrix{1, len(m.x), m.x}
	return matrix{m.rows, m.cols, one.quantized(f, "row").x}
}

// wide are numbers of magnitudes that 8-bit floats cannot all hold, with rows of
// zeros and of what is almost zero.
func wide(r *rand.Rand, rows, cols int) []float32 {
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(16)-8)))
		switch i / cols {
		case 1:
			x[i] = 0
		case 2:
			x[i] *= 1e-15
		}
	}
	return x
}

// Products in 8-bit floats and their gradients are, to rounding in f32, those of
// operands that were quantized by the definition of the recipe.
func TestFloat8Products(t *testing.T) {
	const T, I, O = 24, 32, 16
	r := rand.New(rand.NewPCG(5, 6))
	x, w1, w2, g1, g2 := wide(r, T, I), wide(r, I, O), wide(r, I, O), wide(r, T, O), wide(r, T, O)
	data := [][]byte{pjrt.AsBytes(x), pjrt.AsBytes(w1), pjrt.AsBytes(w2), pjrt.AsBytes(g1), pjrt.AsBytes(g2)}
	for _, spec := range []struct {
		einsum  string
		x, w, y []int
	}{
		{"bsd,dhk->bshk", []int{2, 12, I}, []int{I, 2, 8}, []int{2, 12, 2, 8}},
		{"bshk,hkd->bsd", []int{2, 12, 4, 8}, []int{4, 8, O}, []int{2, 12, O}},
		{"bsd,df->bsf", []int{2, 12, I}, []int{I, O}, []int{2, 12, O}},
	} {
		types := []graph.Type{graph.T(dtype.F32, spec.x...), graph.T(dtype.F32, spec.w...), graph.T(dtype.F32, spec.w...), graph.T(dtype.F32, spec.y...), graph.T(dtype.F32, spec.y...)}
		for _, recipe := range []string{RecipeTensorwise, RecipeRowwise, RecipeRowwiseGradHP} {
			for _, viaBF16 := range []bool{false, true} {
				if viaBF16 && len(spec.y) != 3 {
					continue // as the others
				}
				t.Run(fmt.Sprintf("%s %s %v", spec.einsum, recipe, viaBF16), func(t *testing.T) {
					m := &Model{Placement: Single{}, Options: Options{Float8: Float8{Enable: true, Recipe: recipe}, Float8InBF16: viaBF16}}
					got := program(t, types, data, func(b *graph.Builder, in []*graph.Value) []*graph.Value {
						y := m.project(spec.einsum, in[0], weights{"layers.w_gate": in[1], "layers.w_up": in[2]}, "layers.w_gate", "layers.w_up")
						return append(y, graph.VJP(y, in[3:], in[:3])...)
					})
					X, W := newMatrix(T, x), []matrix{newMatrix(I, w1), newMatrix(I, w2)}
					G := []matrix{newMatrix(T, g1), newMatrix(T, g2)}
					dx := make([]float64, T*I)
					for i := range 2 {
						var y, d, dw matrix
						switch recipe {
						case RecipeTensorwise:
							xq, wq, gq := X.quantized(e4m3, "all"), W[i].quantized(e4m3, "all"), G[i].quantized(e5m2, "all")
							y, d, dw = xq.times(wq), gq.times(wq.transposed()), xq.transposed().times(gq)
						case RecipeRowwise:
							y = X.quantized(e4m3, "row").times(W[i].quantized(e4m3, "column"))
							d = G[i].quantized(e4m3, "row").times(W[i].quantized(e4m3, "row").transposed())
							dw = X.quantized(e4m3, "column").transposed().times(G[i].quantized(e4m3, "column"))
						default:
							y = X.quantized(e4m3, "row").times(W[i].quantized(e4m3, "column"))
							d = G[i].quantized(e4m3, "row").times(W[i].powerOfTwo(e4m3).transposed())
							dw = X.transposed().times(G[i])
						}
						requireClose(t, y.floats(), got[i], 1e-6, "product")
						requireClose(t, dw.floats(), got[3+i], 1e-6, "gradient of the matrix")
						for j := range dx {
							dx[j] += d.x[j]
						}
					}
					requireClose(t, matrix{T, I, dx}.floats(), got[2], 1e-6, "gradient of x")
				})
			}
		}
	}
}

// What is not finite stays visible.
func TestFloat8NotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, recipe := range []string{RecipeTensorwise, RecipeRowwise} {
			x := make([]float32, 32)
			for i := range x {
				x[i] = 1
			}
			x[17] = float32(bad)
			m := &Model{Placement: Single{}, Options: Options{Float8: Float8{Enable: true, Recipe: recipe}}}
			types := []graph.Type{graph.T(dtype.F32, 1, 2, 16), graph.T(dtype.F32, 16, 16)}
			got := program(t, types, [][]byte{pjrt.AsBytes(x), normals(rand.New(rand.NewPCG(1, 1)), 256)}, func(b *graph.Builder, in []*graph.Value) []*graph.Value {
				return m.project("bsd,df->bsf", in[0], weights{"layers.w_up": in[1]}, "layers.w_up")
			})[0]
			for _, y := range got[16:] {
				require.False(t, !math.IsNaN(float64(y)) && !math.IsInf(float64(y), 0), "%v, %s: %v", bad, recipe, y)
			}
		}
	}
}

// Dots have the operands' 8-bit types, except where they are computed in bf16.
func TestFloat8OperandTypes(t *testing.T) {
	for recipe, want := range map[string]map[string]int{
		RecipeTensorwise:    {"f8E4M3FN f8E4M3FN": 1, "f8E5M2 f8E4M3FN": 2},
		RecipeRowwise:       {"f8E4M3FN f8E4M3FN": 3},
		RecipeRowwiseGradHP: {"f8E4M3FN f8E4M3FN": 2, "bf16 bf16": 1},
	} {
		for _, viaBF16 := range []bool{false, true} {
			m := &Model{Placement: Single{Compute: dtype.BF16}, Options: Options{Float8: Float8{Enable: true, Recipe: recipe}, Float8InBF16: viaBF16}}
			mod, err := graph.Trace("test", nil, func(b *graph.Builder) error {
				x, w := b.Input("x", graph.T(dtype.BF16, 1, 32, 16)), b.Input("w", graph.T(dtype.F32, 16, 48))
				y := m.project("bsd,df->bsf", x, weights{"layers.w_up": w}, "layers.w_up")
				require.Equal(t, dtype.BF16, y[0].DType())
				for i, g := range graph.VJP(y, []*graph.Value{y[0]}, []*graph.Value{x, w}) {
					b.Output(fmt.Sprint("g", i), g)
				}
				b.Output("y", y[0])
				return nil
			})
			require.NoError(t, err)
			got, dots := map[string]int{}, 0
			for _, line := range strings.Split(mod.StableHLO(), "\n") {
				if !strings.Contains(line, "dot_general") {
					continue
				}
				dots++
				for kind := range want {
					a, b, _ := strings.Cut(kind, " ")
					if strings.Contains(line, "x"+a+">") && strings.Contains(line, "x"+b+">") && (a != b || strings.Count(line, "x"+a+">") >= 2) {
						got[kind]++
					}
				}
			}
			require.Equal(t, 3, dots, "product and two gradients")
			if viaBF16 {
				require.NotContains(t, got, "f8E4M3FN f8E4M3FN")
				continue
			}
			require.Equal(t, want, got, recipe)
			flops := 2.0 * 32 * 16 * 48
			work := mod.Cost().Device[graph.CostContraction]
			require.Equal(t, 3*flops, work.Flops, "a product in 8 bits has as many operations")
			if recipe != RecipeRowwiseGradHP {
				const x, w, y = 32 * 16, 16 * 48, 32 * 48
				require.Equal(t, 2.0*(x+w+y)+4*(x+w+y), work.Bytes, "operands of a byte, results of four")
			}
		}
	}
}
