package graph

import (
	"fmt"
	mathbits "math/bits"
)

// Threefry-2x32 with 20 rounds: J. Salmon, M. Moraes, R. Dror and D. Shaw,
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC11. It encrypts a counter of
// two words under a key of two words.
var threefryRotations = [2][4]int{{13, 15, 26, 6}, {17, 29, 16, 24}}

const threefryParity = 0x1BD11BDA

// threefryWords is the cipher in Go, for keys that are known while tracing.
func threefryWords(k0, k1, x0, x1 uint32) (uint32, uint32) {
	ks := [3]uint32{k0, k1, k0 ^ k1 ^ threefryParity}
	x0, x1 = x0+ks[0], x1+ks[1]
	for g := range 5 {
		for _, r := range threefryRotations[g%2] {
			x0 += x1
			x1 = mathbits.RotateLeft32(x1, r) ^ x0
		}
		x0, x1 = x0+ks[(g+1)%3], x1+ks[(g+2)%3]+uint32(g+1)
	}
	return x0, x1
}

// The op is one op for the program and some hundred elementwise ones for the
// compiler, which fuses them with their uses.
func init() {
	define(opThreefry, opDef{
		name: "threefry",
		infer: func(op *Op) ([]Type, error) {
			x := op.operands[2].typ
			for _, k := range op.operands[:2] {
				if !k.typ.Equal(T(U32)) {
					return nil, fmt.Errorf("key word of type %v, not u32[]", k.typ)
				}
			}
			if x.DType != U32 || !op.operands[3].typ.Equal(x) {
				return nil, fmt.Errorf("counters of types %v and %v; both must be u32 of one shape", x, op.operands[3].typ)
			}
			return []Type{x, x}, nil
		},
		noGrad: true,
		print:  printThreefry,
	})
}

// threefry encrypts the counters (x0, x1) under a key of two u32 scalars.
func threefry(k0, k1, x0, x1 *Value) (*Value, *Value) {
	r := x0.b().emit(opThreefry, nil, k0, k1, x0, x1).results
	return r[0], r[1]
}

func printThreefry(p *printer, op *Op) {
	scalar, t := T(U32).mlir(), op.results[0].typ.mlir()
	full := func(x string) string {
		return p.stmt("stablehlo.broadcast_in_dim %s, dims = [] : (%s) -> %s", x, scalar, t)
	}
	constant := func(c int, t string) string { return p.stmt("stablehlo.constant dense<%d> : %s", c, t) }
	do := func(op, x, y, t string) string { return p.stmt("stablehlo.%s %s, %s : %s", op, x, y, t) }

	ks := [3]string{p.names[op.operands[0]], p.names[op.operands[1]]}
	ks[2] = do("xor", do("xor", ks[0], ks[1], scalar), constant(threefryParity, scalar), scalar)
	wide := [3]string{full(ks[0]), full(ks[1]), full(ks[2])}
	shift := map[int]string{}
	for _, rs := range threefryRotations {
		for _, r := range rs {
			for _, n := range [2]int{r, 32 - r} {
				if shift[n] == "" {
					shift[n] = constant(n, t)
				}
			}
		}
	}
	x0 := do("add", p.names[op.operands[2]], wide[0], t)
	x1 := do("add", p.names[op.operands[3]], wide[1], t)
	for g := range 5 {
		for _, r := range threefryRotations[g%2] {
			x0 = do("add", x0, x1, t)
			turned := do("or", do("shift_left", x1, shift[r], t), do("shift_right_logical", x1, shift[32-r], t), t)
			x1 = do("xor", turned, x0, t)
		}
		x0 = do("add", x0, wide[(g+1)%3], t)
		x1 = do("add", x1, full(do("add", ks[(g+2)%3], constant(g+1, scalar), scalar)), t)
	}
	p.names[op.results[0]], p.names[op.results[1]] = x0, x1
}
