package configs

import (
	"fmt"
	"slices"
	"strconv"

	"titan/kernels"
	"titan/models/decoder"
	"titan/optim"
)

// unusedWarnings names settings that were changed and have no effect, as another
// setting has not what they are for.
func (r *Recipe) unusedWarnings() []string {
	var out []string
	unused := func(changed bool, key string, because string, args ...any) {
		if changed {
			out = append(out, fmt.Sprintf("%s has no effect: %s", key, fmt.Sprintf(because, args...)))
		}
	}
	a := r.ActivationCheckpoint
	unused(a.MemoryBudget != "" && a.Mode != decoder.RematBudget, "activation_checkpoint.memory_budget", "activation_checkpoint.mode is %q, not %q", a.Mode, decoder.RematBudget)
	if m, err := r.Decoder(); err == nil && a.Mode == decoder.RematSelective {
		n, err := strconv.Atoi(a.SelectiveOption)
		each := m.Layers / max(1, r.Parallelism.Pipeline)
		unused(err == nil && n > each, "activation_checkpoint.selective_ac_option", "it is %d, and of %d layers%s there is no such one to checkpoint", n, each, ifStages(r.Parallelism.Pipeline))
	}
	moe, plain := r.MoE, decoder.DefaultMoEConfig()
	unused(moe.CapacityFactor != plain.CapacityFactor && moe.Dispatch != "capacity", "moe.capacity_factor", "moe.dispatch is %q, not \"capacity\"", moe.Dispatch)
	unused(moe.BiasUpdateRate != plain.BiasUpdateRate && moe.LoadBalance != "bias", "moe.bias_update_rate", "moe.load_balance is %q, not \"bias\"", moe.LoadBalance)

	if m, err := r.Decoder(); err == nil {
		unused(r.Kernels.Experts != kernels.Auto && m.MoE == nil, "kernels.experts", "%s %s has none", r.Model.Name, r.Model.Flavor)
	}
	k := r.Kernels
	unused(k.AttentionTiles != kernels.AttentionTiles{} && k.Attention == kernels.Plain, "kernels.attention_tiles", "kernels.attention is %q", k.Attention)
	unused(k.ExpertTiles != kernels.GroupedTiles{} && k.Experts == kernels.Plain, "kernels.expert_tiles", "kernels.experts is %q", k.Experts)

	o := r.Optimizer
	if o.Name == optim.Muon || slices.ContainsFunc(o.ParamGroups, func(g optim.Group) bool { return g.Optimizer == optim.Muon }) {
		return out
	}
	p := optim.Defaults()
	for _, k := range []struct {
		name    string
		changed bool
	}{
		{"muon_lr", o.MuonLR != p.MuonLR}, {"muon_momentum", o.MuonMomentum != p.MuonMomentum}, {"muon_nesterov", o.MuonNesterov != p.MuonNesterov},
		{"muon_ns_steps", o.MuonNSSteps != p.MuonNSSteps}, {"muon_ns_dtype", o.MuonNSDType != p.MuonNSDType}, {"muon_eps", o.MuonEps != p.MuonEps},
		{"muon_adjust_lr", o.MuonAdjustLR != p.MuonAdjustLR},
	} {
		unused(k.changed, "optimizer."+k.name, "no parameter has optimizer %q", optim.Muon)
	}
	return out
}

// ifStages is what a stage's layers are called.
func ifStages(stages int) string {
	if stages > 1 {
		return " of a stage"
	}
	return ""
}
