package graph

import "fmt"

// Verify checks the program's invariants: every operand is defined before its
// use in the same block, and every op has the result types that its operands
// give it. Trace calls it; passes that change a program should call it again.
func (m *Module) Verify() error {
	if len(m.main.args) != len(m.inputs) || len(m.main.yields) != len(m.outputs) {
		return &Error{Op: "verify", Msg: fmt.Sprintf("%d arguments for %d inputs, %d results for %d outputs", len(m.main.args), len(m.inputs), len(m.main.yields), len(m.outputs))}
	}
	return m.main.verify()
}

func (blk *Block) verify() error {
	defined := make(map[*Value]bool, len(blk.args)+len(blk.ops))
	for i, a := range blk.args {
		if a.block != blk || a.op != nil || a.index != i {
			return &Error{Op: "verify", Msg: fmt.Sprintf("argument %d is not at home in its block", i)}
		}
		defined[a] = true
	}
	for _, op := range blk.ops {
		bad := func(format string, args ...any) error {
			return &Error{Op: defs[op.kind].name, Pos: op.pos.String(), Operands: describeAll(op.operands), Msg: "verify: " + fmt.Sprintf(format, args...)}
		}
		if op.block != blk {
			return bad("the op is not at home in its block")
		}
		for i, o := range op.operands {
			if o == nil || !defined[o] {
				return bad("operand %d is not defined before its use in this block", i)
			}
		}
		for _, inner := range op.blocks {
			if err := inner.verify(); err != nil {
				return err
			}
		}
		types, err := defs[op.kind].infer(op)
		if err != nil {
			return bad("%v", err)
		}
		if len(types) != len(op.results) {
			return bad("%d results, %d expected", len(op.results), len(types))
		}
		for i, r := range op.results {
			if !r.typ.Equal(types[i]) {
				return bad("result %d has type %v, the operands give %v", i, r.typ, types[i])
			}
			if r.op != op || r.index != i || r.block != blk {
				return bad("result %d is not at home in its op", i)
			}
			defined[r] = true
		}
	}
	for i, y := range blk.yields {
		if !defined[y] {
			return &Error{Op: "verify", Msg: fmt.Sprintf("result %d of a block is not defined in it", i)}
		}
	}
	return nil
}
