package checkpoint

import (
	"fmt"
	"slices"

	"titan/dtype"
	"titan/sharding"
)

// grid finds the pieces of a tensor by place. They are boxes of one size that
// tile the tensor, as even splits are.
type grid struct {
	local  []int // the size of every piece
	blocks []int // how many along each dimension
	index  []int // piece at each block, row-major
}

// maxElements bounds tensors so that sizes in bytes cannot overflow.
const maxElements = 1 << 56

// check verifies the tensor against the files and builds its grid.
func (t *TensorInfo) check(files []FileInfo) error {
	var err error
	if t.dtype, err = parseDType(t.DType); err != nil {
		return err
	}
	if t.Name == "" {
		return fmt.Errorf("it has no name")
	}
	n := int64(1)
	for _, s := range t.Shape {
		if s < 0 || s > 0 && n > maxElements/int64(s) {
			return fmt.Errorf("shape %v is out of range", t.Shape)
		}
		n *= int64(s)
	}
	if len(t.Pieces) == 0 {
		return fmt.Errorf("it has no pieces")
	}
	g := grid{local: t.Pieces[0].Size, blocks: make([]int, len(t.Shape))}
	if len(g.local) != len(t.Shape) {
		return fmt.Errorf("a piece of size %v does not fit shape %v", g.local, t.Shape)
	}
	total := 1
	for d, s := range t.Shape {
		switch l := g.local[d]; {
		case s == 0 && l == 0:
			g.blocks[d] = 1
		case l < 1 || s == 0 || s%l != 0:
			return fmt.Errorf("pieces of size %v do not divide shape %v", g.local, t.Shape)
		default:
			g.blocks[d] = s / l
		}
		if total > len(t.Pieces)/g.blocks[d] {
			return fmt.Errorf("%d pieces of size %v do not cover shape %v", len(t.Pieces), g.local, t.Shape)
		}
		total *= g.blocks[d]
	}
	if total != len(t.Pieces) {
		return fmt.Errorf("%d pieces of size %v do not cover shape %v once", len(t.Pieces), g.local, t.Shape)
	}
	g.index = slices.Repeat([]int{-1}, total)
	bytes := int64(sharding.Region{Size: g.local}.Elements()) * int64(t.dtype.Size())
	for i, p := range t.Pieces {
		at := 0
		if !slices.Equal(p.Size, g.local) || len(p.Start) != len(t.Shape) {
			return fmt.Errorf("its pieces differ in size: %v and %v", g.local, p.Size)
		}
		for d, s := range p.Start {
			if s < 0 || s > t.Shape[d]-g.local[d] || g.local[d] > 0 && s%g.local[d] != 0 {
				return fmt.Errorf("a piece of size %v starts at %v", p.Size, p.Start)
			}
			if g.local[d] > 0 {
				at = at*g.blocks[d] + s/g.local[d]
			}
		}
		if g.index[at] >= 0 {
			return fmt.Errorf("two pieces start at %v", p.Start)
		}
		g.index[at] = i
		if p.File < 0 || p.File >= len(files) {
			return fmt.Errorf("a piece is in file %d of %d", p.File, len(files))
		}
		if size := files[p.File].Size; p.Offset < 0 || bytes > size || p.Offset > size-bytes {
			return fmt.Errorf("a piece of %d bytes at %d reaches beyond %s of %d bytes", bytes, p.Offset, files[p.File].Name, size)
		}
	}
	t.grid = g
	return nil
}

// overlapping calls f for each piece that has elements of the region, which lies
// in the tensor.
func (t *TensorInfo) overlapping(r sharding.Region, f func(Piece)) {
	if r.Elements() == 0 {
		return
	}
	rank := len(t.Shape)
	first, count := make([]int, rank), make([]int, rank)
	n := 1
	for d := range rank {
		first[d] = r.Offset[d] / t.grid.local[d]
		count[d] = (r.Offset[d]+r.Size[d]-1)/t.grid.local[d] - first[d] + 1
		n *= count[d]
	}
	for i := range n {
		at, weight, left := 0, 1, i
		for d := rank - 1; d >= 0; d-- {
			at += (first[d] + left%count[d]) * weight
			left /= count[d]
			weight *= t.grid.blocks[d]
		}
		f(t.Pieces[t.grid.index[at]])
	}
}

func parseDType(s string) (dtype.DType, error) {
	for d := dtype.Bool; d.Valid(); d++ {
		if d.Safetensors() == s {
			return d, nil
		}
	}
	return dtype.Invalid, fmt.Errorf("unknown element type %q", s)
}
