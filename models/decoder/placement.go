package decoder

import (
	"titan/dtype"
	"titan/graph"
)

// Group is devices that share something out among them.
type Group = graph.Group

// Placement says what many devices do where one device does nothing. The model is
// traced inside a manual region, with one device's part of the parameters and of
// the batch: its code is that of a single device, which calls Placement where a
// parameter is used and where devices exchange what they have. It knows neither
// how many there are nor how anything is split. Package parallel has one for
// meshes, Single is that of one device.
//
// Between blocks, x is [B, S, D] where B are this device's sequences and S its
// share of their tokens: those of its place in Context, of which devices in Tensor
// hold equal parts. Enter brings Tensor's parts together and Leave takes them
// apart again; heads, feed-forward width and vocabulary are split in between.
type Placement interface {
	// Weight makes a parameter, or one layer's row of it, ready for use in the
	// compute type: what Tensor and Experts split stays so, the rest is whole.
	// Vectors stay in their own type. Its gradient is reduced in the type that the
	// recipe asks for and stored as the parameter is.
	Weight(x *graph.Value, name string) *graph.Value
	// Stack makes a stack of layers' parameters, or a row that is not looped over,
	// ready for the layers; the others know what was done to it.
	Stack(x *graph.Value, name string) *graph.Value
	// Gather is Weight for code with a derivative of its own. What has been made 8
	// bits wide stays so.
	Gather(stored *graph.Value, name string) *graph.Value
	// Stored are the devices that hold the parts of a parameter, or of one layer's
	// row of it.
	Stored(name string) Group
	// Scatter sums the devices' gradients of a gathered parameter and returns
	// the part that is stored here, in the type in which they are summed.
	Scatter(grad *graph.Value, name string) *graph.Value

	// Columns are the devices that each store some columns of a matrix, which Gather
	// puts together; a single one where it does something else.
	Columns(name string) Group
	// Types are those in which matrices are used, and in which their gradients are
	// added up across devices.
	Types() (compute, reduce dtype.DType)

	// Enter makes x [B, S, …], of this device's share of the tokens, whole in
	// Tensor.
	Enter(x *graph.Value) *graph.Value
	// Leave adds up what the devices of Tensor made of all tokens, and returns
	// this device's share of them.
	Leave(x *graph.Value) *graph.Value

	Tensor() Group  // shares out heads, feed-forward width and vocabulary
	Context() Group // shares out the tokens of a sequence; see contextAttention
	Experts() Group // shares out the experts; its devices hold different tokens
	Stages() Group  // shares out the layers, in order
	// Tokens are all devices that hold different tokens between blocks, Tensor
	// among them; Sequences those that hold different tokens after Enter.
	Tokens() Group
	Sequences() Group
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

// Gather converts to the compute type what is wider than 8 bits.
func (s Single) Gather(stored *graph.Value, _ string) *graph.Value {
	if stored.DType().Size() == 1 {
		return stored
	}
	return graph.Convert(stored, s.compute())
}

// Stored is one device.
func (s Single) Stored(string) Group { return Group{} }

// Scatter converts to f32.
func (s Single) Scatter(grad *graph.Value, _ string) *graph.Value {
	return graph.Convert(grad, dtype.F32)
}

// Columns is one device.
func (s Single) Columns(string) Group { return Group{} }

// Types are the compute type and f32.
func (s Single) Types() (compute, reduce dtype.DType) { return s.compute(), dtype.F32 }

// Enter returns x.
func (s Single) Enter(x *graph.Value) *graph.Value { return x }

// Leave returns x.
func (s Single) Leave(x *graph.Value) *graph.Value { return x }

// Tensor is one device.
func (s Single) Tensor() Group { return Group{} }

// Context is one device.
func (s Single) Context() Group { return Group{} }

// Experts is one device.
func (s Single) Experts() Group { return Group{} }

// Stages is one device.
func (s Single) Stages() Group { return Group{} }

// Tokens is one device.
func (s Single) Tokens() Group { return Group{} }

// Sequences is one device.
func (s Single) Sequences() Group { return Group{} }
