package configs

import (
	"cmp"
	"math"
	"slices"

	"titan/internal/human"
	"titan/internal/recipekey"
	"titan/mesh"
	"titan/parallel"
)

// Memory is what a device holds besides activations, in bytes.
type Memory struct {
	// Parameters and State, the optimizer's, stay from step to step.
	Parameters, State int64
	Gradients         int64
	// Kept are gathered parameters of all layers, with fsdp_reshard_after_forward
	// "never".
	Kept int64
	// Device is the advertised memory of a device of mesh.topology, 0 if that is
	// unknown.
	Device int64
}

// Memory counts what a device holds on a mesh with the axes of MeshAxes.
func (r *Recipe) Memory(m *mesh.Mesh) (Memory, error) {
	plan, err := r.Placement(m)
	if err != nil {
		return Memory{}, err
	}
	opt, err := r.NewOptimizer()
	if err != nil {
		return Memory{}, err
	}
	model, err := r.Decoder()
	if err != nil {
		return Memory{}, err
	}
	params := model.Params()
	const f32 = 4
	out := Memory{Parameters: plan.Bytes(f32), Gradients: plan.Bytes(f32), Kept: plan.KeptBytes()}
	for _, v := range opt.State() {
		shape := v.Shape
		if v.Param >= 0 {
			if shape, err = plan.Spec(params[v.Param].Name).Shard(m, v.Shape); err != nil {
				return Memory{}, err
			}
		}
		out.State += elements(shape) * int64(v.DType.Size())
	}
	if t, err := mesh.ParseTopology(r.Mesh.Topology); r.Mesh.Topology != "" && err == nil {
		if chip, err := t.Chip(); err == nil {
			out.Device = chip.HBMPerDevice()
		}
	}
	return out, nil
}

func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

// memory refuses devices that cannot hold even what stays from step to step.
func (c *checking) memory() {
	r := c.recipe
	if r.Mesh.Topology == "" || len(c.problems) > 0 {
		return
	}
	m, ok := r.memory()
	if !ok || m.Parameters+m.State <= m.Device {
		return
	}
	near := ""
	if t, ok := r.roomier(); ok {
		near = nearestIs(t)
	}
	c.add(recipekey.Errorf("mesh.topology", "is %q, whose devices have %s of memory each: parameters and optimizer state alone take %s%s",
		r.Mesh.Topology, human.Size(m.Device), human.Size(m.Parameters+m.State), near))
}

// memory is Memory of a recipe whose mesh is known.
func (r *Recipe) memory() (Memory, bool) {
	axes, err := r.MeshAxes()
	if err != nil {
		return Memory{}, false
	}
	m, err := mesh.New(axes, nil)
	if err != nil {
		return Memory{}, false
	}
	out, err := r.Memory(m)
	return out, err == nil
}

// roomier returns the topology of the same chips and slices, nearest in size, on
// which the recipe is possible with all else as it is.
func (r *Recipe) roomier() (mesh.Topology, bool) {
	t, err := mesh.ParseTopology(r.Mesh.Topology)
	if err != nil {
		return t, false
	}
	chip, err := t.Chip()
	if err != nil {
		return t, false
	}
	now := float64(t.ChipsPerSlice())
	shapes := chip.Shapes()
	far := func(shape []int) float64 { return math.Abs(math.Log(float64(elements(shape)) / now)) }
	slices.SortStableFunc(shapes, func(a, b []int) int { return cmp.Compare(far(a), far(b)) })
	for _, shape := range shapes {
		try := *r
		t.Shape = shape
		try.Mesh.Topology = t.String()
		axes, err := try.MeshAxes()
		if err != nil || t.Devices() > maxDevices || t.CheckAxes(axes, parallel.AcrossSlices()...) != nil {
			continue
		}
		if _, err := try.MicroSteps(); err != nil {
			continue
		}
		if m, ok := try.memory(); ok && m.Parameters+m.State <= m.Device {
			return t, true
		}
	}
	return t, false
}
