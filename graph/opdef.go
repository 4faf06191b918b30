package graph

// opKind identifies an operation. What an op means (types, derivative,
// spelling, cost) stands in its opDef, registered beside its constructor.
type opKind uint8

const (
	_ opKind = iota // a forgotten kind is no op

	opConst
	opIota

	// Elementwise, one operand.
	opNeg
	opAbs
	opSign
	opExp
	opExpm1
	opLog
	opLog1p
	opSqrt
	opRsqrt
	opCbrt
	opTanh
	opSin
	opCos
	opTan
	opLogistic
	opErf
	opErfInv
	opFloor
	opCeil
	opRound
	opNot
	opPopcnt
	opIsFinite
	opConvert
	opBitcast
	opReducePrecision

	// Elementwise, two operands of one type.
	opAdd
	opSub
	opMul
	opDiv
	opMax
	opMin
	opPow
	opRem
	opAtan2
	opAnd
	opOr
	opXor
	opShiftLeft
	opShiftRightLogical
	opShiftRightArithmetic
	opCompare

	opSelect

	// Shape.
	opBroadcast
	opReshape
	opTranspose
	opReverse
	opSlice
	opPad
	opConcat
	opDynamicSlice
	opDynamicUpdateSlice
	opGather
	opScatter

	opDot
	opReduce
	opArgReduce
	opCumsum
	opSort
	opThreefry

	// Identities that say something to the compiler or to differentiation.
	opBarrier
	opConstrain
	opName
	opToMemory
	opKept
	opStopGradient
	opCustomCall

	// Collectives over manual axes.
	opPvary
	opAllReduce
	opAllGather
	opReduceScatter
	opAllToAll
	opPermute

	// Structured.
	opScan
	opWhile
	opCond
	opCheckpoint
	opCustomVJP
	opShardMap

	numKinds
)

// opDef says what an op is.
type opDef struct {
	name string
	// infer gives the result types, or what is wrong with the operands. It is
	// called when the op is recorded and again by the verifier.
	infer func(op *Op) ([]Type, error)
	// vjp adds the operands' cotangents, given those of the results (nil where
	// zero). Without vjp and without noGrad, differentiation reports an error.
	vjp func(a *adjoint, op *Op, cts []*Value)
	// noGrad: the derivative is zero or undefined everywhere, as for integer
	// results; the cotangent stops here, as it does in JAX.
	noGrad bool
	// wideCT: vjp accepts cotangents of a wider float type than the results.
	wideCT bool
	// form: each result holds the elements of the operand at its position, moved,
	// repeated or left out but not changed. The type asked for an operand's
	// cotangent holds for the result's as well.
	form bool
	// view: results are cheap to recompute from the operands, so that
	// differentiation keeps the operand instead.
	view bool
	// vary gives the manual axes the results differ over; nil: the union of
	// the operands'.
	vary func(op *Op) axisSet
	// parallel: the op works on each operand by itself, so that operands need
	// not vary over the same manual axes.
	parallel bool
	// effect: the op is kept even when its results are unused.
	effect bool

	print func(p *printer, op *Op)
	// flops counts floating-point operations of one execution on global
	// shapes; nil counts none.
	flops func(op *Op) float64
}

var defs [numKinds]opDef

// define registers an op. It is called from init functions only.
func define(k opKind, d opDef) { defs[k] = d }

// sameType infers the type of the only operand.
func sameType(op *Op) ([]Type, error) { return []Type{op.operands[0].typ}, nil }
