package graph

import (
	"fmt"
	"slices"

	"titan/sharding"
)

// Verify checks what every pass relies on:
//
//   - Values have unique ids and are defined once, in the block that uses them,
//     before their use; regions see no values but their own arguments.
//   - Every op has the regions its kind asks for, and the result types that its
//     operands give it.
//   - In manual regions the axes over which a value may differ between devices
//     follow from the op's operands, operands that meet differ over the same
//     axes, results of a ShardMap differ only over axes their specs name, and
//     collectives run only over manual axes.
//   - Shardings fit the mesh and the shapes.
//   - An output takes the memory of at most one input, of the same type,
//     sharding and memory.
//
// The error is an *Error that names the op and the line that wrote it. Trace
// calls Verify; passes that change a program should call it again.
//
// A program that ops were recorded for after its Trace had returned is refused
// too: they would be missing.
func (m *Module) Verify() error {
	if m.builder != nil && m.builder.late != nil {
		return m.builder.late
	}
	c := checker{m: m, defined: make([]*Value, m.nextID+1), blocks: map[*Block]bool{}}
	err := c.ports()
	if err == nil {
		err = c.block(m.main, nil, 0)
	}
	if err != nil {
		return err
	}
	return nil
}

// verifyPasses makes Trace and VJP verify the program before and after each
// pass. Tests of this package set it.
var verifyPasses = false

// checkPass verifies what has been recorded so far, regions that are still open
// included.
func (b *Builder) checkPass(pass string) {
	if !verifyPasses {
		return
	}
	c := checker{m: b.m, defined: make([]*Value, b.m.nextID+1), blocks: map[*Block]bool{}}
	for _, f := range b.frames {
		if err := c.openBlock(f.block, f.manual); err != nil {
			e := *err
			e.Msg = "after " + pass + ": " + e.Msg
			panic(abort{&e})
		}
	}
}

// checker walks a program once.
type checker struct {
	m       *Module
	defined []*Value // by id
	blocks  map[*Block]bool
}

// refuse makes the error for op; nil stands for the program's entry function.
func refuse(op *Op, format string, args ...any) *Error {
	e := &Error{Op: "verify", Msg: fmt.Sprintf(format, args...)}
	if op != nil {
		e.Op, e.Pos, e.Operands = op.name(), op.pos.String(), describeAll(op.operands)
		e.Msg = "verify: " + e.Msg
	}
	return e
}

func (op *Op) name() string {
	if int(op.kind) < len(defs) && defs[op.kind].name != "" {
		return defs[op.kind].name
	}
	return fmt.Sprintf("op of unknown kind %d", op.kind)
}

// block checks the ops, arguments and yields of blk, which belongs to owner.
// manual are the axes that are manual inside.
func (c *checker) block(blk *Block, owner *Op, manual axisSet) *Error {
	if err := c.openBlock(blk, manual); err != nil {
		if err.Pos == "" && owner != nil { // of an argument, which has no position
			return refuse(owner, "%s", err.Msg)
		}
		return err
	}
	for i, y := range blk.yields {
		if why := c.unusable(y, blk); why != "" {
			return refuse(owner, "yield %d %s", i, why)
		}
	}
	return nil
}

func (c *checker) openBlock(blk *Block, manual axisSet) *Error {
	if blk == nil || blk.module != c.m {
		return refuse(nil, "a block does not belong to the program")
	}
	if c.blocks[blk] {
		return refuse(nil, "a block belongs to two ops")
	}
	c.blocks[blk] = true
	for i, a := range blk.args {
		if a == nil || a.block != blk || a.op != nil || a.index != i {
			return refuse(nil, "argument %d is not at home in its block", i)
		}
		if err := c.define(a, manual); err != "" {
			return refuse(nil, "argument %d %s", i, err)
		}
	}
	for _, op := range blk.ops {
		if err := c.op(op, blk, manual); err != nil {
			return err
		}
	}
	return nil
}

// define enters v among the defined values, and says what is wrong with it.
func (c *checker) define(v *Value, manual axisSet) string {
	if v.id < 1 || v.id >= len(c.defined) || c.defined[v.id] != nil {
		return fmt.Sprintf("has id %d, which is out of range or taken", v.id)
	}
	c.defined[v.id] = v
	if err := v.typ.check(); err != nil {
		return fmt.Sprintf("has type %v: %v", v.typ, err)
	}
	if v.gradType != 0 && !v.gradType.IsFloat() {
		return fmt.Sprintf("has cotangents of type %v", v.gradType)
	}
	if extra := v.vary &^ manual; extra != 0 {
		return fmt.Sprintf("of type %v varies over %s, not manual here", v.typ, c.axes(extra))
	}
	if v.spec != nil {
		if err := v.spec.Validate(c.m.mesh, v.typ.Shape); err != nil {
			return fmt.Sprintf("of type %v is sharded %v: %v", v.typ, v.spec, err)
		}
	}
	return ""
}

// axes names the axes of a set, also of bits that stand for no axis.
func (c *checker) axes(s axisSet) string {
	if s == 0 {
		return "no axis"
	}
	names := c.m.axisNames(s)
	for i := len(c.m.axes); i < 64; i++ {
		if s>>i&1 == 1 {
			names = append(names, fmt.Sprintf("axis %d", i))
		}
	}
	return quoted(names)
}

// unusable says why v cannot be used in blk, "" if it can.
func (c *checker) unusable(v *Value, blk *Block) string {
	switch {
	case v == nil:
		return "is nil"
	case v.block == nil || v.block.module != c.m:
		return fmt.Sprintf("of type %v belongs to another program", v.typ)
	case v.block != blk:
		return fmt.Sprintf("of type %v belongs to another block; a region sees only its own arguments", v.typ)
	case v.id < 1 || v.id >= len(c.defined) || c.defined[v.id] != v:
		return fmt.Sprintf("of type %v is not defined before its use", v.typ)
	}
	return ""
}

func (c *checker) op(op *Op, blk *Block, manual axisSet) *Error {
	if op == nil {
		return refuse(nil, "an op is nil")
	}
	if int(op.kind) >= len(defs) || defs[op.kind].infer == nil {
		return refuse(op, "there is no such op")
	}
	if op.block != blk {
		return refuse(op, "the op is not at home in its block")
	}
	for i, o := range op.operands {
		if why := c.unusable(o, blk); why != "" {
			return refuse(op, "operand %d %s", i, why)
		}
	}
	for i, r := range op.results {
		if r == nil || r.op != op || r.index != i || r.block != blk {
			return refuse(op, "result %d is not at home in its op", i)
		}
	}
	if err := c.regions(op, manual); err != nil {
		return err
	}
	types, err := reinfer(op)
	if err != nil {
		return refuse(op, "%v", err)
	}
	if len(types) != len(op.results) {
		return refuse(op, "%d results, %d expected", len(op.results), len(types))
	}
	for i, r := range op.results {
		if !r.typ.Equal(types[i]) {
			return refuse(op, "result %d has type %v, the operands give %v", i, r.typ, types[i])
		}
		if why := c.define(r, manual); why != "" {
			return refuse(op, "result %d %s", i, why)
		}
	}
	if err := c.attributes(op, manual); err != nil {
		return err
	}
	return c.vary(op)
}

// reinfer infers the result types. Definitions trust the number of operands and
// the kind of attribute, which a broken pass may have got wrong.
func reinfer(op *Op) (types []Type, err error) {
	defer func() {
		if r := recover(); r != nil {
			types, err = nil, fmt.Errorf("wrong number of operands or kind of attribute: %v", r)
		}
	}()
	return defs[op.kind].infer(op)
}

// ports checks the entry function against the declared inputs and outputs.
func (c *checker) ports() *Error {
	m := c.m
	if m.main == nil || len(m.main.args) != len(m.inputs) || len(m.main.yields) != len(m.outputs) {
		return refuse(nil, "the entry function does not have the declared %d inputs and %d outputs", len(m.inputs), len(m.outputs))
	}
	taken := map[int]int{}
	for i, p := range m.inputs {
		if !p.Type.Equal(m.main.args[i].typ) {
			return refuse(nil, "input %q is declared %v, the argument has type %v", p.Name, p.Type, m.main.args[i].typ)
		}
		if err := c.port("input", p); err != nil {
			return err
		}
		if p.Alias == -1 {
			continue
		}
		if p.Alias < 0 || p.Alias >= len(m.outputs) || m.outputs[p.Alias].Alias != i {
			return refuse(nil, "input %q gives its memory to output %d, which does not take it", p.Name, p.Alias)
		}
		if j, ok := taken[p.Alias]; ok {
			return refuse(nil, "output %q takes the memory of inputs %q and %q", m.outputs[p.Alias].Name, m.inputs[j].Name, p.Name)
		}
		taken[p.Alias] = i
	}
	for o, p := range m.outputs {
		if y := m.main.yields[o]; y == nil || !p.Type.Equal(y.typ) {
			return refuse(nil, "output %q is declared %v, which is not the type of its value", p.Name, p.Type)
		}
		if err := c.port("output", p); err != nil {
			return err
		}
		if p.Alias == -1 {
			continue
		}
		if i, ok := taken[o]; !ok || i != p.Alias {
			return refuse(nil, "output %q takes the memory of input %d, which does not give it", p.Name, p.Alias)
		}
		in := m.inputs[p.Alias]
		switch {
		case !in.Type.Equal(p.Type):
			return refuse(nil, "output %q of type %v takes the memory of input %q of type %v", p.Name, p.Type, in.Name, in.Type)
		case in.Host != p.Host:
			return refuse(nil, "output %q and input %q share memory but only one is on the host", p.Name, in.Name)
		case (in.Spec == nil) != (p.Spec == nil) || in.Spec != nil && !in.Spec.Equal(*p.Spec):
			return refuse(nil, "output %q and input %q share memory but are sharded differently", p.Name, in.Name)
		}
	}
	return nil
}

func (c *checker) port(kind string, p Port) *Error {
	if p.Spec == nil {
		return nil
	}
	if err := p.Spec.Validate(c.m.mesh, p.Type.Shape); err != nil {
		return refuse(nil, "%s %q of type %v is sharded %v: %v", kind, p.Name, p.Type, *p.Spec, err)
	}
	return nil
}

// attributes checks what the type rules do not look at.
func (c *checker) attributes(op *Op, manual axisSet) *Error {
	switch at := op.attr.(type) {
	case collectiveAttr:
		return c.collective(op, at, manual)
	case constrainAttr:
		for _, s := range []sharding.Spec{at.spec, at.ct} {
			if err := s.Validate(c.m.mesh, op.results[0].typ.Shape); err != nil {
				return refuse(op, "sharding %v: %v", s, err)
			}
			if used := c.m.axisSetOf(s.Axes()) & manual; used != 0 {
				return refuse(op, "sharding %v names %s, manual here", s, c.axes(used))
			}
		}
	case CustomCallSpec:
		if !at.OnDevice || c.m.mesh == nil {
			break
		}
		for i, a := range c.m.mesh.Axes() {
			if a.Size > 1 && manual>>i&1 == 0 {
				return refuse(op, "%q works on one device's part of the data, but axis %q is not manual here", at.Target, a.Name)
			}
		}
	case constAttr:
		want := at.typ.Bytes()
		if at.splat {
			want = at.typ.DType.Size()
		}
		if len(at.data) != want {
			return refuse(op, "%d bytes of data, type %v needs %d", len(at.data), at.typ, want)
		}
	case axisSet:
		if at == 0 || at&^manual != 0 {
			return refuse(op, "spreads over %s, not all manual here", c.axes(at))
		}
	case string:
		if op.kind == opToMemory && at != hostMemory && at != deviceMemory {
			return refuse(op, "unknown memory %q", at)
		}
	}
	return nil
}

func (c *checker) collective(op *Op, at collectiveAttr, manual axisSet) *Error {
	set := c.m.axisSetOf(at.axes)
	switch {
	case set == 0 || set != at.set:
		return refuse(op, "axes %s are not those of the set %s", quoted(at.axes), c.axes(at.set))
	case set&^manual != 0:
		return refuse(op, "axes %s are not manual here", c.axes(set&^manual))
	case at.n != c.m.axisSize(set):
		return refuse(op, "%d devices take part, axes %s have %d", at.n, quoted(at.axes), c.m.axisSize(set))
	case op.operands[0].vary&set != set:
		return refuse(op, "the operand does not vary over %s", c.axes(set&^op.operands[0].vary))
	}
	for i, a := range at.axes {
		if slices.Contains(at.axes[:i], a) {
			return refuse(op, "axis %q is given twice", a)
		}
	}
	if (op.kind == opAllReduce || op.kind == opReduceScatter) && at.kind > reduceProd {
		return refuse(op, "cannot reduce by %v", at.kind)
	}
	from, to := map[int]bool{}, map[int]bool{}
	for _, p := range at.pair {
		if min(p[0], p[1]) < 0 || max(p[0], p[1]) >= at.n || from[p[0]] || to[p[1]] {
			return refuse(op, "pair %v is out of range or repeats a device", p)
		}
		from[p[0]], to[p[1]] = true, true
	}
	return nil
}
