package sharding

import (
	"fmt"
	"math"
	"slices"

	"titan/mesh"
)

// Layout is an array of one shape split over one mesh by one spec, checked once
// so that nothing below can fail for a sharding's sake.
//
// The distinct parts of the array are its shards, numbered row by row over the
// blocks of the array. Several positions hold the same shard if the spec leaves
// mesh axes out; they are the shard's replicas.
type Layout struct {
	mesh         *mesh.Mesh
	spec         Spec
	shape, local []int
	blocks       []int      // number of blocks along each dimension
	axes         []axisPlan // in the order of the mesh
	shards       int
	replicas     int
}

// axisPlan says what a step along a mesh axis does.
type axisPlan struct {
	size   int
	stride int  // of positions
	used   bool // by the spec
	weight int  // of shards if used, else of replicas; n/weight%size is the coordinate
}

// maxElemSize is the largest element, in bytes.
const maxElemSize = 16

func checkElemSize(n int) error {
	if n < 1 || n > maxElemSize {
		return fmt.Errorf("sharding: an element of %d bytes; it can have 1 to %d", n, maxElemSize)
	}
	return nil
}

// elements returns the number of elements of a shape, small enough that bytes
// cannot overflow.
func elements(shape []int) (int, error) {
	n := 1
	for _, s := range shape {
		if s == 0 {
			return 0, nil
		}
	}
	for _, s := range shape {
		if s > math.MaxInt/maxElemSize/n {
			return 0, fmt.Errorf("sharding: an array of shape %v has more than %d elements", shape, math.MaxInt/maxElemSize)
		}
		n *= s
	}
	return n, nil
}

// NewLayout returns the layout of an array of this shape. It fails where
// Spec.Shard does: see there.
func NewLayout(m *mesh.Mesh, spec Spec, shape []int) (*Layout, error) {
	local, err := spec.Shard(m, shape)
	if err != nil {
		return nil, err
	}
	if _, err := elements(shape); err != nil {
		return nil, err
	}
	l := &Layout{mesh: m, spec: spec, shape: slices.Clone(shape), local: local, blocks: make([]int, len(shape)), shards: 1, replicas: 1}
	meshAxes := m.Axes()
	l.axes = make([]axisPlan, len(meshAxes))
	stride := 1
	for i, a := range slices.Backward(meshAxes) {
		l.axes[i] = axisPlan{size: a.Size, stride: stride}
		stride *= a.Size
	}
	for d := len(shape) - 1; d >= 0; d-- {
		l.blocks[d] = 1
		for _, name := range slices.Backward(spec.Dim(d)) {
			i := slices.IndexFunc(meshAxes, func(a mesh.Axis) bool { return a.Name == name })
			a := &l.axes[i]
			a.used, a.weight = true, l.shards
			l.shards *= a.size
			l.blocks[d] *= a.size
		}
	}
	for i := len(l.axes) - 1; i >= 0; i-- {
		if a := &l.axes[i]; !a.used {
			a.weight = l.replicas
			l.replicas *= a.size
		}
	}
	return l, nil
}

// Mesh returns the mesh.
func (l *Layout) Mesh() *mesh.Mesh { return l.mesh }

// Spec returns the spec.
func (l *Layout) Spec() Spec { return l.spec }

// Shape returns the shape of the whole array.
func (l *Layout) Shape() []int { return slices.Clone(l.shape) }

// Local returns the shape of a shard.
func (l *Layout) Local() []int { return slices.Clone(l.local) }

// Shards returns the number of distinct shards.
func (l *Layout) Shards() int { return l.shards }

// Replicas returns how many positions hold each shard.
func (l *Layout) Replicas() int { return l.replicas }

// Bytes returns the size of a shard, which is what each device holds, for
// elements of elemSize bytes (1 to 16).
func (l *Layout) Bytes(elemSize int) (int, error) {
	if err := checkElemSize(elemSize); err != nil {
		return 0, err
	}
	n, err := elements(l.local)
	return n * elemSize, err
}

func (l *Layout) valid(position int) bool { return position >= 0 && position < l.mesh.Size() }

// Shard returns the number of the shard that a position holds, -1 if the mesh
// has no such position.
func (l *Layout) Shard(position int) int {
	if !l.valid(position) {
		return -1
	}
	n := 0
	for _, a := range l.axes {
		if a.used {
			n += position / a.stride % a.size * a.weight
		}
	}
	return n
}

// Replica returns which of its shard's replicas a position holds, counted from
// 0 in the order of positions; -1 if the mesh has no such position. Whoever
// must write every shard once takes the positions with replica 0.
func (l *Layout) Replica(position int) int {
	if !l.valid(position) {
		return -1
	}
	n := 0
	for _, a := range l.axes {
		if !a.used {
			n += position / a.stride % a.size * a.weight
		}
	}
	return n
}

// Holders returns the positions that hold a shard, ascending: replica 0 first.
// There are none if the layout has no such shard.
func (l *Layout) Holders(shard int) []int {
	if shard < 0 || shard >= l.shards {
		return nil
	}
	base := 0
	for _, a := range l.axes {
		if a.used {
			base += shard / a.weight % a.size * a.stride
		}
	}
	out := make([]int, l.replicas)
	for r := range out {
		out[r] = base
		for _, a := range l.axes {
			if !a.used {
				out[r] += r / a.weight % a.size * a.stride
			}
		}
	}
	return out
}

// ShardRegion returns the part of the array that a shard is, the zero Region if
// the layout has no such shard.
func (l *Layout) ShardRegion(shard int) Region {
	if shard < 0 || shard >= l.shards {
		return Region{}
	}
	r := Region{Offset: make([]int, len(l.shape)), Size: slices.Clone(l.local)}
	for d := len(l.shape) - 1; d >= 0; d-- {
		r.Offset[d] = shard % l.blocks[d] * l.local[d]
		shard /= l.blocks[d]
	}
	return r
}

// Region returns the part of the array that a position holds, the zero Region
// if the mesh has no such position.
func (l *Layout) Region(position int) Region { return l.ShardRegion(l.Shard(position)) }

// Slices returns the part of an array of this shape that each position of m
// holds.
func Slices(m *mesh.Mesh, shape []int, spec Spec) ([]Region, error) {
	l, err := NewLayout(m, spec, shape)
	if err != nil {
		return nil, err
	}
	out := make([]Region, m.Size())
	for p := range out {
		out[p] = l.Region(p)
	}
	return out, nil
}

// BytesPerDevice returns the bytes of an array that each device holds.
func BytesPerDevice(m *mesh.Mesh, shape []int, spec Spec, elemSize int) (int, error) {
	l, err := NewLayout(m, spec, shape)
	if err != nil {
		return 0, err
	}
	return l.Bytes(elemSize)
}
