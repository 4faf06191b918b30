package sharding

import (
	"errors"
	"fmt"
	"slices"
)

// ReshardPlan says where the shards of one layout are found in those of another
// layout of the same array, on the same or on another mesh.
type ReshardPlan struct {
	from, to *Layout
}

// Piece is a part of a target shard that lies in one source shard.
type Piece struct {
	Shard  int    // the source shard; from.Holders(Shard) are the positions that have it
	Region Region // in the coordinates of the whole array
}

// Reshard plans how to make the shards of to from those of from. Both must be
// layouts of one shape; meshes and specs may differ in every way.
func Reshard(from, to *Layout) (*ReshardPlan, error) {
	if from == nil || to == nil {
		return nil, errors.New("sharding: a layout to reshard from or to is missing")
	}
	if !slices.Equal(from.shape, to.shape) {
		return nil, fmt.Errorf("sharding: an array of shape %v cannot be resharded to shape %v", from.shape, to.shape)
	}
	return &ReshardPlan{from: from, to: to}, nil
}

// Pieces returns the parts that make up the target shard at a position, in
// row-major order. Together they cover it once. There are none if the shard is
// empty or the target mesh has no such position.
func (p *ReshardPlan) Pieces(position int) []Piece {
	target := p.to.Region(position)
	if !p.to.valid(position) || target.Elements() == 0 {
		return nil
	}
	rank := len(target.Size)
	first, count := make([]int, rank), make([]int, rank)
	n := 1
	for d := range rank {
		first[d] = target.Offset[d] / p.from.local[d]
		last := (target.Offset[d] + target.Size[d] - 1) / p.from.local[d]
		count[d] = last - first[d] + 1
		n *= count[d]
	}
	pieces := make([]Piece, n)
	for i := range pieces {
		r := Region{Offset: make([]int, rank), Size: make([]int, rank)}
		shard, weight, left := 0, 1, i
		for d := rank - 1; d >= 0; d-- {
			block := first[d] + left%count[d]
			left /= count[d]
			shard += block * weight
			weight *= p.from.blocks[d]
			low := max(target.Offset[d], block*p.from.local[d])
			high := min(target.Offset[d]+target.Size[d], (block+1)*p.from.local[d])
			r.Offset[d], r.Size[d] = low, high-low
		}
		pieces[i] = Piece{Shard: shard, Region: r}
	}
	return pieces
}

// Assemble makes the target shard at a position. read fills dst with the
// elements of a piece, dense and row-major; it is called once for each of
// Pieces, one after the other.
func (p *ReshardPlan) Assemble(position, elemSize int, read func(piece Piece, dst []byte) error) ([]byte, error) {
	size, err := p.to.Bytes(elemSize)
	if err != nil {
		return nil, err
	}
	if !p.to.valid(position) {
		return nil, fmt.Errorf("sharding: there is no position %d in the mesh %v", position, p.to.mesh)
	}
	out := make([]byte, size)
	target := p.to.Region(position)
	var scratch []byte
	for _, piece := range p.Pieces(position) {
		dst := out
		if !piece.Region.Equal(target) {
			n := piece.Region.Elements() * elemSize
			if cap(scratch) < n {
				scratch = make([]byte, n)
			}
			dst = scratch[:n:n]
		}
		if err := read(piece, dst); err != nil {
			return nil, fmt.Errorf("sharding: reading the region %v of source shard %d: %w", piece.Region, piece.Shard, err)
		}
		if !piece.Region.Equal(target) {
			copyCommon(out, target, dst, piece.Region, piece.Region, elemSize)
		}
	}
	return out, nil
}
