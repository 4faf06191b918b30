package hlo

// inferTripCount works out how often a loop runs where the compiler left no
// note: loops that count an induction variable from a constant by a constant
// step up to a constant bound, as scans do.
func (i *Instruction) inferTripCount() (int64, bool) {
	body, cond := i.Body(), i.Condition()
	if body == nil || cond == nil || body.Root == nil || cond.Root == nil || len(i.Operands) != 1 {
		return 0, false
	}
	l := loop{inits: elements(i.Operands[0]), next: elements(body.Root), budget: maxScalarSteps}
	test := l.scalar(cond.Root, nil)
	if test.kind != compareValue || l.inits == nil || l.next == nil {
		return 0, false
	}
	bound, ok := l.bound(*test.other)
	if !ok || test.index >= len(l.inits) || test.index >= len(l.next) {
		return 0, false
	}
	start := l.scalar(l.inits[test.index], nil)
	step := l.scalar(l.next[test.index], nil)
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

// loop is a while loop that is being looked into.
type loop struct {
	inits, next []*Instruction // the state before and after a turn
	budget      int            // of instructions to look at
}

// maxScalarSteps bounds the search; real conditions take a handful of steps.
const maxScalarSteps = 1000

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

// bound returns the value of a bound that is constant, or carried through the
// loop unchanged.
func (l *loop) bound(b scalar) (int64, bool) {
	switch b.kind {
	case constValue:
		return b.n, true
	case loopValue:
		k := b.index
		if k >= len(l.inits) || k >= len(l.next) {
			return 0, false
		}
		if v := l.scalar(l.next[k], nil); v.kind != loopValue || v.index != k {
			return 0, false
		}
		v := l.scalar(l.inits[k], nil)
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

// scalar looks through copies and fusions. args are the values of the parameters
// inside a fusion.
func (l *loop) scalar(i *Instruction, args []scalar) scalar {
	if l.budget--; l.budget < 0 {
		return scalar{}
	}
	operand := func(k int) scalar { return l.scalar(i.Operands[k], args) }
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
		return l.scalar(i.Called[0].Root, inner)
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
