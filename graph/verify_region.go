package graph

import (
	"slices"

	"titan/sharding"
)

// axisSetOf returns the set of the named axes that the mesh has.
func (m *Module) axisSetOf(names []string) axisSet {
	var s axisSet
	for _, n := range names {
		if i := slices.Index(m.axes, n); i >= 0 {
			s |= 1 << i
		}
	}
	return s
}

// regionCount is how many blocks an op of this kind has; -1 for one or more.
func regionCount(k opKind) int {
	switch k {
	case opScan, opCheckpoint, opCustomVJP, opShardMap:
		return 1
	case opWhile:
		return 2
	case opCond:
		return -1
	}
	return 0
}

// regions checks the blocks of op: how many they are, that there is an argument
// for each operand and a yield for each result, and what they hold.
func (c *checker) regions(op *Op, manual axisSet) *Error {
	if n := regionCount(op.kind); n >= 0 && len(op.blocks) != n || n < 0 && len(op.blocks) == 0 {
		return refuse(op, "the op has %d regions", len(op.blocks))
	}
	if len(op.blocks) == 0 {
		return nil
	}
	first, results := 0, len(op.results)
	inside := manual
	switch at := op.attr.(type) {
	case *scanAttr:
		if at.n < 0 || at.consts < 0 || at.carries < 0 || at.consts+at.carries > len(op.operands) {
			return refuse(op, "%d iterations with %d constants and %d carries of %d operands", at.n, at.consts, at.carries, len(op.operands))
		}
		if xs, ys := len(op.operands)-at.consts-at.carries, results-at.carries; at.ahead < 0 || at.ahead > xs || at.behind < 0 || at.behind > ys {
			return refuse(op, "%d of %d rows are read ahead, %d of %d written behind", at.ahead, xs, at.behind, ys)
		}
	case whileAttr:
		if at.carries < 1 || at.carries != results || at.carries > len(op.operands) {
			return refuse(op, "%d carries of %d operands and %d results", at.carries, len(op.operands), results)
		}
	case *condAttr:
		first = 1
		if at.declared < 0 || at.declared+len(at.used) != results {
			return refuse(op, "%d declared and %d kept results of %d", at.declared, len(at.used), results)
		}
	case *shardMapAttr:
		if err := c.shardMap(op, at, manual); err != nil {
			return err
		}
		inside |= at.manual
	case Policy, customAttr:
	default:
		return refuse(op, "attribute of kind %T", op.attr)
	}
	for k, blk := range op.blocks {
		if blk == nil || len(op.operands) < first || len(blk.args) != len(op.operands)-first {
			return refuse(op, "region %d does not have an argument for each operand", k)
		}
		condition := op.kind == opWhile && k == 0
		if !condition && len(blk.yields) != results || condition && len(blk.yields) != 1 {
			return refuse(op, "region %d yields %d values for %d results", k, len(blk.yields), results)
		}
		for i, a := range blk.args {
			o := op.operands[first+i]
			if a == nil {
				return refuse(op, "argument %d of region %d is nil", i, k)
			}
			if !rowType(op, i, o.typ).Equal(a.typ) && op.kind != opShardMap { // whose own rule is in infer
				return refuse(op, "argument %d of region %d has type %v, the operand %v", i, k, a.typ, o.typ)
			}
			want := o.vary
			if at, ok := op.attr.(*shardMapAttr); ok {
				want |= c.m.axisSetOf(at.in[i].Axes())
			}
			if a.vary != want {
				return refuse(op, "argument %d of region %d varies over %s, its operand gives %s", i, k, c.axes(a.vary), c.axes(want))
			}
		}
		if err := c.block(blk, op, inside); err != nil {
			return err
		}
	}
	return nil
}

// rowType is the type of the argument for operand i of type t.
func rowType(op *Op, i int, t Type) Type {
	if at, ok := op.attr.(*scanAttr); ok && i >= at.consts+at.carries && t.Rank() > 0 {
		return row(t)
	}
	return t
}

func (c *checker) shardMap(op *Op, at *shardMapAttr, manual axisSet) *Error {
	switch {
	case c.m.mesh == nil || at.mesh != c.m.mesh:
		return refuse(op, "the region's mesh is not the program's")
	case at.manual == 0 || at.manual&manual != 0 || at.manual>>len(c.m.axes) != 0:
		return refuse(op, "makes %s manual, with %s manual around it", c.axes(at.manual), c.axes(manual))
	case at.around != manual:
		return refuse(op, "has %s recorded as manual around it, not %s", c.axes(at.around), c.axes(manual))
	case len(at.in) != len(op.operands) || len(at.out) != len(op.results) || at.declared < 0 || at.declared > len(op.results):
		return refuse(op, "%d specs for %d operands, %d specs for %d results", len(at.in), len(op.operands), len(at.out), len(op.results))
	}
	check := func(s sharding.Spec, v *Value, what string, i int) *Error {
		if err := s.Validate(at.mesh, v.typ.Shape); err != nil {
			return refuse(op, "%s %d of type %v split as %v: %v", what, i, v.typ, s, err)
		}
		if extra := c.m.axisSetOf(s.Axes()) &^ at.manual; extra != 0 {
			return refuse(op, "%s %d is split over %s, which the region does not make manual", what, i, c.axes(extra))
		}
		return nil
	}
	for i, s := range at.in {
		if err := check(s, op.operands[i], "operand", i); err != nil {
			return err
		}
	}
	for i, s := range at.out {
		if err := check(s, op.results[i], "result", i); err != nil {
			return err
		}
	}
	return nil
}

// vary derives over which manual axes op's results may differ from device to
// device, and compares.
func (c *checker) vary(op *Op) *Error {
	def := &defs[op.kind]
	want := make([]axisSet, len(op.results))
	switch {
	case len(op.blocks) > 0:
		if err := c.regionVary(op, want); err != nil {
			return err
		}
	case def.parallel:
		for i := range want {
			want[i] = op.operands[i].vary
		}
	default:
		var all axisSet
		for i, o := range op.operands {
			if i > 0 && o.vary != all && def.vary == nil && op.kind != opKept {
				return refuse(op, "operand %d varies over %s, the ones before over %s", i, c.axes(o.vary), c.axes(all))
			}
			all |= o.vary
		}
		if def.vary != nil {
			all = def.vary(op)
		}
		for i := range want {
			want[i] = all
		}
	}
	for i, r := range op.results {
		if r.vary != want[i] {
			return refuse(op, "result %d is recorded as varying over %s, it varies over %s", i, c.axes(r.vary), c.axes(want[i]))
		}
	}
	return nil
}

// regionVary fills in want for an op with regions.
func (c *checker) regionVary(op *Op, want []axisSet) *Error {
	for k, blk := range op.blocks {
		if op.kind == opWhile && k == 0 {
			continue
		}
		for i, y := range blk.yields {
			v := y.vary
			switch at := op.attr.(type) {
			case *scanAttr:
				if i < at.carries && v != blk.args[at.consts+i].vary {
					return refuse(op, "carry %d enters the body varying over %s and leaves it over %s", i, c.axes(blk.args[at.consts+i].vary), c.axes(v))
				}
			case whileAttr:
				if v != blk.args[i].vary {
					return refuse(op, "carry %d enters the body varying over %s and leaves it over %s", i, c.axes(blk.args[i].vary), c.axes(v))
				}
			case *condAttr:
				v |= op.operands[0].vary
			case *shardMapAttr:
				named := c.m.axisSetOf(at.out[i].Axes())
				if v&at.manual != named {
					return refuse(op, "yield %d varies over %s of the manual axes, its spec %v names others", i, c.axes(v&at.manual), at.out[i])
				}
				v &= at.around
			}
			want[i] |= v
		}
	}
	return nil
}
