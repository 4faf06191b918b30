package graph

import (
	"titan/mesh"
	"titan/sharding"
)

// Value is one array in a program: the result of an op, or an argument of a
// block. Its shape is known while tracing and never changes.
type Value struct {
	typ   Type
	op    *Op    // producer; nil for block arguments
	index int    // position among the results of op or the args of block
	block *Block // where the value is defined

	// vary lists the manual mesh axes on which devices hold different data,
	// as a bit set over mesh axes; always 0 outside manual regions.
	vary axisSet
	// gradType, when valid, is the element type in which contractions produce
	// this value's cotangent, so that sums across devices use that precision.
	gradType DType
	// kept is the saved form of a value that a checkpoint computes again; what
	// derivatives read of the value, they read there.
	kept *Value
	// spec is the sharding given by Constrain or Input, used by cost counting.
	spec *sharding.Spec
	id   int // unique within the module, in creation order
}

// Type returns the element type and shape.
func (v *Value) Type() Type { return v.typ }

// DType returns the element type.
func (v *Value) DType() DType { return v.typ.DType }

// Shape returns the dimensions. The caller must not change the slice.
func (v *Value) Shape() []int { return v.typ.Shape }

// Rank returns the number of dimensions.
func (v *Value) Rank() int { return len(v.typ.Shape) }

// Dim returns the size of dimension i; negative i counts from the end.
func (v *Value) Dim(i int) int {
	if i < 0 {
		i += len(v.typ.Shape)
	}
	if i < 0 || i >= len(v.typ.Shape) {
		v.b().fail("dim", "dimension %d of a value of type %v", i, v.typ)
	}
	return v.typ.Shape[i]
}

// Builder returns the builder that v is being traced with.
func (v *Value) Builder() *Builder { return v.b() }

// Op is one operation. Structured ops (scan, cond, shard-map, …) have blocks;
// a block sees no values but its own arguments, so ops can be moved, cloned and
// differentiated by looking at their operands alone.
type Op struct {
	kind     opKind
	operands []*Value
	results  []*Value
	attr     any
	blocks   []*Block
	block    *Block // the block that holds this op
	pos      position
}

// Block is a list of ops with arguments and the values it yields.
type Block struct {
	args   []*Value
	ops    []*Op
	yields []*Value
	module *Module
}

// Module is a traced program with one entry function.
type Module struct {
	name    string
	mesh    *mesh.Mesh
	main    *Block
	inputs  []Port
	outputs []Port
	nextID  int
	axes    []string // mesh axis names, bit i of an axisSet is axes[i]
	builder *Builder
	ahead   bool // loops are to communicate ahead; see GatherAhead
}

// Port is an input or output of the entry function.
type Port struct {
	Name string
	Type Type
	// Spec is the sharding over the module's mesh; nil leaves it to the compiler.
	Spec *sharding.Spec
	// Alias of an input is the index of the output that takes over its memory,
	// of an output the index of that input; -1 for none.
	Alias int
	// Host reports whether the array lives in host memory.
	Host bool
}

// Name returns the name given to Trace.
func (m *Module) Name() string { return m.name }

// Mesh returns the mesh the program is sharded over; nil for a single device.
func (m *Module) Mesh() *mesh.Mesh { return m.mesh }

// Inputs describes the arguments of the program, in order.
func (m *Module) Inputs() []Port { return m.inputs }

// Outputs describes the results of the program, in order.
func (m *Module) Outputs() []Port { return m.outputs }

func (m *Module) newValue(t Type, blk *Block) *Value {
	m.nextID++
	return &Value{typ: t, block: blk, id: m.nextID}
}

func (blk *Block) addArg(t Type) *Value {
	v := blk.module.newValue(t, blk)
	v.index = len(blk.args)
	blk.args = append(blk.args, v)
	return v
}

// insertResult adds a result to op at position i, moving the later ones.
func (op *Op) insertResult(i int, t Type) *Value {
	v := op.block.module.newValue(t, op.block)
	v.op = op
	op.results = append(op.results, nil)
	copy(op.results[i+1:], op.results[i:])
	op.results[i] = v
	for k := i; k < len(op.results); k++ {
		op.results[k].index = k
	}
	return v
}

// walk calls f for every op of blk, before the ops of its nested blocks.
func (blk *Block) walk(f func(*Op)) {
	for _, op := range blk.ops {
		f(op)
		for _, inner := range op.blocks {
			inner.walk(f)
		}
	}
}
