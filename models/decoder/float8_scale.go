package decoder

import (
	"strings"

	"titan/dtype"
	"titan/graph"
)

// float8 makes operands 8 bits wide and multiplies them. A scale belongs to a row,
// or a tensor, as a whole, however many devices hold parts of it: they agree on
// its largest element first, so that the result does not depend on the mesh.
type float8 struct {
	tensorwise bool // one scale for a tensor, else one for each row, a power of two
	gradHP     bool // gradients of matrices are products in the compute type
	viaBF16    bool // multiply as bf16, which holds both 8-bit types exactly
	// sequences share out tokens, tensor heads and feed-forward width; tokens are
	// both.
	sequences, tensor, tokens Group
}

// scaled is an operand in 8-bit floats: what it stands for is bits divided by
// scale, f32, which has the dimensions of the letters rows.
type scaled struct {
	bits, scale   *graph.Value
	letters, rows string
}

// largest returns the largest magnitude of an 8-bit float type.
func largest(d dtype.DType) float64 {
	if d == dtype.F8E5M2 {
		return 57344
	}
	return 448
}

// smallest is what the largest element of a row is taken for if it is below: an
// all-zero row has a finite scale.
const smallest = 1e-12

// holders returns the devices that hold parts of what dimensions with these
// letters span: tokens (b, s) are shared out by sequences, heads and feed-forward
// width (h, f) by tensor.
func (f float8) holders(letters string) Group {
	token, wide := strings.ContainsAny(letters, "bs"), strings.ContainsAny(letters, "hf")
	switch {
	case token && wide:
		return f.tokens
	case token:
		return f.sequences
	case wide:
		return f.tensor
	}
	return Group{}
}

// operand makes v, with dimensions letters, ready for a product whose result has
// the dimensions result: what it is summed over has one scale.
func (f float8) operand(v *graph.Value, letters, result string, d dtype.DType) scaled {
	rows := ""
	if !f.tensorwise {
		rows = pickLetters(letters, result, true)
	}
	return f.cast(v, letters, rows, d, f.holders(pickLetters(letters, rows, false)))
}

// cast scales v so that the largest element of every row is the largest of d, and
// rounds it. rows are the letters whose every index has a scale of its own; the
// devices of holders have parts of the rows.
func (f float8) cast(v *graph.Value, letters, rows string, d dtype.DType, holders Group) scaled {
	var dims []int
	for i, c := range letters {
		if !strings.ContainsRune(rows, c) {
			dims = append(dims, i)
		}
	}
	b := v.Builder()
	most := holders.Max(graph.Convert(graph.ReduceMax(graph.Abs(v), dims...), dtype.F32))
	scale := graph.Div(b.Scalar(dtype.F32, largest(d)), graph.Max(most, b.Scalar(dtype.F32, smallest)))
	if !f.tensorwise {
		// Down to a power of two, as TorchAO's row-wise recipes do: scaling changes
		// exponents only, and rounds nothing.
		scale = graph.Bitcast(graph.And(graph.Bitcast(scale, dtype.S32), b.Int(dtype.S32, 0x7f800000)), dtype.F32)
	}
	return f.scaleBy(v, scale, letters, rows, d)
}

// scaleBy is cast with a scale that is known. What would be beyond the largest
// becomes the largest.
func (f float8) scaleBy(v, scale *graph.Value, letters, rows string, d dtype.DType) scaled {
	y := graph.Mul(graph.Convert(v, dtype.F32), spreadRows(scale, rows, v.Shape(), letters))
	b, most := v.Builder(), largest(d)
	y = graph.Max(graph.Min(y, b.Scalar(dtype.F32, most)), b.Scalar(dtype.F32, -most))
	return scaled{graph.Convert(y, d), scale, letters, rows}
}

// multiply contracts x and y, and returns the dimensions of the letters out in f32.
func (f float8) multiply(x, y scaled, out string) *graph.Value {
	a, b := x.bits, y.bits
	if f.viaBF16 {
		a, b = graph.Convert(a, dtype.BF16), graph.Convert(b, dtype.BF16)
	}
	z := graph.Einsum(x.letters+","+y.letters+"->"+out, a, b, graph.As(dtype.F32))
	one := z.Builder().Scalar(dtype.F32, 1)
	sx, sy := graph.Div(one, x.scale), graph.Div(one, y.scale)
	if x.rows == "" && y.rows == "" {
		return graph.Mul(z, graph.Mul(sx, sy))
	}
	z = graph.Mul(z, spreadRows(sx, x.rows, z.Shape(), out))
	return graph.Mul(z, spreadRows(sy, y.rows, z.Shape(), out))
}

// spreadRows broadcasts v, with dimensions rows, to shape, with dimensions letters.
func spreadRows(v *graph.Value, rows string, shape []int, letters string) *graph.Value {
	dims := make([]int, 0, len(rows))
	for _, c := range rows {
		dims = append(dims, strings.IndexRune(letters, c))
	}
	return graph.BroadcastInDim(v, shape, dims)
}

// pickLetters returns those of letters that are in others, or that are not.
func pickLetters(letters, others string, in bool) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(others, c) == in {
			return c
		}
		return -1
	}, letters)
}
