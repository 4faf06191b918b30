package graph

import (
	"fmt"
	"strings"
)

// EinsumOption changes how Einsum multiplies.
type EinsumOption func(*einsumOptions)

type einsumOptions struct {
	out       DType
	precision Precision
}

// As gives the element type of the result, in which the sum is accumulated.
func As(d DType) EinsumOption { return func(o *einsumOptions) { o.out = d } }

// WithPrecision chooses the number of passes for f32 operands.
func WithPrecision(p Precision) EinsumOption { return func(o *einsumOptions) { o.precision = p } }

// Einsum contracts x and y. The spec names every dimension with a
// letter a…z or A…Z:
// "bsd,dhk->bshk" sums over d. A letter in both operands and the result is a
// batch dimension; a letter in one operand only, and not in the result, is
// summed first.
//
// Operands of different float types are brought to the wider one. The two 8-bit
// types, of which neither holds the other, are multiplied as they are.
func Einsum(spec string, x, y *Value, opts ...EinsumOption) *Value {
	if x == nil || y == nil {
		mistake("einsum", "%q: operand is nil", spec)
	}
	b := x.b()
	fail := func(format string, args ...any) {
		b.failAt(b.position(2), "einsum", []*Value{x, y}, "%q: %s", spec, fmt.Sprintf(format, args...))
	}
	in, out, ok := strings.Cut(strings.ReplaceAll(spec, " ", ""), "->")
	xs, ys, ok2 := strings.Cut(in, ",")
	if !ok || !ok2 || strings.ContainsAny(ys, ",") {
		fail(`the form is "ab,bc->ac"`)
	}
	for _, c := range xs + ys + out {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			fail("%q is no letter a…z or A…Z; the form is \"ab,bc->ac\"", c)
		}
	}
	size := map[rune]int{}
	for _, o := range []struct {
		letters string
		v       *Value
	}{{xs, x}, {ys, y}} {
		if len(o.letters) != o.v.Rank() {
			fail("%q names %d dimensions of an operand of rank %d", o.letters, len(o.letters), o.v.Rank())
		}
		for i, c := range o.letters {
			if strings.Count(o.letters, string(c)) > 1 {
				fail("%q names %q twice", o.letters, c)
			}
			if n, seen := size[c]; seen && n != o.v.typ.Shape[i] {
				fail("dimension %q has size %d in one operand and %d in the other", c, n, o.v.typ.Shape[i])
			}
			size[c] = o.v.typ.Shape[i]
		}
	}
	for _, c := range out {
		if _, seen := size[c]; !seen || strings.Count(out, string(c)) > 1 {
			fail("the result names %q, which must stand once in it and in an operand", c)
		}
	}
	var o einsumOptions
	for _, f := range opts {
		f(&o)
	}
	x, xs = sumLone(x, xs, ys+out)
	y, ys = sumLone(y, ys, xs+out)
	eight := x.typ.DType.Size() == 1 && y.typ.DType.Size() == 1
	if x.typ.DType.IsFloat() && y.typ.DType.IsFloat() && x.typ.DType != y.typ.DType && !eight {
		x, y = matchFloat(x, y)
	}
	return contract(xs, ys, out, x, y, o)
}

// sumLone sums over the dimensions whose letters stand nowhere else.
func sumLone(x *Value, letters, elsewhere string) (*Value, string) {
	var dims []int
	kept := ""
	for i, c := range letters {
		if strings.ContainsRune(elsewhere, c) {
			kept += string(c)
		} else {
			dims = append(dims, i)
		}
	}
	if dims == nil {
		return x, letters
	}
	return Sum(x, dims...), kept
}

// contract writes the dot, with the operands in the order that leaves the
// least to transpose.
func contract(xs, ys, out string, x, y *Value, o einsumOptions) *Value {
	form := func(xs, ys string) (dotAttr, string) {
		at := dotAttr{precision: o.precision, out: o.out}
		batch, xf, yf := "", "", ""
		for _, c := range out { // batch dimensions in the result's order
			if strings.ContainsRune(xs, c) && strings.ContainsRune(ys, c) {
				batch += string(c)
				at.lhsBatch = append(at.lhsBatch, strings.IndexRune(xs, c))
				at.rhsBatch = append(at.rhsBatch, strings.IndexRune(ys, c))
			}
		}
		for i, c := range xs {
			switch inY, inOut := strings.ContainsRune(ys, c), strings.ContainsRune(out, c); {
			case inY && !inOut:
				at.lhsContract = append(at.lhsContract, i)
				at.rhsContract = append(at.rhsContract, strings.IndexRune(ys, c))
			case !inY:
				xf += string(c)
			}
		}
		for _, c := range ys {
			if !strings.ContainsRune(xs, c) {
				yf += string(c)
			}
		}
		return at, batch + xf + yf
	}
	at, got := form(xs, ys)
	if got != out {
		if at2, got2 := form(ys, xs); got2 == out || moved(got2, out) < moved(got, out) {
			x, y, at, got = y, x, at2, got2
		}
	}
	perm := make([]int, len(out))
	for i, c := range out {
		perm[i] = strings.IndexRune(got, c)
	}
	return Transpose(dot(x, y, at), perm...)
}

// moved counts the letters that are out of place.
func moved(got, want string) int {
	n := 0
	for i := range got {
		if got[i] != want[i] {
			n++
		}
	}
	return n
}

// MatMul is the matrix product over the last two dimensions; leading dimensions
// are batch dimensions and must be equal. y may have rank 2 with any x.
func MatMul(x, y *Value, opts ...EinsumOption) *Value {
	b := x.b()
	if x.Rank() < 2 || y.Rank() < 2 || y.Rank() != 2 && y.Rank() != x.Rank() {
		b.failAt(b.position(1), "matmul", []*Value{x, y}, "needs operands of rank 2 or more, with equal leading dimensions")
	}
	letters := "abcdefghijklmnop"[:x.Rank()-1]
	xs, ys := letters+"y", "yz"
	if y.Rank() != 2 {
		ys = letters[:len(letters)-1] + "yz"
	}
	return Einsum(xs+","+ys+"->"+letters+"z", x, y, opts...)
}
