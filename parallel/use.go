package parallel

import (
	"slices"

	"titan/dtype"
	"titan/graph"
)

// keeps reports whether a parameter is gathered by Stack, as a whole stack. In a
// pipeline, where every micro-batch needs them, so are those of no layer.
func (p *Plan) keeps(at placed) bool {
	return !p.options.Reshard && at.dim >= 0 && (at.layers() == 1 || p.size(AxisPipeline) > 1)
}

// of returns how a parameter lies, and how many dimensions x, which may be one
// layer's row of it, has less.
func (p *Plan) of(x *graph.Value, name string) (placed, int) {
	at, ok := p.params[name]
	if !ok {
		x.Builder().Fail("no parameter is called %q", name)
	}
	return at, len(at.Shape) - x.Rank()
}

// Once marks a parameter as used by all devices that hold it: gradients with respect
// to the result are each device's own, and are summed over the copies here. A loop
// that adds gradients up uses the result, and devices exchange their sum once.
func (p *Plan) Once(x *graph.Value, name string) *graph.Value {
	at, _ := p.of(x, name)
	return spread(x, at.rest)
}

// Stack makes a stack of layers' parameters, or a row that is not looped over, and
// in a pipeline every parameter, ready for use. What every device holds whole is
// marked as used by all of them, so that its gradients are summed once for the
// stack; where parameters are kept for the backward pass, they are gathered.
func (p *Plan) Stack(x *graph.Value, name string) *graph.Value {
	at, less := p.of(x, name)
	switch {
	case p.keeps(at):
		y := spread(graph.Convert(x, p.options.Compute), at.rest)
		return p.reduced(graph.AllGather(y, at.dim-less, at.shard...))
	case at.dim < 0:
		return spread(x, at.rest)
	}
	return x
}

// Weight gathers a parameter, or one layer's row of it, for use. Matrices are
// converted to the compute type first, so that is what travels.
func (p *Plan) Weight(x *graph.Value, name string) *graph.Value {
	at, _ := p.of(x, name)
	if len(at.Shape)-at.layers() < 2 {
		// Here and not where it is used: what is broadcast there first is as large as
		// activations, and so would be the gradients that devices add up.
		return spread(x, at.rest)
	}
	return p.reduced(p.gather(x, name))
}

// reduced makes gradients with respect to the result what is added up across devices:
// products have them in that type and, where it is the narrower one, sums of several
// uses are rounded to it.
func (p *Plan) reduced(x *graph.Value) *graph.Value {
	if p.options.Reduce.Size() >= dtype.F32.Size() {
		return graph.WithGradIn(x, p.options.Reduce)
	}
	return graph.CustomVJP([]*graph.Value{x},
		func(args []*graph.Value) (outs, residuals []*graph.Value) { return args, nil },
		func(_, cts []*graph.Value) []*graph.Value {
			return []*graph.Value{graph.Convert(cts[0], p.options.Reduce)}
		})[0]
}

// Gather is Weight for code with a derivative of its own, which calls Scatter. What
// has been made 8 bits wide travels so.
func (p *Plan) Gather(stored *graph.Value, name string) *graph.Value { return p.gather(stored, name) }

// gather marks x as used by all devices before it gathers it, so that gradients
// are scattered before they are summed over the copies.
func (p *Plan) gather(x *graph.Value, name string) *graph.Value {
	at, less := p.of(x, name)
	if x.DType().Size() > 1 {
		x = graph.Convert(x, p.options.Compute)
	}
	y := spread(x, at.rest)
	if at.dim >= 0 && !p.keeps(at) {
		y = graph.AllGatherAgain(y, at.dim-less, at.shard...)
	}
	if at.heads >= 0 {
		b, heads := y.Builder(), at.Shape[at.heads]
		each := p.size(AxisTensor) / heads // devices that use one head
		own := graph.Div(b.AxisIndex(AxisTensor), b.Int(graph.S32, int64(each)))
		y = graph.DynamicSliceDim(y, at.heads-less, own, 1)
	}
	return y
}

// Stored returns the devices that hold the parts of a parameter; of a stack over
// layers, those of one layer.
func (p *Plan) Stored(name string) graph.Group {
	at, ok := p.params[name]
	if !ok {
		return graph.Group{}
	}
	axes := at.spec.Axes()
	if at.layers() == 1 {
		axes = slices.DeleteFunc(axes, func(a string) bool { return a == AxisPipeline })
	}
	return p.group(axes...)
}

// Columns returns the devices over which a matrix is gathered, if each stores some of
// its columns and it is not kept for more than one use; else a single one.
func (p *Plan) Columns(name string) graph.Group {
	at, ok := p.params[name]
	if !ok || at.dim < 0 || at.dim != len(at.Shape)-1 || p.keeps(at) || p.size(AxisPipeline) > 1 {
		return graph.Group{}
	}
	return p.group(at.shard...)
}

// Types returns the types in which matrices are used, and in which their gradients
// are added up across devices.
func (p *Plan) Types() (compute, reduce dtype.DType) { return p.options.Compute, p.options.Reduce }

// Scatter adds up the devices' gradients of what Gather returned and returns the
// part that is stored here. The sum over the devices that store the same part is
// left to graph.CustomVJP, whose argument the parameter is.
func (p *Plan) Scatter(grad *graph.Value, name string) *graph.Value {
	at, less := p.of(grad, name)
	g := graph.Convert(grad, p.options.Reduce)
	if at.dim < 0 || p.keeps(at) {
		return g
	}
	return graph.ReduceScatter(g, at.dim-less, at.shard...)
}

func spread(x *graph.Value, axes []string) *graph.Value {
	if len(axes) == 0 {
		return x
	}
	return graph.Spread(x, axes...)
}

// Enter brings the parts of x [B, S, …] that the devices of tp have together.
func (p *Plan) Enter(x *graph.Value) *graph.Value { return p.Tensor().Gather(x, 1) }

// Leave adds up what the devices of tp made of all tokens, and returns this
// device's part.
func (p *Plan) Leave(x *graph.Value) *graph.Value { return p.Tensor().Scatter(x, 1) }

// Tensor is the devices that share out heads, feed-forward width and vocabulary.
func (p *Plan) Tensor() graph.Group { return p.group(AxisTensor) }

// Context is the devices that share out the tokens of a sequence.
func (p *Plan) Context() graph.Group { return p.group(AxisContext) }

// Experts is the devices that share out the experts.
func (p *Plan) Experts() graph.Group { return p.group(AxisExpert) }

// Stages is the devices that share out the layers.
func (p *Plan) Stages() graph.Group { return p.group(AxisPipeline) }

// Rows is the devices that have different sequences.
func (p *Plan) Rows() graph.Group { return p.group(batchAxes...) }

// Sequences is the devices that have different sequences, or parts of them.
func (p *Plan) Sequences() graph.Group {
	return p.group(AxisReplicate, AxisShard, AxisExpert, AxisContext)
}

// Tokens is the devices that have different tokens between blocks.
func (p *Plan) Tokens() graph.Group {
	return p.group(AxisReplicate, AxisShard, AxisExpert, AxisContext, AxisTensor)
}
