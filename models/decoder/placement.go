package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// Placement says how a program lies on its devices. Model code calls it where a
// parameter is used and where devices must not be left to the compiler; it knows
// neither their number nor how anything is split. Package fsdp has one for
// meshes, Single is that of one device.
type Placement interface {
	// Weight makes a parameter, or one layer's row of it, ready for use: whole,
	// in the compute type. Vectors stay in their own type. Its gradient is
	// reduced in the type that the recipe asks for and stored as the parameter is.
	Weight(x *graph.Value, name string) *graph.Value
	// Stack makes a stack of layers' parameters, or a row that is not looped over,
	// ready for the layers; Weight and Region know what was done to it.
	Stack(x *graph.Value, name string) *graph.Value
	// Batch pins an array whose first dimension is the batch.
	Batch(x *graph.Value) *graph.Value
	// Region runs f where every device has its own rows of the batch. Its outs
	// results have the batch first, too.
	Region(b *graph.Builder, args []Arg, outs int, f func(r Region, local []*graph.Value) []*graph.Value) []*graph.Value
}

// Arg is an argument of a region: rows of a batch or, with the name of a
// parameter, that parameter (or one layer's row of it) as it is stored.
type Arg struct {
	Value *graph.Value
	Param string
}

// Region is what code in a region needs to use stored parameters.
type Region interface {
	// Gather returns a parameter whole, in the compute type.
	Gather(stored *graph.Value, name string) *graph.Value
	// Scatter sums the devices' gradients of a gathered parameter and returns
	// the part that is stored here, in f32.
	Scatter(grad *graph.Value, name string) *graph.Value
}

// Single is the placement of a program on one device.
type Single struct {
	Compute dtype.DType // dtype.F32 if zero
}

func (s Single) compute() dtype.DType {
	if s.Compute == 0 {
		return dtype.F32
	}
	return s.Compute
}

// Weight converts matrices to the compute type.
func (s Single) Weight(x *graph.Value, _ string) *graph.Value {
	if x.Rank() < 2 {
		return x
	}
	return graph.WithGradIn(graph.Convert(x, s.compute()), dtype.F32)
}

// Stack returns x.
func (s Single) Stack(x *graph.Value, _ string) *graph.Value { return x }

// Batch returns x.
func (s Single) Batch(x *graph.Value) *graph.Value { return x }

// Region calls f.
func (s Single) Region(_ *graph.Builder, args []Arg, _ int, f func(r Region, local []*graph.Value) []*graph.Value) []*graph.Value {
	local := make([]*graph.Value, len(args))
	for i, a := range args {
		local[i] = a.Value
	}
	return f(singleRegion{s.compute()}, local)
}

type singleRegion struct{ compute dtype.DType }

func (r singleRegion) Gather(stored *graph.Value, _ string) *graph.Value {
	return graph.Convert(stored, r.compute)
}

func (r singleRegion) Scatter(grad *graph.Value, _ string) *graph.Value {
	return graph.Convert(grad, dtype.F32)
}
