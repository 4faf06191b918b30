package hlo

// inferTripCount works out how often a loop runs where the compiler left no
// note: loops that count an induction variable from a constant by a constant
// step up to a constant bound, as scans do.
func (i *Instruction) inferTripCount() (int64, bool) {
	body, cond := i.Body(), i.Condition()
	if body == nil || cond == nil || body.Root == nil || cond.Root == nil || len(i.Operands) != 1 {
		return 0, false
	}
	inits := elements(i.Operands[0])
	test := scalarOf(cond.Root, nil, 0)
	next := elements(body.Root)
	if test.kind != compareValue || inits == nil || next == nil {
		return 0, false
	}
	// A bound may be a constant, or carried through the loop unchanged.
	bound, ok := test.bound(inits, next)
	if !ok || test.index >= len(inits) || test.index >= len(next) {
		return 0, false
	}
	start := scalarOf(inits[test.index], nil, 0)
	step := scalarOf(next[test.index], nil, 0)
	if start.kind != constValue || step.kind != sumValue || step.index != test.index || step.n <= 0 {
		return 0, false
	}
	last := bound
	if test.orEqual {
		last++
	}
	if last <= start.n {
		return 0, true
	}
	return (last - start.n + step.n - 1) / step.n, true
}

// scalar is what is known about a scalar inside a loop.
type scalar struct {
	kind    scalarKind
	n       int64 // of a constant; the addend of a sum
	index   int   // the loop variable
	orEqual bool  // of a comparison: <= instead of <
	other   *scalar
}

type scalarKind int

const (
	unknownValue scalarKind = iota
	constValue
	loopValue    // element index of the loop's state
	sumValue     // element index + n
	compareValue // element index < other
)

func (t scalar) bound(inits, next []*Instruction) (int64, bool) {
	switch t.other.kind {
	case constValue:
		return t.other.n, true
	case loopValue:
		k := t.other.index
		if k >= len(inits) || k >= len(next) {
			return 0, false
		}
		if v := scalarOf(next[k], nil, 0); v.kind != loopValue || v.index != k {
			return 0, false
		}
		v := scalarOf(inits[k], nil, 0)
		return v.n, v.kind == constValue
	}
	return 0, false
}

// elements returns the elements of a tuple built by a tuple instruction.
func elements(i *Instruction) []*Instruction {
	if i.Opcode != "tuple" {
		return nil
	}
	return i.Operands
}

// scalarOf looks through copies and fusions. args are the values of the
// parameters inside a fusion.
func scalarOf(i *Instruction, args []scalar, depth int) scalar {
	if depth > maxDepth {
		return scalar{}
	}
	operand := func(k int) scalar { return scalarOf(i.Operands[k], args, depth+1) }
	switch n := len(i.Operands); {
	case i.Opcode == "constant" && i.hasConstant:
		return scalar{kind: constValue, n: i.constant}
	case i.Opcode == "get-tuple-element" && n == 1 && i.Operands[0].Opcode == "parameter" && args == nil && i.TupleIndex >= 0:
		return scalar{kind: loopValue, index: i.TupleIndex}
	case i.Opcode == "parameter" && args != nil && i.ParameterNumber < len(args):
		return args[i.ParameterNumber]
	case i.Opcode == "copy" && n == 1, i.Opcode == "bitcast" && n == 1:
		return operand(0)
	case i.Opcode == "fusion" && len(i.Called) == 1 && i.Called[0].Root != nil:
		inner := make([]scalar, n)
		for k := range inner {
			inner[k] = operand(k)
		}
		return scalarOf(i.Called[0].Root, inner, depth+1)
	case i.Opcode == "add" && n == 2:
		return add(operand(0), operand(1))
	case i.Opcode == "compare" && n == 2:
		return compare(i.comparison, operand(0), operand(1))
	}
	return scalar{}
}

func add(a, b scalar) scalar {
	if a.kind == constValue {
		a, b = b, a
	}
	if a.kind == loopValue && b.kind == constValue {
		return scalar{kind: sumValue, index: a.index, n: b.n}
	}
	return scalar{}
}

func compare(direction string, a, b scalar) scalar {
	switch direction {
	case "GT":
		direction, a, b = "LT", b, a
	case "GE":
		direction, a, b = "LE", b, a
	}
	if a.kind != loopValue || direction != "LT" && direction != "LE" {
		return scalar{}
	}
	return scalar{kind: compareValue, index: a.index, other: &b, orEqual: direction == "LE"}
}
