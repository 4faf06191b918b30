package decoder

import (
	"errors"
	"slices"
	"strings"

	"titan/graph"
	"titan/internal/nearest"
	"titan/internal/recipekey"
)

// Names of the values in a layer that a checkpoint policy can keep.
const (
	NameAttnOut = "attn_out" // attention's result, before the output projection
	NameQ       = "q"        // queries, keys and values, turned
	NameK       = "k"
	NameV       = "v"
	NameResid   = "resid" // the residual stream between attention and feed-forward
	NameGate    = "mlp_gate"
	NameUp      = "mlp_up"
	NameMLPOut  = "mlp_out"
)

// SavedNames lists the names.
func SavedNames() []string {
	return []string{NameAttnOut, NameQ, NameK, NameV, NameResid, NameGate, NameUp, NameMLPOut}
}

// ActivationCheckpoint is the recipe's [activation_checkpoint]: what of a layer
// the backward pass computes again.
type ActivationCheckpoint struct {
	Mode string `toml:"mode" doc:"none: keep everything; full: keep only the layers' inputs; selective: see selective_ac_option"`
	// Every, as TorchTitan's option: "op" or a number.
	SelectiveOption string   `toml:"selective_ac_option" doc:"with mode selective: \"op\" keeps the values in save of every layer; a number n checkpoints every n-th layer in full"`
	Save            []string `toml:"save" doc:"with selective \"op\": names of the values to keep (attn_out, q, k, v, resid, mlp_gate, mlp_up, mlp_out)"`
}

// DefaultActivationCheckpoint is TorchTitan's default: selective, every second
// layer.
func DefaultActivationCheckpoint() ActivationCheckpoint {
	return ActivationCheckpoint{Mode: "selective", SelectiveOption: "2", Save: []string{NameAttnOut, NameResid}}
}

// Validate reports unknown modes, options and names.
func (a ActivationCheckpoint) Validate() error {
	var errs []error
	modes := []string{"none", "full", "selective"}
	if !slices.Contains(modes, a.Mode) {
		errs = append(errs, recipekey.Errorf("activation_checkpoint.mode", "%q is not a mode%s", a.Mode, nearest.Hint(a.Mode, modes)))
	}
	if a.Mode == "selective" && a.SelectiveOption != "op" && a.every() == 0 {
		errs = append(errs, recipekey.Errorf("activation_checkpoint.selective_ac_option", "%q is neither \"op\" nor a positive number", a.SelectiveOption))
	}
	for _, n := range a.Save {
		if !slices.Contains(SavedNames(), n) {
			errs = append(errs, recipekey.Errorf("activation_checkpoint.save", "no value is called %q%s (%s)", n, nearest.Hint(n, SavedNames()), strings.Join(SavedNames(), ", ")))
		}
	}
	return errors.Join(errs...)
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
// checkpointed), and that every n-th layer is one.
func (a ActivationCheckpoint) Policy() (keep *graph.Policy, every int) {
	var p graph.Policy
	switch {
	case a.Mode == "full":
		p = graph.SaveNothing()
	case a.Mode == "selective" && a.SelectiveOption == "op":
		p = graph.SaveNames(a.Save...)
	case a.Mode == "selective":
		return &p, a.every()
	default:
		return nil, 1
	}
	return &p, 1
}
