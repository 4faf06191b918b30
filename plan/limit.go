package plan

import (
	"fmt"
	"slices"
	"strings"
)

// limit names what costs most of the time that a perfect machine would not take,
// and what may help.
func (p *Prediction) limit(s *traced, r *Report) (limit, hint string) {
	mc, err := newMachine(s.topology.Kind)
	if err != nil || p.Seconds == 0 {
		return "", ""
	}
	useful := r.FlopsPerToken.Causal * float64(r.Tokens) / float64(r.Devices) / mc.peak
	done := p.Flops / mc.peak
	type cost struct {
		seconds     float64
		limit, hint string
	}
	of := func(part Part) float64 { return p.share(part).Seconds }
	slow := func(part Part) float64 { return max(0, of(part)-p.share(part).Flops/mc.peak) }
	share := func(x float64) string { return fmt.Sprintf("%.0f%% of the step", 100*x/p.Seconds) }
	again := max(0, done-useful)
	costs := []cost{
		{of(Communication), "communication that nothing hides", waitingHint(p, s)},
		{of(Transfers), "waiting for memory or the host", "keep fewer values in the host's memory (activation_checkpoint.offload)"},
		{of(Bubble), "the pipeline's bubble", "more passes: a larger training.global_batch_size or a smaller local_batch_size"},
		{again, "computing again what was not kept, and what masks throw away", againHint(s)},
		{of(Other), "operations that are no contractions", "they are limited by memory: fewer, larger fusions, or a tile kernel"},
		{of(Optimizer), "the optimizer's update", "more devices to a copy of the state, or more tokens a step"},
		{slow(Matmul), "contractions below the peak of the matrix units", "larger matrices on a device: fewer tensor- or context-parallel devices, or a larger local_batch_size"},
		{slow(Attention), "attention, far below the peak of the matrix units", attentionHint(p)},
		{slow(Experts), "routing and the experts' products below the peak of the matrix units", expertsHint(p)},
	}
	best := costs[0]
	for _, c := range costs[1:] {
		if c.seconds > best.seconds {
			best = c
		}
	}
	if useful > best.seconds {
		return fmt.Sprintf("the matrix units: the model's own arithmetic is %s", share(useful)), "next is " + best.limit + ", " + share(best.seconds)
	}
	return fmt.Sprintf("%s, %s", best.limit, share(best.seconds)), best.hint
}

// waitingHint says what would make devices wait less.
func waitingHint(p *Prediction, s *traced) string {
	var worst Transfer
	for _, t := range p.Transfers {
		if t.Exposed > worst.Exposed {
			worst = t
		}
	}
	hint := fmt.Sprintf("most is %s over %v", worst.Kind, worst.Axes)
	switch {
	case worst.Network == "DCN":
		return hint + ", between slices: more tokens a step make it rarer"
	case worst.Kind == "all-gather" || worst.Kind == "reduce-scatter":
		var may []string
		if !s.recipe.Parallelism.LayerAhead() {
			may = append(may, `parallelism.fsdp_prefetch = "layer", for the memory of one more layer, gathered`)
		}
		if worst.Kind == "reduce-scatter" && s.options.Placement.Reduce.Size() > 2 {
			may = append(may, `training.mixed_precision_reduce = "bfloat16", for half the bytes`)
		}
		if s.options.Rows*s.options.SeqLen > 0 && s.options.Passes > 1 {
			may = append(may, "a larger local_batch_size in fewer passes, which gathers parameters less often")
		} else {
			may = append(may, "a larger local_batch_size, or fewer devices to a copy (data_parallel_replicate_degree)")
		}
		return hint + ": " + strings.Join(may, "; or ")
	}
	return hint + ": fewer devices on that axis"
}

// tiled says whether a part of the step is computed by tile kernels.
func (p *Prediction) tiled(part Part) bool {
	return slices.ContainsFunc(p.TileKernels, func(k KernelCalls) bool { return kernelPart(k.Name) == part })
}

func attentionHint(p *Prediction) string {
	if p.tiled(Attention) {
		return "larger tiles (kernels.attention_tiles) if the vector memory has room; with context parallelism, fewer devices to a sequence"
	}
	return "tile kernels (kernels.attention); with context parallelism, fewer devices to a sequence"
}

func expertsHint(p *Prediction) string {
	hint := "more tokens to an expert (local_batch_size), or fewer expert-parallel devices"
	if !p.tiled(Experts) {
		return "tile kernels (kernels.experts), " + hint
	}
	return hint
}

func againHint(s *traced) string {
	if s.options.Options.Remat.Mode != "none" {
		return fmt.Sprintf("activation_checkpoint.mode is %q: keep more if there is room", s.options.Options.Remat.Mode)
	}
	return ""
}
