// Package parallel spreads a training step over devices. Its Config is the
// recipe's section [parallelism]; its Plan says where every parameter lies and
// what a device does to use it.
//
// A mesh has the axes pp, dp_replicate, dp_shard, ep, cp and tp, of which those of
// size 1 may be missing. The sequences of a batch are split over dp_replicate,
// dp_shard and ep, the tokens of a sequence over cp (and over tp between blocks).
// Of a parameter, tp splits heads, feed-forward width and vocabulary, ep the
// experts, pp the layers; what is left is split once more over the devices that
// see different data (FSDP), and kept along dp_replicate (HSDP). It is gathered
// where it is used, and its gradient scattered again.
package parallel

import (
	"fmt"
	"slices"

	"titan/dtype"
	"titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// Param is a parameter to be placed. A stack over layers has the logical axis
// "layer" first.
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

// Plan is where everything lies. It is the placement that models ask for, in the
// manual region over the whole mesh in which they are traced.
type Plan struct {
	mesh    *mesh.Mesh
	options Options
	params  map[string]placed
	names   []string
}

// New places the parameters on a mesh.
func New(m *mesh.Mesh, params []Param, o Options) (*Plan, error) {
	for _, a := range m.Axes() {
		if !slices.Contains(AxisNames(), a.Name) && a.Size > 1 {
			return nil, fmt.Errorf("parallel: the mesh has an axis %q; axes are %v", a.Name, AxisNames())
		}
	}
	if !o.Compute.IsFloat() || !o.Reduce.IsFloat() {
		return nil, fmt.Errorf("parallel: parameters are computed with in %v and reduced in %v; both must be floats", o.Compute, o.Reduce)
	}
	p := &Plan{mesh: m, options: o, params: map[string]placed{}}
	for _, x := range params {
		if len(x.Axes) != len(x.Shape) {
			return nil, fmt.Errorf("parallel: parameter %s has %d dimensions and %d logical axes", x.Name, len(x.Shape), len(x.Axes))
		}
		at, err := p.place(x)
		if err != nil {
			return nil, err
		}
		p.params[x.Name] = at
		p.names = append(p.names, x.Name)
	}
	return p, nil
}

// size returns how many devices lie along axes; 1 for axes that the mesh lacks.
func (p *Plan) size(axes ...string) int {
	n := 1
	for _, a := range axes {
		n *= max(1, p.mesh.AxisSize(a))
	}
	return n
}

// present returns those of axes along which there is more than one device.
func (p *Plan) present(axes ...string) []string {
	var out []string
	for _, a := range axes {
		if p.size(a) > 1 {
			out = append(out, a)
		}
	}
	return out
}

// group returns the devices along axes.
func (p *Plan) group(axes ...string) graph.Group {
	return graph.Group{Axes: p.present(axes...), Size: p.size(axes...)}
}

// Mesh returns the mesh.
func (p *Plan) Mesh() *mesh.Mesh { return p.mesh }

// Spec returns how a parameter is stored, and its gradient and optimiser state
// with it.
func (p *Plan) Spec(name string) sharding.Spec { return p.params[name].spec }

// BatchSpec returns how an array of the given rank is split whose dimension dim
// is the batch. Devices along cp and tp get whole sequences and take their parts.
func (p *Plan) BatchSpec(rank, dim int) sharding.Spec {
	s := sharding.Replicated(rank)
	s.Dims[dim] = p.present(batchAxes...)
	return s
}

// BatchDevices returns over how many devices the sequences of a batch are split.
func (p *Plan) BatchDevices() int { return p.size(batchAxes...) }

// Whole is a parameter that every device holds whole.
type Whole struct {
	Name   string
	Shape  []int
	Reason string
}

// Whole lists the parameters that are not split over the devices that see
// different data.
func (p *Plan) Whole() []Whole {
	var out []Whole
	for _, n := range p.names {
		if x := p.params[n]; x.dim < 0 && x.note != "" {
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
		sum += k / int64(p.size(x.spec.Axes()...))
	}
	return sum
}

// Use is what devices do to use a parameter. Elements are those of one device: of a
// stack over layers, of all the layers that it has.
type Use struct {
	Stack  bool
	Gather []string // axes over which it is gathered, and its gradient scattered
	Copies []string // axes along which devices hold equal copies, whose gradients are summed
	// Kept: it is gathered for all uses at once.
	Kept          bool
	Stored, Whole int64 // elements before and after it is gathered
	Matrix        bool  // used in the compute type; else in its own, f32
}

// Use returns how a parameter is used; the zero Use if there is none of that name.
func (p *Plan) Use(name string) Use {
	at, ok := p.params[name]
	if !ok {
		return Use{}
	}
	u := Use{
		Stack: at.layers() == 1, Gather: slices.Clone(at.shard), Copies: slices.Clone(at.rest), Kept: p.keeps(at),
		Stored: 1, Matrix: len(at.Shape)-at.layers() >= 2,
	}
	for _, d := range at.Shape {
		u.Stored *= int64(d)
	}
	u.Stored /= int64(p.size(at.spec.Axes()...))
	u.Whole = u.Stored * int64(p.size(at.shard...))
	return u
}

// Names returns the names of the parameters.
func (p *Plan) Names() []string { return slices.Clone(p.names) }

// Options returns how parameters are used.
func (p *Plan) Options() Options { return p.options }
