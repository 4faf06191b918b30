package graph

import (
	"fmt"
	"strings"

	"titan/mesh"
	"titan/sharding"
)

// Builder records a program. It is handed to the function given to Trace and
// is valid only until that function returns; what is recorded later is not part
// of any program, and Module.Verify reports it. (Only a mistake in such a late op
// has no Trace to return to: it panics with an error that names the line.) It is
// not safe for concurrent use.
type Builder struct {
	m      *Module
	frames []*frame
	done   bool
	at     *position  // position for ops that differentiation writes
	failed *Error     // the first mistake, kept in case traced code recovers from it
	late   *Error     // the first op recorded after Trace had returned
	inputs []position // where each input was declared
}

// frame is a block that is being recorded.
type frame struct {
	block *Block
	alias map[*Value]*Value
	// capture makes an argument of block that stands for a value of the
	// enclosing block.
	capture func(outer *Value) *Value
	// manual are the mesh axes that are manual inside block.
	manual axisSet
	// diverge are the manual axes along which devices may take different ways
	// here: other branches, other numbers of iterations.
	diverge  axisSet
	shardMap *shardMapBuilder // of the region whose body this is
	consts   map[constKey]*Value
}

// Trace records the program that f writes and verifies it. m is the mesh that
// shardings refer to, nil for one device. Mistakes come back as an *Error with
// the line of Go that made them, panics of f as one with the stack.
func Trace(name string, m *mesh.Mesh, f func(b *Builder) error) (mod *Module, err error) {
	pos := here(1)
	bad := func(format string, args ...any) error {
		return &Error{Op: "trace", Pos: pos.String(), Msg: fmt.Sprintf(format, args...)}
	}
	if f == nil {
		return nil, bad("%s: there is no function to trace", name)
	}
	mod = &Module{name: name, mesh: m}
	if m != nil {
		for _, a := range m.Axes() {
			mod.axes = append(mod.axes, a.Name)
		}
		if len(mod.axes) > 64 {
			return nil, bad("a mesh can have at most 64 axes, this one has %d", len(mod.axes))
		}
	}
	mod.main = &Block{module: mod}
	b := &Builder{m: mod}
	mod.builder = b
	b.push(&frame{block: mod.main})
	defer func() {
		if r := recover(); r != nil {
			mod, err = nil, panicError(name, r)
		}
		b.close()
	}()
	if err := f(b); err != nil {
		return nil, fmt.Errorf("tracing %s: %w", name, err)
	}
	if b.failed != nil {
		return nil, b.failed
	}
	if len(mod.outputs) == 0 {
		return nil, bad("%s has no outputs; call Builder.Output", name)
	}
	for i, p := range mod.inputs {
		if p.Alias == aliasPending {
			return nil, &Error{Op: "input", Pos: b.inputs[i].String(), Operands: []string{describe(mod.main.args[i])},
				Msg: fmt.Sprintf("input %d %q is donated but no output takes its memory; declare the output with Into, or drop Donated", i, p.Name)}
		}
	}
	b.checkPass("recording")
	mod.prune()
	if mod.ahead {
		b.gatherAhead(mod.main, 0)
		mod.prune()
	}
	if err := mod.Verify(); err != nil {
		return nil, err
	}
	return mod, nil
}

func (v *Value) b() *Builder {
	if v == nil {
		pos := here(1)
		panic(abort{&Error{Op: callee(pos.stack()), Pos: pos.String(), Msg: "an operand is nil"}})
	}
	return v.block.module.builder
}

func (b *Builder) push(f *frame) {
	f.alias = map[*Value]*Value{}
	f.consts = map[constKey]*Value{}
	if n := len(b.frames); n > 0 {
		f.manual |= b.frames[n-1].manual
		f.diverge |= b.frames[n-1].diverge
	}
	b.frames = append(b.frames, f)
}

func (b *Builder) pop() *frame {
	f := b.frames[len(b.frames)-1]
	b.frames = b.frames[:len(b.frames)-1]
	return f
}

func (b *Builder) top() *frame { return b.frames[len(b.frames)-1] }

// Mesh returns the mesh given to Trace.
func (b *Builder) Mesh() *mesh.Mesh { return b.m.mesh }

func (b *Builder) position(skip int) position {
	if b.at != nil {
		return *b.at
	}
	return here(skip + 1)
}

// use returns the value by which v is known in the block being recorded:
// itself, or an argument added to every region between.
func (b *Builder) use(op string, v *Value) *Value { return b.useAt(len(b.frames)-1, op, v) }

// useAt is use for the block of frame top.
func (b *Builder) useAt(top int, op string, v *Value) *Value {
	if v == nil {
		b.fail(op, "operand is nil")
	}
	if v.block == b.frames[top].block {
		return v
	}
	if v.block.module != b.m && !b.done {
		if late := v.block.module.builder.late; late != nil && v.block == v.b().top().block {
			b.fail(op, "operand %v was made after the trace it belongs to had ended: %v", v.typ, late)
		}
		b.fail(op, "operand %v belongs to the program %q, not to %q; values live in one Trace, data passes between programs through Input and Output", v.typ, v.block.module.name, b.m.name)
	}
	for i := top - 1; i >= 0; i-- {
		if v.block != b.frames[i].block {
			continue
		}
		for _, f := range b.frames[i+1 : top+1] {
			v = f.captured(v)
		}
		return v
	}
	if b.done {
		for _, f := range b.frames[1 : top+1] {
			v = f.captured(v)
		}
		return v
	}
	b.fail(op, "operand %v was computed inside a region (scan, cond, checkpoint or shard-map body) that has ended; return it from the region", v.typ)
	return nil
}

func (f *frame) captured(v *Value) *Value {
	if a := f.alias[v]; a != nil {
		return a
	}
	a := f.capture(v)
	a.gradType = v.gradType
	f.alias[v] = a
	return a
}

// emit appends an op to the current block. The op's definition infers the
// result types and finds mistakes in the operands.
func (b *Builder) emit(kind opKind, attr any, operands ...*Value) *Op {
	if b.done {
		b.recordedLate(defs[kind].name, b.position(2))
	}
	op := &Op{kind: kind, attr: attr, block: b.top().block, pos: b.position(2)}
	op.operands = make([]*Value, len(operands))
	for i, v := range operands {
		op.operands[i] = b.use(defs[kind].name, v)
	}
	def := &defs[kind]
	if b.top().manual != 0 && def.vary == nil && !def.parallel {
		b.levelVary(op)
	}
	types, err := def.infer(op)
	if err == nil {
		for _, t := range types {
			if err = t.check(); err != nil {
				break
			}
		}
	}
	if err != nil {
		b.failAt(op.pos, def.name, op.operands, "%v", err)
	}
	b.finish(op, types)
	return op
}

// finish gives op its results and appends it to its block.
func (b *Builder) finish(op *Op, types []Type) {
	op.results = make([]*Value, len(types))
	vals := make([]Value, len(types))
	for i, t := range types {
		b.m.nextID++
		vals[i] = Value{typ: t, op: op, index: i, block: op.block, id: b.m.nextID}
		op.results[i] = &vals[i]
	}
	def := &defs[op.kind]
	if b.top().manual != 0 {
		setVary(op, def)
	}
	if def.form {
		for i, r := range op.results {
			r.gradType = op.operands[i].gradType
		}
	}
	op.block.ops = append(op.block.ops, op)
}

// setVary works out over which manual axes the results of op differ.
func setVary(op *Op, def *opDef) {
	var set axisSet
	if def.vary != nil {
		set = def.vary(op)
	} else {
		for _, o := range op.operands {
			set |= o.vary
		}
	}
	for i, r := range op.results {
		r.vary = set
		if def.parallel {
			r.vary = op.operands[i].vary
		}
	}
}

func (b *Builder) emit1(kind opKind, attr any, operands ...*Value) *Value {
	return b.emit(kind, attr, operands...).results[0]
}

// portOptions collects what the options of Input and Output say.
type portOptions struct {
	spec *sharding.Spec
	host bool
	take *Value
	don  bool
}

// PortOption says how an input or output is placed; nil says nothing.
type PortOption func(*portOptions)

// Sharded splits the array over the mesh as s says.
func Sharded(s sharding.Spec) PortOption { return func(o *portOptions) { o.spec = &s } }

// OnHost keeps the array in (pinned) host memory, where the platform has it.
func OnHost() PortOption { return func(o *portOptions) { o.host = true } }

// Donated gives the input's memory to the output that is declared with
// Into(input); the caller's buffer is gone after the call.
func Donated() PortOption { return func(o *portOptions) { o.don = true } }

// Into places an output in the memory of a donated input of the same type and
// sharding.
func Into(input *Value) PortOption { return func(o *portOptions) { o.take = input } }

const aliasPending = -2

// Input declares an argument of the program.
func (b *Builder) Input(name string, t Type, opts ...PortOption) *Value {
	if b.done {
		b.recordedLate("input", b.position(1))
		return b.top().block.addArg(t)
	}
	if len(b.frames) != 1 {
		b.fail("input", "input %q is declared inside a region; declare inputs at the top level", name)
	}
	if err := t.check(); err != nil {
		b.fail("input", "input %q of type %v: %v", name, t, err)
	}
	o := b.portOptions("input", name, t, opts)
	p := Port{Name: name, Type: t, Spec: o.spec, Alias: -1, Host: o.host}
	if o.don {
		p.Alias = aliasPending
	}
	b.m.inputs = append(b.m.inputs, p)
	b.inputs = append(b.inputs, b.position(1))
	v := b.m.main.addArg(t)
	v.spec = o.spec
	return v
}

// Output declares a result of the program.
func (b *Builder) Output(name string, v *Value, opts ...PortOption) {
	if b.done {
		b.recordedLate("output", b.position(1))
		return
	}
	if len(b.frames) != 1 {
		b.fail("output", "output %q is declared inside a region; declare outputs at the top level", name)
	}
	v = b.use("output", v)
	o := b.portOptions("output", name, v.typ, opts)
	p := Port{Name: name, Type: v.typ, Spec: o.spec, Alias: -1, Host: o.host}
	if in := o.take; in != nil {
		if in.block != b.m.main || in.op != nil {
			b.fail("output", "output %q: Into needs an input of the program", name)
		}
		src := &b.m.inputs[in.index]
		switch {
		case src.Alias == -1:
			b.fail("output", "output %q: input %q is not declared Donated", name, src.Name)
		case src.Alias >= 0:
			b.fail("output", "output %q: the memory of input %q already goes to output %q", name, src.Name, b.m.outputs[src.Alias].Name)
		case !src.Type.Equal(v.typ):
			b.fail("output", "output %q of type %v cannot take the memory of input %q of type %v", name, v.typ, src.Name, src.Type)
		}
		if p.Spec == nil {
			p.Spec = src.Spec
		} else if src.Spec == nil || !src.Spec.Equal(*p.Spec) {
			b.fail("output", "output %q is sharded %v but takes the memory of input %q, which is not", name, p.Spec, src.Name)
		}
		p.Host = src.Host
		p.Alias = in.index
		src.Alias = len(b.m.outputs)
	}
	b.m.outputs = append(b.m.outputs, p)
	b.m.main.yields = append(b.m.main.yields, v)
}

func (b *Builder) portOptions(kind, name string, t Type, opts []PortOption) portOptions {
	var o portOptions
	for _, f := range opts {
		if f != nil {
			f(&o)
		}
	}
	if o.spec != nil {
		b.checkSpec(kind+" "+fmt.Sprintf("%q", name), *o.spec, t.Shape)
	}
	return o
}

// checkSpec refuses a spec that does not fit the mesh or the shape.
func (b *Builder) checkSpec(op string, s sharding.Spec, shape []int) {
	if b.m.mesh == nil {
		b.fail(op, "sharding %v was given but the program has no mesh", s)
	}
	for _, a := range s.Axes() {
		if b.axisIndex(a) < 0 {
			b.fail(op, "sharding %v of shape [%s]: %s", s, joinInts(shape, ","), b.unknownAxis(a))
		}
	}
	if err := s.Validate(b.m.mesh, shape); err != nil {
		b.fail(op, "sharding %v of shape [%s]: %v", s, joinInts(shape, ","), err)
	}
}

// axisSet is a set of mesh axes, one bit each.
type axisSet uint64

// axisSetOf returns the set of the named axes.
func (b *Builder) axisSetOf(op string, names []string) axisSet {
	var s axisSet
	for _, n := range names {
		i := b.axisIndex(n)
		if i < 0 {
			b.fail(op, "%s", b.unknownAxis(n))
		}
		if s>>i&1 == 1 {
			b.fail(op, "axis %q is given twice", n)
		}
		s |= 1 << i
	}
	return s
}

func (b *Builder) axisIndex(name string) int {
	for i, a := range b.m.axes {
		if a == name {
			return i
		}
	}
	return -1
}

func (m *Module) axisNames(s axisSet) []string {
	var out []string
	for i, a := range m.axes {
		if s>>i&1 == 1 {
			out = append(out, a)
		}
	}
	return out
}

func (m *Module) axisSize(s axisSet) int {
	n := 1
	for _, a := range m.axisNames(s) {
		n *= m.mesh.AxisSize(a)
	}
	return n
}

func quoted(names []string) string {
	return `"` + strings.Join(names, `", "`) + `"`
}
