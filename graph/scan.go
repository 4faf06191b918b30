package graph

import (
	"fmt"
	"slices"
)

// scanAttr describes a loop of n iterations. Operands are consts, carries and
// xs; the body takes the same with xs one row each and yields carries and ys;
// results are carries and stacked ys.
type scanAttr struct {
	n               int
	reverse         bool
	consts, carries int
	// ahead of the xs, the last, are rows of the next iteration, behind of the ys, the
	// last, rows of the one before; see GatherAhead. What would lie outside, before the
	// first row or after the last, is the first or last.
	ahead, behind int
}

func init() {
	define(opScan, opDef{
		name:  "scan",
		infer: inferScan,
		vjp:   scanVJP, wideCT: true,
		print: printScan,
	})
}

func row(t Type) Type { return Type{t.DType, t.Shape[1:]} }

func stacked(n int, t Type) Type {
	return Type{t.DType, append([]int{n}, t.Shape...)}
}

func inferScan(op *Op) ([]Type, error) {
	at, body := op.attr.(*scanAttr), op.blocks[0]
	if len(body.args) != len(op.operands) || len(body.yields) < at.carries {
		return nil, fmt.Errorf("body has %d arguments and %d results for %d operands", len(body.args), len(body.yields), len(op.operands))
	}
	var out []Type
	for i, o := range op.operands {
		want := o.typ
		if i >= at.consts+at.carries {
			if o.Rank() == 0 || o.typ.Shape[0] != at.n {
				return nil, fmt.Errorf("scanned operand of type %v does not have %d rows", o.typ, at.n)
			}
			want = row(o.typ)
		}
		if !body.args[i].typ.Equal(want) {
			return nil, fmt.Errorf("body argument %d has type %v, operand gives %v", i, body.args[i].typ, want)
		}
	}
	for i, y := range body.yields {
		if i < at.carries {
			if c := op.operands[at.consts+i].typ; !y.typ.Equal(c) {
				return nil, fmt.Errorf("carry %d enters with type %v and leaves the body with %v", i, c, y.typ)
			}
			out = append(out, y.typ)
		} else {
			out = append(out, stacked(at.n, y.typ))
		}
	}
	return out, nil
}

// scanBuilder records one scan. Constants, carries and xs may be added in any
// order while the body is recorded.
type scanBuilder struct {
	b                   *Builder
	at                  *scanAttr
	blk                 *Block
	depth               int // of the frame around the scan
	consts, carries, xs []pair
}

// pair is an operand and the body argument that stands for it.
type pair struct{ outer, arg *Value }

func (b *Builder) beginScan(n int, reverse bool) *scanBuilder {
	s := &scanBuilder{b: b, at: &scanAttr{n: n, reverse: reverse}, blk: &Block{module: b.m}, depth: len(b.frames) - 1}
	b.push(&frame{block: s.blk, capture: func(outer *Value) *Value {
		arg := s.blk.addArg(outer.typ)
		arg.vary = outer.vary
		s.consts = append(s.consts, pair{outer, arg})
		return arg
	}})
	return s
}

func (s *scanBuilder) carry(init *Value) *Value {
	init = s.b.useAt(s.depth, "scan", init)
	arg := s.blk.addArg(init.typ)
	arg.vary = init.vary
	s.carries = append(s.carries, pair{init, arg})
	return arg
}

// x adds a scanned operand of n rows and returns the row.
func (s *scanBuilder) x(outer *Value) *Value {
	outer = s.b.useAt(s.depth, "scan", outer)
	if outer.Rank() == 0 || outer.typ.Shape[0] != s.at.n {
		s.b.failAt(s.b.position(2), "scan", []*Value{outer}, "scanned values must all have %d rows", s.at.n)
	}
	arg := s.blk.addArg(row(outer.typ))
	arg.vary, arg.gradType = outer.vary, outer.gradType
	s.xs = append(s.xs, pair{outer, arg})
	return arg
}

// discard drops the recording.
func (s *scanBuilder) discard() { s.b.pop() }

// end closes the body and records the loop.
func (s *scanBuilder) end(carry, ys []*Value) (outCarry, outYs []*Value) {
	b := s.b
	if len(carry) != len(s.carries) {
		b.fail("scan", "the body returns %d carries, the loop has %d", len(carry), len(s.carries))
	}
	for i, y := range append(append([]*Value(nil), carry...), ys...) {
		y = b.use("scan", y)
		if i < len(carry) {
			y = b.levelTo(y, s.carries[i].arg.vary)
		}
		s.blk.yields = append(s.blk.yields, y)
	}
	b.pop()
	s.at.consts, s.at.carries = len(s.consts), len(s.carries)
	op := &Op{kind: opScan, attr: s.at, block: b.top().block, blocks: []*Block{s.blk}, pos: b.position(2)}
	s.blk.args = s.blk.args[:0]
	for _, list := range [][]pair{s.consts, s.carries, s.xs} {
		for _, p := range list {
			p.arg.index = len(s.blk.args)
			s.blk.args = append(s.blk.args, p.arg)
			op.operands = append(op.operands, p.outer)
		}
	}
	b.finishRegion(op, s.blk.yields)
	return slices.Clone(op.results[:len(carry)]), slices.Clone(op.results[len(carry):])
}

// finishRegion infers and appends a structured op, whose results vary as the
// yields they come from.
func (b *Builder) finishRegion(op *Op, yields []*Value) {
	types, err := defs[op.kind].infer(op)
	if err != nil {
		b.failAt(op.pos, defs[op.kind].name, op.operands, "%v", err)
	}
	for _, t := range types {
		r := b.m.newValue(t, op.block)
		r.op, r.index = op, len(op.results)
		r.vary = yields[r.index].vary & b.top().manual
		r.gradType = yields[r.index].gradType
		op.results = append(op.results, r)
	}
	op.block.ops = append(op.block.ops, op)
}

// ScanOption changes how Scan iterates.
type ScanOption func(*scanOptions)

type scanOptions struct {
	n       int
	reverse bool
}

// Iterations gives the trip count, needed only when nothing is scanned over.
func Iterations(n int) ScanOption { return func(o *scanOptions) { o.n = n } }

// InReverse visits rows from the last to the first; ys stay aligned with xs.
func InReverse() ScanOption { return func(o *scanOptions) { o.reverse = true } }

// Scan runs body once for each row of xs (all have the same leading size n),
// threading carry through. It returns the last carry and the rows ys stacked
// to n. The body is recorded once, so the program does not grow with n; it may
// use any value from outside.
func (b *Builder) Scan(init, xs []*Value, body func(carry, x []*Value) (next, ys []*Value), opts ...ScanOption) (carry, ys []*Value) {
	o := scanOptions{n: -1}
	for _, f := range opts {
		f(&o)
	}
	for _, x := range xs {
		if x == nil || x.Rank() == 0 {
			b.failAt(b.position(1), "scan", []*Value{x}, "scanned values need a leading dimension")
		}
		if o.n < 0 {
			o.n = x.typ.Shape[0]
		}
	}
	if o.n < 0 {
		b.fail("scan", "nothing is scanned over; give the number of Iterations")
	}
	init = append([]*Value(nil), init...)
	for {
		s := b.beginScan(o.n, o.reverse)
		var cs, rows []*Value
		for _, v := range init {
			cs = append(cs, s.carry(v))
		}
		for _, v := range xs {
			rows = append(rows, s.x(v))
		}
		next, outs := body(cs, rows)
		if len(next) != len(init) {
			b.fail("scan", "the body returns %d carries, the loop has %d", len(next), len(init))
		}
		// In a manual region a carry must enter varying over whatever the body
		// makes it vary over; then the body is recorded again.
		again := false
		var grown []axisSet
		for i, v := range next {
			v = b.use("scan", v)
			next[i] = v
			grown = append(grown, v.vary&^cs[i].vary)
			again = again || grown[i] != 0
		}
		if !again {
			return s.end(next, outs)
		}
		s.discard()
		for i := range init {
			init[i] = b.levelTo(b.use("scan", init[i]), grown[i])
		}
	}
}
