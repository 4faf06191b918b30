package graph_test

import . "titan/graph"

// wrongOps are mistakes in the operands and attributes of plain ops.
var wrongOps = []wrong{
	// Types and shapes, op by op.
	{"element types", "add", []string{"add(f32[4,8], s32[8])", "use Convert"}, func(b *Builder) {
		Add(x48(b), b.Iota(T(S32, 8), 0)) // !
	}},
	{"broadcast", "mul", []string{"mul(f32[4,8], f32[4])", "do not broadcast"}, func(b *Builder) {
		Mul(x48(b), b.Zeros(T(F32, 4))) // !
	}},
	{"comparison", "compare", []string{"(f32[4,8], bf16[8])"}, func(b *Builder) {
		Less(x48(b), b.Zeros(T(BF16, 8))) // !
	}},
	{"float op of integers", "exp", []string{"exp(s32[8])", "s32 is not a float"}, func(b *Builder) {
		Exp(b.Iota(T(S32, 8), 0)) // !
	}},
	{"bits of floats", "and", []string{"f32 is not an integer or bool"}, func(b *Builder) {
		And(x48(b), x48(b)) // !
	}},
	{"shift of booleans", "shift_left", []string{"bool is not an integer"}, func(b *Builder) {
		p := b.Input("p", T(Bool))
		ShiftLeft(p, p) // !
	}},
	{"abs of unsigned", "abs", []string{"u8 is not a signed number"}, func(b *Builder) {
		Abs(b.Input("u", T(U8))) // !
	}},
	{"select's condition", "select", []string{"condition has element type f32"}, func(b *Builder) {
		x := x48(b)
		Select(x, x, x) // !
	}},
	{"select's branches", "select", []string{"(f32[4,8], f64[4,8])"}, func(b *Builder) {
		x := x48(b)
		Select(Greater(x, x), x, Convert(x, F64)) // !
	}},
	{"select's shape", "select", []string{"(bool[3], f32[4,8], f32[4,8])", "do not broadcast"}, func(b *Builder) {
		x := x48(b)
		Select(b.Input("p", T(Bool, 3)), x, x) // !
	}},
	{"bitcast", "bitcast", []string{"f32 and f64 differ in size"}, func(b *Builder) {
		Bitcast(x48(b), F64) // !
	}},
	{"convert to nothing", "convert", []string{"invalid"}, func(b *Builder) {
		Convert(x48(b), DType(200)) // !
	}},
	{"reduce_precision", "reduce_precision", []string{"0 exponent"}, func(b *Builder) {
		ReducePrecision(x48(b), 0, 3) // !
	}},
	{"is_finite of integers", "is_finite", []string{"not a float"}, func(b *Builder) {
		IsFinite(b.Iota(T(S32, 8), 0)) // !
	}},
	{"reshape", "reshape", []string{"reshape(f32[4,8])", "32 elements do not fill shape [5,7], which has 35"}, func(b *Builder) {
		Reshape(x48(b), 5, 7) // !
	}},
	{"reshape with -1", "reshape", []string{"[5,1]"}, func(b *Builder) {
		Reshape(x48(b), 5, -1) // !
	}},
	{"transpose", "transpose", []string{"[0 0] is not a permutation of the 2 dimensions"}, func(b *Builder) {
		Transpose(x48(b), 0, 0) // !
	}},
	{"reverse", "reverse", []string{"dimension 2 of a value of rank 2"}, func(b *Builder) {
		Reverse(x48(b), 2) // !
	}},
	{"slice", "slice", []string{"bounds 2:9:1 of dimension 1 of size 8"}, func(b *Builder) {
		SliceDim(x48(b), 1, 2, 9) // !
	}},
	{"split", "split", []string{"of size 8, does not split into 3 equal parts"}, func(b *Builder) {
		Split(x48(b), -1, 3) // !
	}},
	{"squeeze", "squeeze", []string{"dimension 0 of f32[4,8] has size 4"}, func(b *Builder) {
		Squeeze(x48(b), 0) // !
	}},
	{"pad", "pad", []string{"negative padding of dimension 0"}, func(b *Builder) {
		Pad(x48(b), b.Scalar(F32, 0), []int{-1, 0}, nil, nil) // !
	}},
	{"concatenate", "concatenate", []string{"(f32[4,8], f32[4,7])", "differ in dimension 1"}, func(b *Builder) {
		Concat(0, x48(b), b.Zeros(T(F32, 4, 7))) // !
	}},
	{"concatenate nothing", "concatenate", []string{"no operands"}, func(b *Builder) {
		Concat(0) // !
	}},
	{"expand_dims", "expand_dims", []string{"dimension 4 of a value of rank 3"}, func(b *Builder) {
		ExpandDims(x48(b), 4) // !
	}},
	{"broadcast_to", "broadcast", []string{"target shape [8] has fewer dimensions"}, func(b *Builder) {
		BroadcastTo(x48(b), 8) // !
	}},
	{"broadcast_in_dim", "broadcast", []string{"dimension 1 of size 8 does not repeat to 3"}, func(b *Builder) {
		BroadcastInDim(x48(b), []int{4, 3}, []int{0, 1}) // !
	}},
	{"dynamic_slice's start", "dynamic_slice", []string{"the start must be an integer scalar"}, func(b *Builder) {
		DynamicSliceDim(x48(b), 0, b.Scalar(F32, 1), 2) // !
	}},
	{"dynamic_slice's size", "dynamic_slice", []string{"size 5 of dimension 0, which has 4"}, func(b *Builder) {
		DynamicSliceDim(x48(b), 0, b.Int(S32, 1), 5) // !
	}},
	{"dynamic_update_slice", "dynamic_update_slice", []string{"update of size 9 in dimension 1, which has 8"}, func(b *Builder) {
		DynamicUpdateSliceDim(x48(b), b.Zeros(T(F32, 1, 9)), 0, b.Int(S32, 1)) // !
	}},
	{"constant data", "constant", []string{"8 bytes of data for type f32[3], which needs 12"}, func(b *Builder) {
		b.ConstF32([]int{3}, []float32{1, 2}) // !
	}},
	{"constant shape", "constant", []string{"negative size -3"}, func(b *Builder) {
		b.Zeros(T(F32, -3)) // !
	}},
	{"iota", "iota", []string{"dimension 1"}, func(b *Builder) {
		b.Iota(T(S32, 3), 1) // !
	}},
	{"integer constant", "int", []string{"f32 is not an integer type"}, func(b *Builder) {
		b.Int(F32, 1) // !
	}},

	// Contractions and reductions.
	{"einsum form", "einsum", []string{`"bi"`, `the form is "ab,bc->ac"`}, func(b *Builder) {
		Einsum("bi", x48(b), x48(b)) // !
	}},
	{"einsum sizes", "einsum", []string{"einsum(f32[4,8], f32[4,8])", "dimension 'i' has size 8 in one operand and 4 in the other"}, func(b *Builder) {
		x := x48(b)
		Einsum("bi,io->bo", x, x) // !
	}},
	{"einsum rank", "einsum", []string{`"bis" names 3 dimensions of an operand of rank 2`}, func(b *Builder) {
		x := x48(b)
		Einsum("bis,io->bo", x, x) // !
	}},
	{"einsum result", "einsum", []string{"the result names 'z'"}, func(b *Builder) {
		x := x48(b)
		Einsum("ab,cb->az", x, x) // !
	}},
	{"matmul rank", "matmul", []string{"rank 2 or more"}, func(b *Builder) {
		MatMul(x48(b), b.Zeros(T(F32, 8))) // !
	}},
	{"dot dimensions", "dot", []string{"right operand: dimension 5"}, func(b *Builder) {
		x := x48(b)
		DotGeneral(x, x, DotDims{Contract: [][2]int{{0, 5}}}, F32, Default) // !
	}},
	{"dot of bool", "dot", []string{"bool"}, func(b *Builder) {
		p := b.Input("p", T(Bool, 4, 4))
		DotGeneral(p, p, DotDims{}, F32, Default) // !
	}},
	{"sum dimension", "sum", []string{"dimension 2 of a value of rank 2"}, func(b *Builder) {
		Sum(x48(b), 2) // !
	}},
	{"sum dimension twice", "reduce", []string{"dimension 1 is given twice"}, func(b *Builder) {
		Sum(x48(b), 1, -1) // !
	}},
	{"mean of integers", "mean", []string{"needs a float"}, func(b *Builder) {
		Mean(b.Iota(T(S32, 8), 0)) // !
	}},
	{"all of floats", "reduce", []string{"all of element type f32"}, func(b *Builder) {
		All(x48(b)) // !
	}},
	{"one_hot of floats", "one_hot", []string{"integer indices"}, func(b *Builder) {
		OneHot(x48(b), 8, F32) // !
	}},
}
