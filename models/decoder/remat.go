package decoder

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"titan/graph"
	"titan/internal/nearest"
	"titan/internal/recipekey"
)

// Names of the values in a layer that a checkpoint policy can keep.
const (
	NameLayerIn = "layer_in" // what the layer begins with
	NameQ       = "q"        // products of queries, keys and values
	NameK       = "k"
	NameV       = "v"
	// NameAttnOut is attention's result before the output projection, with the
	// logarithms of the denominators: attention's derivative needs both.
	NameAttnOut   = "attn_out"
	NameResid     = "resid"    // the residual stream after attention: spares the output projection
	NameGate      = "mlp_gate" // products of the feed-forward layer's, or the experts', first two matrices
	NameUp        = "mlp_up"
	NameMLPOut    = "mlp_out"     // what the feed-forward layer adds to the residual stream
	NameRouter    = "router"      // the router's logits, and which row goes to which device
	NameExpertIn  = "experts_in"  // rows as experts with a capacity receive them
	NameExpertOut = "experts_out" // what comes back from these experts
	NameWeights   = "weights"     // gathered matrices, but for those of dropless experts
)

// SavedNames lists the names.
func SavedNames() []string {
	return []string{
		NameLayerIn, NameQ, NameK, NameV, NameAttnOut, NameResid, NameGate, NameUp, NameMLPOut,
		NameRouter, NameExpertIn, NameExpertOut, NameWeights,
	}
}

// presets are sets of names, called as MaxText's remat policies that keep the same.
var presets = map[string][]string{
	"save_qkv_proj":                    {NameQ, NameK, NameV},
	"save_out_proj":                    {NameResid},
	"save_dot_except_mlp":              {NameQ, NameK, NameV, NameResid},
	"save_dot_with_context_except_mlp": {NameQ, NameK, NameV, NameAttnOut, NameResid},
	"minimal":                          {NameQ, NameK, NameV, NameResid, NameGate, NameUp, NameRouter, NameExpertIn, NameExpertOut},
	"minimal_with_context":             {NameQ, NameK, NameV, NameAttnOut, NameResid, NameGate, NameUp, NameRouter, NameExpertIn, NameExpertOut},
}

// PresetNames lists the sets of names that selective_ac_option can be, in
// alphabetical order.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// The modes of ActivationCheckpoint.
const (
	RematNone      = "none"
	RematFull      = "full"
	RematSelective = "selective"
	RematBudget    = "memory_budget"
)

const optionOp = "op"

// ActivationCheckpoint is the recipe's [activation_checkpoint]: what of a layer
// the backward pass computes again.
type ActivationCheckpoint struct {
	Mode string `toml:"mode" doc:"none: keep everything; full: keep only the layers' inputs; selective: see selective_ac_option; memory_budget: what computes least again of all that fit into memory_budget"`
	// SelectiveOption is TorchTitan's option, "op" or a number, or a preset.
	SelectiveOption string   `toml:"selective_ac_option" doc:"with mode selective: \"op\" keeps the values in save of every layer; a number n checkpoints every n-th layer in full; or a set of values by name (see docs/memory.md): save_qkv_proj, save_out_proj, save_dot_except_mlp, save_dot_with_context_except_mlp, minimal, minimal_with_context"`
	Save            []string `toml:"save" doc:"with selective \"op\": names of the values to keep (layer_in, q, k, v, attn_out, resid, mlp_gate, mlp_up, mlp_out, router, experts_in, experts_out, weights)"`
	Offload         []string `toml:"offload" doc:"names of values that checkpointed layers keep in the host's memory, where the platform has one of its own; with mode memory_budget only if nothing else fits"`
	MemoryBudget    string   `toml:"memory_budget" doc:"with mode memory_budget: memory that a training step may take on a device, as \"14GiB\" or as a share of what the device has, \"90%\"; empty for all that it has"`
}

// DefaultActivationCheckpoint is TorchTitan's default: selective, every second
// layer.
func DefaultActivationCheckpoint() ActivationCheckpoint {
	return ActivationCheckpoint{Mode: RematSelective, SelectiveOption: "2", Save: []string{NameAttnOut, NameResid}}
}

// Validate returns all mistakes in a, each a *recipekey.Error.
func (a ActivationCheckpoint) Validate() error {
	const section = "activation_checkpoint."
	var errs []error
	modes := []string{RematNone, RematFull, RematSelective, RematBudget}
	if !slices.Contains(modes, a.Mode) {
		errs = append(errs, recipekey.Errorf(section+"mode", "%q is not a mode%s", a.Mode, nearest.Hint(a.Mode, modes)))
	}
	if a.Mode == RematSelective && a.SelectiveOption != optionOp && a.every() == 0 && presets[a.SelectiveOption] == nil {
		errs = append(errs, recipekey.Errorf(section+"selective_ac_option", "%q is neither \"op\", nor a positive number, nor the name of a set of values%s",
			a.SelectiveOption, nearest.Hint(a.SelectiveOption, PresetNames())))
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"save", a.Save}, {"offload", a.Offload}} {
		for _, n := range list.names {
			if !slices.Contains(SavedNames(), n) {
				errs = append(errs, recipekey.Errorf(section+list.key, "no value is called %q%s", n, nearest.Hint(n, SavedNames())))
			}
		}
	}
	if len(a.Offload) > 0 && a.Mode == RematNone {
		errs = append(errs, recipekey.Errorf(section+"offload", "has values of checkpointed layers, and there are none with mode %q; use \"selective\" with selective_ac_option %q to keep others on the device", a.Mode, optionOp))
	}
	if n := slices.IndexFunc(a.Offload, func(n string) bool { return slices.Contains(a.saved(), n) }); n >= 0 {
		errs = append(errs, recipekey.Errorf(section+"offload", "%q is kept on the device as well (by save or selective_ac_option); take it out of one of them", a.Offload[n]))
	}
	if _, err := a.Budget(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// saved are the names of what every layer keeps on the device.
func (a ActivationCheckpoint) saved() []string {
	switch {
	case a.Mode != RematSelective:
		return nil
	case a.SelectiveOption == optionOp:
		return a.Save
	}
	return presets[a.SelectiveOption]
}

func (a ActivationCheckpoint) every() int {
	n := 0
	for _, c := range a.SelectiveOption {
		if c < '0' || c > '9' || n > 1<<20 {
			return 0
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// Policy returns what a checkpointed layer keeps (nil: layers are not
// checkpointed), and that every n-th layer is one. Mode memory_budget stands for
// several policies and is full until one is chosen.
func (a ActivationCheckpoint) Policy() (keep *graph.Policy, every int) {
	if a.Mode == RematNone {
		return nil, 1
	}
	p := graph.SaveNames(a.saved()...)
	if a.Mode != RematBudget {
		p = p.And(graph.OffloadNames(a.Offload...))
	}
	if a.Mode == RematSelective && a.SelectiveOption != optionOp && presets[a.SelectiveOption] == nil {
		return &p, max(1, a.every())
	}
	return &p, 1
}

// String is the policy as a recipe has it, such as `selective, "2"`.
func (a ActivationCheckpoint) String() string {
	s := a.Mode
	switch {
	case a.Mode == RematSelective && a.SelectiveOption == optionOp:
		s += ", save " + strings.Join(a.Save, ", ")
	case a.Mode == RematSelective && presets[a.SelectiveOption] == nil:
		s += ", every " + a.SelectiveOption
	case a.Mode == RematSelective:
		s += ", " + a.SelectiveOption
	}
	if len(a.Offload) > 0 && a.Mode != RematNone {
		s += ", offload " + strings.Join(a.Offload, ", ")
	}
	return s
}

// Keeps reports whether checkpointed layers keep the values of this name, on the
// device or on the host.
func (a ActivationCheckpoint) Keeps(name string) bool {
	return slices.Contains(a.saved(), name) || a.Mode != RematNone && slices.Contains(a.Offload, name)
}

// HasValue reports whether layers of the model have values of this name.
func (c *Config) HasValue(name string) bool {
	switch name {
	case NameRouter:
		return c.MoE != nil
	case NameExpertIn, NameExpertOut:
		return c.MoE != nil && c.MoE.CapacityFactor > 0
	}
	return true
}
