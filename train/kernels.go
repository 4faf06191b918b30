package train

import (
	"fmt"

	"titan/configs"
	"titan/kernels"
	"titan/mesh"
	"titan/models/decoder"
	"titan/parallel"
)

// Platform is what the step builder needs to know of the machine that will run
// the program. It changes how things are computed, not what.
type Platform struct {
	CPU bool // pieces are made to fit its caches
	// Chip is the TPU that tile kernels are made for; nil: there is none.
	Chip *mesh.Chip
	// XLA are the recipe's debug.xla_options.
	XLA []string
}

// PlatformOf tells from a recipe what its machine is like.
func PlatformOf(r *configs.Recipe) Platform {
	p := Platform{CPU: r.Mesh.Platform == "cpu", XLA: r.Debug.XLAOptions}
	if t, err := mesh.ParseTopology(r.Mesh.Topology); err == nil {
		if c, err := t.Chip(); err == nil {
			p.Chip = &c
		}
	}
	return p
}

// Platform tells what the machine is like, by the kind of its devices.
func (m *Machine) Platform() Platform {
	p := Platform{CPU: m.OnCPU, XLA: m.xla}
	if c, err := mesh.ChipOf(m.Client.Devices()[0].Kind); err == nil {
		p.Chip = &c
	}
	return p
}

// useKernels sets in o what the recipe wants computed by tile kernels.
func useKernels(o *decoder.Options, c kernels.Config, p Platform) {
	by := func(how string) bool { return how == kernels.Tile || how == kernels.Auto && p.Chip != nil }
	attention, experts := by(c.Attention), by(c.Experts)
	if attention || experts {
		o.Kernels = &kernels.Target{Chip: p.Chip}
		o.Attention.Plain, o.PlainExperts = !attention, !experts
		o.Attention.Tiles, o.ExpertTiles = c.AttentionTiles, c.ExpertTiles
	}
}

// describeKernels says, for the log, what tile kernels compute.
func describeKernels(o StepOptions, plan *parallel.Plan) []string {
	k := o.Options.Kernels
	if k == nil {
		return nil
	}
	on := "interpreted, which is slow"
	if k.Chip != nil {
		on = "for " + k.Chip.Kind
	}
	m := &decoder.Model{Config: o.Model, Placement: plan, Options: o.Options}
	switch ok, why := m.AttentionTiled(o.SeqLen); {
	case ok:
		return []string{"attention: tile kernels, " + on}
	case why != "":
		return []string{fmt.Sprintf("attention: plain operations, as %s", why)}
	}
	return []string{"attention: plain operations"}
}
