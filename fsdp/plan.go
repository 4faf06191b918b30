// Package fsdp spreads a training step over devices: parameters, gradients and
// optimiser state are split over the axis dp_shard and whole copies of that are
// kept along dp_replicate (FSDP, and HSDP where both have more than one device).
// A parameter is gathered where it is used and its gradient scattered again.
package fsdp

import (
	"fmt"
	"slices"

	"titan/dtype"
	"titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// Param is a parameter to be placed. A stack over layers has the logical axis
// "layer" first, which is never split; what is left is one layer's row.
type Param struct {
	Name  string
	Shape []int
	Axes  []string // logical axis of each dimension
}

// Options say how parameters are used.
type Options struct {
	Compute dtype.DType // in which matrices are gathered and multiplied
	Reduce  dtype.DType // in which gradients are summed across devices
	// Reshard drops a layer's gathered parameters after use and gathers them
	// again for the backward pass; otherwise all layers' are gathered once a step.
	Reshard bool
}

// Rules is the order in which logical axes are considered for the split over
// dp_shard: the first that a parameter has and whose size divides is taken.
// Dimensions that tensor parallelism will want come later.
var rules = []string{"embed", "expert_mlp", "mlp", "vocab", "heads", "kv_heads", "expert", "head_dim"}

// Plan is where everything lies. It implements what models ask of a placement,
// but for the argument type of their regions.
type Plan struct {
	mesh    *mesh.Mesh
	options Options
	params  map[string]placed
	names   []string
}

type placed struct {
	Param
	spec sharding.Spec
	dim  int    // that is split, -1 for none
	note string // why it is not split
}

// New places the parameters on a mesh with the axes [AxisReplicate] and
// [AxisShard].
func New(m *mesh.Mesh, params []Param, o Options) (*Plan, error) {
	for _, axis := range []string{AxisReplicate, AxisShard} {
		if err := m.CheckAxis(axis); err != nil {
			return nil, fmt.Errorf("fsdp: %w", err)
		}
	}
	if !o.Compute.IsFloat() || !o.Reduce.IsFloat() {
		return nil, fmt.Errorf("fsdp: parameters are computed with in %v and reduced in %v; both must be floats", o.Compute, o.Reduce)
	}
	p := &Plan{mesh: m, options: o, params: map[string]placed{}}
	for _, x := range params {
		if len(x.Axes) != len(x.Shape) {
			return nil, fmt.Errorf("fsdp: parameter %s has %d dimensions and %d logical axes", x.Name, len(x.Shape), len(x.Axes))
		}
		p.params[x.Name] = place(m, x)
		p.names = append(p.names, x.Name)
	}
	return p, nil
}

func place(m *mesh.Mesh, x Param) placed {
	at := placed{Param: x, dim: -1, spec: sharding.Replicated(len(x.Shape))}
	n := m.AxisSize(AxisShard)
	if x.row() < 2 {
		at.note = "a vector, kept whole"
		return at
	}
	for _, logical := range rules {
		if d := slices.Index(x.Axes, logical); d >= 0 && x.Shape[d]%n == 0 {
			at.dim = d
			at.spec.Dims[d] = []string{AxisShard}
			return at
		}
	}
	at.note = fmt.Sprintf("no dimension of %v divides by %d devices, kept whole", x.Shape, n)
	return at
}

// row is the rank of one layer's part.
func (x Param) row() int {
	if len(x.Axes) > 0 && x.Axes[0] == "layer" {
		return len(x.Shape) - 1
	}
	return len(x.Shape)
}

// Spec returns how a parameter is stored, and its gradient and optimiser state
// with it.
func (p *Plan) Spec(name string) sharding.Spec { return p.params[name].spec }

// BatchSpec returns how an array of the given rank is split whose dimension dim
// is the batch.
func (p *Plan) BatchSpec(rank, dim int) sharding.Spec {
	s := sharding.Replicated(rank)
	s.Dims[dim] = []string{AxisReplicate, AxisShard}
	return s
}

// Mesh returns the mesh.
func (p *Plan) Mesh() *mesh.Mesh { return p.mesh }

// Whole is a parameter that every device holds whole.
type Whole struct {
	Name   string
	Shape  []int
	Reason string
}

// Whole lists the parameters that are not split.
func (p *Plan) Whole() []Whole {
	var out []Whole
	for _, n := range p.names {
		if x := p.params[n]; x.dim < 0 && p.mesh.AxisSize(AxisShard) > 1 {
			out = append(out, Whole{n, x.Shape, x.note})
		}
	}
	return out
}

// Bytes returns the bytes that one device holds of all parameters with elements
// of the given size.
func (p *Plan) Bytes(elemSize int) int64 {
	var sum int64
	for _, n := range p.names {
		x := p.params[n]
		k := int64(elemSize)
		for _, d := range x.Shape {
			k *= int64(d)
		}
		if x.dim >= 0 {
			k /= int64(p.mesh.AxisSize(AxisShard))
		}
		sum += k
	}
	return sum
}

// keeps reports whether a parameter is gathered once a step, as a whole stack.
func (p *Plan) keeps(at placed) bool {
	return !p.options.Reshard && at.dim > 0 && at.Axes[0] == "layer"
}

// of returns how a parameter lies where it is used or, where x has one dimension
// less, one layer's row of it: the spec and the dimension that is split.
func (p *Plan) of(x *graph.Value, name string) (sharding.Spec, int) {
	at, ok := p.params[name]
	if !ok {
		x.Builder().Fail("no parameter is called %q", name)
	}
	spec, dim := at.spec, at.dim
	if p.keeps(at) {
		spec, dim = sharding.Replicated(len(at.Shape)), -1
	}
	if x.Rank() == len(at.Shape)-1 {
		spec = sharding.Spec{Dims: spec.Dims[1:]}
		if dim >= 0 {
			dim--
		}
	}
	return spec, dim
}

// Stack gathers a stack of layers, or one of its rows, before all layers where
// parameters are kept for the backward pass, and returns it as it is stored
// otherwise.
func (p *Plan) Stack(x *graph.Value, name string) *graph.Value {
	at := p.params[name]
	if !p.keeps(at) {
		return x
	}
	spec := at.spec
	if x.Rank() == len(at.Shape)-1 {
		spec = sharding.Spec{Dims: spec.Dims[1:]}
	}
	y := graph.Convert(x, p.options.Compute)
	return graph.Constrain(y, sharding.Replicated(x.Rank()), graph.Cotangent(spec), graph.GradIn(p.options.Reduce))
}

// Weight gathers a parameter, or one layer's row of it, for use. Matrices are
// converted to the compute type first, so that is what travels.
func (p *Plan) Weight(x *graph.Value, name string) *graph.Value {
	spec, dim := p.of(x, name)
	if x.Rank() < 2 {
		return x
	}
	y := graph.Convert(x, p.options.Compute)
	if dim < 0 {
		return graph.WithGradIn(y, p.options.Reduce)
	}
	return graph.Constrain(y, sharding.Replicated(x.Rank()), graph.Cotangent(spec), graph.GradIn(p.options.Reduce), graph.Again())
}

// Batch pins an array whose first dimension is the batch.
func (p *Plan) Batch(x *graph.Value) *graph.Value {
	return graph.Constrain(x, p.BatchSpec(x.Rank(), 0))
}

// Region runs f on every device with its own rows of args, or, where params has
// a name, with its stored part of that parameter. Its outs results are split by
// rows.
func (p *Plan) Region(b *graph.Builder, args []*graph.Value, params []string, outs int, f func(local []*graph.Value) []*graph.Value) []*graph.Value {
	rows := p.BatchSpec(1, 0)
	in := make([]sharding.Spec, len(args))
	for i, x := range args {
		if in[i] = rows; params[i] != "" {
			in[i], _ = p.of(x, params[i])
		}
	}
	return b.ShardMap(args, in, slices.Repeat([]sharding.Spec{rows}, outs), f)
}

// Gather returns a stored parameter whole, in the compute type, in a region. It
// is marked as differing from device to device, so that gradients reach Scatter
// before anything has summed them.
func (p *Plan) Gather(stored *graph.Value, name string) *graph.Value {
	_, dim := p.of(stored, name)
	y := graph.Convert(stored, p.options.Compute)
	if dim >= 0 {
		y = graph.AllGather(y, dim, AxisShard)
	}
	return graph.Spread(y, AxisReplicate, AxisShard)
}

// Scatter sums the devices' gradients of a gathered parameter, in a region, and
// returns the part that this device stores, in f32.
func (p *Plan) Scatter(grad *graph.Value, name string) *graph.Value {
	_, dim := p.of(grad, name)
	g := graph.Convert(grad, p.options.Reduce)
	if dim < 0 {
		g = graph.AllReduce(g, AxisReplicate, AxisShard)
	} else {
		g = graph.AllReduce(graph.ReduceScatter(g, dim, AxisShard), AxisReplicate)
	}
	return graph.Convert(g, dtype.F32)
}
