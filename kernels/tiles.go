package kernels

import "titan/dtype"

// MatmulTiles are the tile's rows M, its contracted size K and its columns N of a
// product; of the gradient of matrices [K, N], M rows are contracted. 0 is chosen.
type MatmulTiles struct {
	M int `toml:"m" doc:"rows of a tile; 0: by the chip"`
	K int `toml:"k" doc:"contracted size of a tile; 0: by the chip"`
	N int `toml:"n" doc:"columns of a tile; 0: by the chip"`
}

// GroupedTiles are the tiles of the products of [GroupedMatmul].
type GroupedTiles struct {
	Product MatmulTiles `toml:"product" doc:"tiles of experts' products"`
	LHS     MatmulTiles `toml:"lhs" doc:"tiles of the gradient of tokens"`
	RHS     MatmulTiles `toml:"rhs" doc:"tiles of the gradient of experts' matrices"`
}

// matmulTable has the sizes to start from, by chip, for products, products with
// transposed matrices (the gradient of lhs) and gradients of matrices.
//
// Sources: sizes recorded as good for grouped products on these chips (v7x: 809,
// 697 and 682 TFLOP/s for [524288, 4096]×[128, 4096, 1536]; v5p: 210; v5e: 183);
// v6e takes v5e's with larger tiles, its matrix unit being twice as wide. None of
// them was measured by us.
var matmulTable = map[string][3]MatmulTiles{
	"v5e":   {{1024, 512, 1024}, {1024, 512, 1024}, {512, 1024, 1024}},
	"v5p":   {{128, 4096, 768}, {512, 1024, 1024}, {256, 1024, 1024}},
	"v6e":   {{512, 1024, 1024}, {512, 1024, 1024}, {512, 1024, 1024}},
	"tpu7x": {{256, 4096, 1536}, {1024, 1536, 1024}, {256, 2048, 1536}},
	"v4":    {{128, 512, 512}, {128, 512, 512}, {128, 512, 512}},
	"":      {{64, 512, 512}, {64, 512, 512}, {64, 512, 512}}, // interpreted
}

// fit replaces zero fields of t by the table's, makes columns and contracted sizes
// divide the shape, and shrinks what was not asked for until the vector memory is
// enough: N first, since that keeps the other operand's tiles from being copied
// more often, then K, then M.
func (t MatmulTiles) fit(target Target, s groupedShape, transposed, grad bool) MatmulTiles {
	kind := ""
	if target.Chip != nil {
		kind = target.Chip.Kind
	}
	row := matmulTable[kind]
	pick := row[0]
	switch {
	case grad:
		pick = row[2]
	case transposed:
		pick = row[1]
	}
	free := MatmulTiles{1, 1, 1}
	for _, f := range []struct{ t, pick, free *int }{{&t.M, &pick.M, &free.M}, {&t.K, &pick.K, &free.K}, {&t.N, &pick.N, &free.N}} {
		if *f.t > 0 {
			*f.pick, *f.free = *f.t, 0
		}
	}
	t = MatmulTiles{min(pick.M, roundUp(s.M, sublanes(dtype.BF16))), pick.K, pick.N}
	if free.M == 0 {
		t.M = pick.M
	}
	t.K, t.N = divisor(s.K, t.K, free.K), divisor(s.N, t.N, free.N)
	if target.Chip == nil {
		return t
	}
	limit := VMEMLimit(*target.Chip)
	for s.need(t, grad) > limit {
		n, k := divisor(s.N, t.N/2, 1), divisor(s.K, t.K/2, 1)
		switch {
		case free.N == 1 && t.N > 2*lanes && n < t.N:
			t.N = n
		case free.K == 1 && t.K > 2*lanes && k < t.K:
			t.K = k
		case free.M == 1 && t.M > 2*sublanes(dtype.BF16):
			t.M = roundUp(t.M/2, sublanes(dtype.BF16))
		default:
			return t // Call says by how much it does not fit
		}
	}
	return t
}

// need is what a product takes of the vector memory: blocks twice, the sum, and
// about one more tile of sums on the way for each product.
func (s groupedShape) need(t MatmulTiles, grad bool) int64 {
	in, out := int64(s.in.Size()), int64(s.out.Size())
	x, y, z := int64(t.M*t.K), int64(t.K*t.N), int64(t.M*t.N)
	n := int64(max(1, s.products))
	if grad {
		y, z = z, y
	}
	return buffers*(n*x*in+n*y*in+z*out) + (1+n)*4*z
}

// divisor is the largest multiple of the lanes' number that divides n and is at
// most want, or n. What was asked for (free is 0) is taken as it is.
func divisor(n, want, free int) int {
	if free == 0 || want >= n {
		return min(want, n)
	}
	for d := want / lanes * lanes; d >= lanes; d -= lanes {
		if n%d == 0 {
			return d
		}
	}
	return n
}
