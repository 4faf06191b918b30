package kernels

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"titan/dtype"
	"titan/graph"
)

// Kernel is a kernel that is being defined, by the methods in this order: Grid
// (outermost dimension first), Prefetch, In and Out, Scratch, and then the ops of
// its body, which runs once for each point of the grid, the last dimension
// fastest. A mistake is kept, and reported by [Kernel.Call].
type Kernel struct {
	name    string
	grid    []gridDim
	ids     []*Value
	refs    map[role][]*Ref
	main    *block
	cur     *block
	err     error
	flops   float64
	transc  float64
	counted bool // flops was set
	typical *typical
}

type gridDim struct {
	n        int // steps; at most, if dynamic
	expected int
	dynamic  bool
	order    Order
}

// Order says whether steps along a dimension of the grid depend on each other.
type Order uint8

// Sequential steps run in order on one core; Parallel ones may be shared out
// among cores, each with scratch of its own.
const (
	Sequential Order = iota
	Parallel
)

type role uint8

const (
	prefetched role = iota
	input
	output
	scratch
)

func (r role) String() string { return [...]string{"prefetched", "input", "output", "scratch"}[r] }

// Ref is memory that a kernel works on: a block of an input or output in vector
// memory, scratch there, or a prefetched array in scalar memory.
type Ref struct {
	k     *Kernel
	role  role
	name  string
	typ   graph.Type // whole array
	block []int
	index []*Value // in blocks, one for each dimension
	sheet *Value   // the one meant, of a block with several
	whole *Ref     // what this is a sheet of
}

// New begins a kernel; the name appears in profiles.
func New(name string) *Kernel {
	b := &block{}
	return &Kernel{name: name, refs: map[role][]*Ref{}, main: b, cur: b}
}

// Grid adds a dimension of n steps and returns the current step.
func (k *Kernel) Grid(n int, order Order) *Value {
	if n < 1 {
		k.fail("grid", "dimension %d has %d steps", len(k.grid), n)
	}
	return k.gridDim(gridDim{n: n, expected: n, order: order})
}

// DynamicGrid adds a dimension whose number of steps, at most most, is an s32
// scalar known only when the kernel runs: the first operands of Call are these.
// expected is what costs are counted with.
func (k *Kernel) DynamicGrid(most, expected int) *Value {
	if most < 1 || expected < 1 || expected > most {
		k.fail("grid", "dimension %d has at most %d steps, %d expected", len(k.grid), most, expected)
	}
	return k.gridDim(gridDim{n: most, expected: expected, dynamic: true})
}

func (k *Kernel) gridDim(d gridDim) *Value {
	k.grid = append(k.grid, d)
	id := k.add(&Value{op: opGrid, typ: graph.T(dtype.S32), num: float64(len(k.grid) - 1)})
	k.ids = append(k.ids, id)
	return id
}

// Prefetch adds an s32 vector that is in scalar memory before the first step, so
// that index maps can read it.
func (k *Kernel) Prefetch(name string, n int) *Ref {
	return k.ref(&Ref{role: prefetched, name: name, typ: graph.T(dtype.S32, n)})
}

// In adds an input array. At each step the kernel sees the block at index (s32
// scalars, counted in blocks). It is one tile, with size 1 in all but the last two
// dimensions, or several, called sheets, along the dimension before those.
func (k *Kernel) In(name string, t graph.Type, block []int, index ...*Value) *Ref {
	return k.ref(&Ref{role: input, name: name, typ: t, block: block, index: index})
}

// Out adds an output array, like In. A block keeps what was stored while the
// index stays the same from step to step, and must be written completely before
// it changes; it cannot be returned to.
func (k *Kernel) Out(name string, t graph.Type, block []int, index ...*Value) *Ref {
	return k.ref(&Ref{role: output, name: name, typ: t, block: block, index: index})
}

// Scratch adds a tile that keeps its contents from step to step. At first they
// are undefined.
func (k *Kernel) Scratch(name string, t graph.Type) *Ref {
	return k.ref(&Ref{role: scratch, name: name, typ: t, block: t.Shape})
}

func (k *Kernel) ref(r *Ref) *Ref {
	r.k = k
	k.refs[r.role] = append(k.refs[r.role], r)
	if msg := r.check(); msg != "" {
		k.fail(r.role.String(), "%q of type %v: %s", r.name, r.typ, msg)
	}
	return r
}

// check returns what is wrong with the shape of r on any target.
func (r *Ref) check() string {
	if r.role == prefetched {
		if r.typ.Shape[0] < 1 {
			return "is empty"
		}
		return ""
	}
	n := len(r.typ.Shape)
	switch d := r.typ.DType; {
	case d != dtype.F32 && d != dtype.BF16 && d != dtype.S32:
		return "tiles are f32, bf16 or s32"
	case n < 2 || len(r.block) != n:
		return fmt.Sprintf("block %v; arrays have two dimensions or more, blocks as many", r.block)
	case r.role == scratch && n != 2:
		return "scratch has two dimensions"
	case r.role != scratch && len(r.index) != n:
		return fmt.Sprintf("%d indices for %d dimensions", len(r.index), n)
	}
	for i, b := range r.block {
		switch {
		case b < 1 || r.typ.Shape[i]%b != 0:
			return fmt.Sprintf("dimension %d of %d is no multiple of the block's %d", i, r.typ.Shape[i], b)
		case i < n-3 && b != 1:
			return fmt.Sprintf("the block has %d in dimension %d; all but the last three must be 1", b, i)
		}
	}
	for i, ix := range r.index {
		if !ix.typ.Equal(graph.T(dtype.S32)) || !ix.forIndex() {
			return fmt.Sprintf("index %d is no s32 scalar made of grid steps, constants and prefetched values", i)
		}
	}
	return ""
}

// forIndex says whether v can be computed before a step.
func (v *Value) forIndex() bool {
	if v.op == opLoad || !v.scalar() {
		return false
	}
	for _, a := range v.args {
		if !a.forIndex() {
			return false
		}
	}
	return true
}

// tile is the type of what Load returns.
func (r *Ref) tile() graph.Type {
	return graph.T(r.typ.DType, r.block[max(0, len(r.block)-2):]...)
}

// sheets is the number of tiles of a block.
func (r *Ref) sheets() int {
	if n := len(r.block); n > 2 {
		return r.block[n-3]
	}
	return 1
}

// Sheet returns tile i, an s32 scalar, of a block of several.
func (r *Ref) Sheet(i *Value) *Ref {
	if r.sheets() == 1 || !i.typ.Equal(graph.T(dtype.S32)) {
		r.k.fail("sheet", "%v of %q, whose block %v has %d", i.typ, r.name, r.block, r.sheets())
		return r
	}
	s := *r
	s.sheet, s.whole = i, r
	return &s
}

// access records a load or store of rows of r's tile.
func (r *Ref) access(v *Value) *Value {
	v.ref = r
	switch {
	case r.sheet != nil:
		v.args = append(v.args, r.sheet)
		v.ref = r.whole
	case r.sheets() > 1:
		r.k.fail(v.op.String(), "the block of %q has %d sheets; take one with Sheet", r.name, r.sheets())
	}
	return r.k.add(v)
}

// Load returns the whole block as a tile.
func (r *Ref) Load() *Value {
	if r.role == prefetched {
		r.k.fail("load", "%q is in scalar memory; take single elements with At", r.name)
		return r.access(&Value{op: opLoad, typ: graph.T(dtype.S32, 1, 1)})
	}
	return r.LoadRows(0, r.tile().Shape[0])
}

// LoadRows returns n rows of the block, from row from on. On a TPU from must be a
// multiple of the native tile's rows.
func (r *Ref) LoadRows(from, n int) *Value {
	t := r.tile()
	if r.role == prefetched || from < 0 || n < 1 || from+n > t.Shape[0] {
		r.k.fail("load", "%d rows from row %d of %q, %v", n, from, r.name, t)
		from, n = 0, 1
	}
	return r.access(&Value{op: opLoad, num: float64(from), typ: graph.T(t.DType, n, t.Shape[len(t.Shape)-1])})
}

// Store replaces the whole block.
func (r *Ref) Store(x *Value) {
	if r.role != prefetched && !x.typ.Equal(r.tile()) {
		r.k.fail("store", "%v to %q, whose tile is %v", x.typ, r.name, r.tile())
	}
	r.StoreRows(0, x)
}

// StoreRows replaces rows of the block, from row from on, which on a TPU must be a
// multiple of the native tile's rows.
func (r *Ref) StoreRows(from int, x *Value) {
	if r.role != output && r.role != scratch {
		r.k.fail("store", "%q is %v and cannot be changed", r.name, r.role)
	} else if t := r.tile(); x.typ.DType != t.DType || x.scalar() || x.typ.Shape[1] != t.Shape[1] || from < 0 || from+x.typ.Shape[0] > t.Shape[0] {
		r.k.fail("store", "%v to %q from row %d, whose tile is %v", x.typ, r.name, from, t)
	}
	r.access(&Value{op: opStore, num: float64(from), args: []*Value{x}})
}

// At returns element i of a prefetched array.
func (r *Ref) At(i *Value) *Value {
	if r.role != prefetched {
		r.k.fail("at", "%q is %v; only prefetched arrays have scalar elements", r.name, r.role)
	}
	if !i.typ.Equal(graph.T(dtype.S32)) {
		r.k.fail("at", "index of type %v into %q", i.typ, r.name)
	}
	return r.k.add(&Value{op: opAt, ref: r, typ: graph.T(dtype.S32), args: []*Value{i}})
}

// If runs then where cond, a bool scalar, holds. What it computes reaches the
// rest of the kernel through refs only.
func (k *Kernel) If(cond *Value, then func()) {
	if !cond.typ.Equal(graph.T(dtype.Bool)) {
		k.fail("if", "the condition has type %v, not bool", cond.typ)
	}
	op := k.add(&Value{op: opIf, args: []*Value{cond}, body: &block{parent: k.cur}})
	k.cur = op.body
	then()
	k.cur = op.body.parent
}

// Flops sets what one call costs, in floating-point operations and in
// transcendental functions. If not set, both are counted from the body as if all
// its branches ran at every step.
func (k *Kernel) Flops(flops, transcendentals float64) {
	k.flops, k.transc, k.counted = flops, transcendentals, true
}

func (k *Kernel) add(v *Value) *Value {
	v.k, v.blk = k, k.cur
	for _, a := range v.args {
		if a.k != k {
			k.fail(v.op.String(), "an operand of type %v belongs to another kernel, %q", a.typ, a.k.name)
		} else if !k.cur.sees(a.blk) {
			k.fail(v.op.String(), "an operand of type %v was computed inside an If that has ended; store it in scratch", a.typ)
		}
	}
	k.cur.ops = append(k.cur.ops, v)
	return v
}

func (b *block) sees(other *block) bool {
	for ; b != nil; b = b.parent {
		if b == other {
			return true
		}
	}
	return false
}

// fail keeps the first mistake, with the line that defined the kernel so.
func (k *Kernel) fail(op, format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf("kernel %q%s: %s: %s", k.name, definedAt(), op, fmt.Sprintf(format, args...))
	}
}

// definedAt is " at file:line" of the innermost caller that defines a kernel, "" if
// unknown.
func definedAt() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		dir, file := filepath.Split(f.File)
		switch own := strings.HasPrefix(f.Function, "titan/kernels."); {
		case f.File == "":
			return ""
		case !own || file != "ops.go" && file != "kernel.go" && file != "value.go":
			return fmt.Sprintf(" at %s/%s:%d", filepath.Base(dir), file, f.Line)
		}
		if !more {
			return ""
		}
	}
}
