package train

import (
	"fmt"
	"strings"

	"titan/configs"
	"titan/internal/human"
	"titan/internal/plural"
	"titan/mesh"
	"titan/models/decoder"
	"titan/parallel"
)

// OptionsFor resolves a recipe on a mesh into what the step is built from.
func OptionsFor(r *configs.Recipe, m *mesh.Mesh, p Platform) (StepOptions, error) {
	model, err := r.Decoder()
	if err != nil {
		return StepOptions{}, err
	}
	opt, err := r.NewOptimizer()
	if err != nil {
		return StepOptions{}, err
	}
	place, err := r.PlacementOptions()
	if err != nil {
		return StepOptions{}, err
	}
	dp := parallel.BatchDegree(m.Axes())
	passes, err := r.MicroStepsOn(dp)
	if err != nil {
		return StepOptions{}, err
	}
	local := r.Training.LocalBatchSize
	o := StepOptions{
		Model: model, Placement: place, Mesh: m, Optimizer: opt, MomentsFirst: p.CPU,
		Options:    modelOptions(r, &model, p, m, local, r.Training.SeqLen),
		Rows:       local * dp,
		Passes:     passes,
		SeqLen:     r.Training.SeqLen,
		LayerAhead: r.Parallelism.LayerAhead(),
		Positions:  r.Data.ResetPositions,
		Segments:   r.Data.IsolateDocuments,
	}
	return o, nil
}

// modelOptions chooses how the model is computed for local sequences of S tokens
// on each device of a mesh.
func modelOptions(r *configs.Recipe, model *decoder.Config, p Platform, m *mesh.Mesh, local, S int) decoder.Options {
	along := func(axis string) int { return max(1, m.AxisSize(axis)) }
	// What a device has of a sequence, and of the vocabulary, where the loss is computed.
	tokens := max(1, S/(along(parallel.AxisContext)*along(parallel.AxisPipeline)))
	vocab := max(1, model.VocabSize/along(parallel.AxisTensor))
	o := decoder.Options{
		Remat: r.ActivationCheckpoint, Unroll: r.Training.UnrollLayers,
		Attention:  decoder.AttentionOptions{Context: r.Parallelism.Rotate},
		LossChunks: lossChunks(local, tokens, vocab, p), ForceLoadBalance: r.Debug.ForceBalance, ExpertBuffer: r.MoE.BufferFactor,
	}
	if o.Float8 = r.Quantize.Linear.Float8; p.CPU {
		o.Float8InBF16 = true // which it multiplies more than twice as fast
		o.Attention.Rows = 16
	}
	if p.Chip != nil {
		o.RopeProduct = true
		o.Attention.Block = plainBlock(local*max(1, model.Heads/along(parallel.AxisTensor)), tokens)
	}
	useKernels(&o, r.Kernels, p)
	return o
}

// lossChunks is the number of parts in which logits are computed: they take 256
// MiB of a device at most, or one position of each sequence. On a TPU it is 1 GiB:
// every part reads the output matrix and adds to its gradient, whole, which takes
// longer than the products with less than some 2000 tokens.
func lossChunks(rows, S, vocab int, p Platform) int {
	most := 256 << 20
	if p.Chip != nil {
		most = 1 << 30
	}
	n := 1
	for n < S && 4*rows*(S/n)*vocab > most {
		n *= 2
	}
	return n
}

// plainBlock is the number of queries and keys that attention without tile kernels
// treats at once on a TPU, for so many heads and S tokens: a quarter of S, if scores,
// in f32, take 256 MiB at most. The compiler takes as long for small blocks as for
// large ones, and matrix units work worse with them.
func plainBlock(heads, S int) int {
	const most, lanes = 256 << 20, 128
	block := (S/4 + lanes - 1) / lanes * lanes
	for block > lanes && 4*heads*block*S > most {
		block = (block/2 + lanes - 1) / lanes * lanes
	}
	return max(block, lanes)
}

// describe lists, for the log, what is about to be trained and where it lies.
func describe(o StepOptions, plan *parallel.Plan) []string {
	all, embedding, routed := o.Model.Count()
	lines := []string{
		fmt.Sprintf("mesh %v", o.Mesh),
		fmt.Sprintf("model: %s parameters (embedding %s%s), %s, width %d", human.Int(all), human.Int(embedding), ifMoE(routed), plural.Of(o.Model.Layers, "layer"), o.Model.Dim),
	}
	lines = append(lines, describeKernels(o, plan)...)
	kinds := []string{
		"parameters " + human.Memory(plan.Bytes(4)), "gradients " + human.Memory(plan.Bytes(4)),
	}
	var state int64
	vars := StateVars(plan, o.Model, o.Optimizer)
	for _, v := range vars[len(o.Model.Arrays()):] {
		if n, err := v.localBytes(o.Mesh); err == nil {
			state += n
		}
	}
	lines = append(lines, fmt.Sprintf("each device holds: %s, optimizer state %s", strings.Join(kinds, ", "), human.Memory(state)))
	whole := plan.Whole()
	if len(whole) > 0 {
		var names []string
		reason := map[string][]string{}
		for _, w := range whole {
			if reason[w.Reason] == nil {
				names = append(names, w.Reason)
			}
			reason[w.Reason] = append(reason[w.Reason], w.Name)
		}
		for _, n := range names {
			lines = append(lines, fmt.Sprintf("not sharded (%s): %s", n, strings.Join(reason[n], ", ")))
		}
	}
	passes := ""
	if o.Passes > 1 {
		passes = fmt.Sprintf(", in %d passes", o.Passes)
	}
	if n := plan.Stages().Devices(); n > 1 {
		lines = append(lines, fmt.Sprintf("pipeline: %d stages of %s, 1F1B, bubble %.1f%% of a step", n, plural.Of(o.Model.Layers/n, "layer"), 100*parallel.Bubble(n, o.Passes)))
	}
	return append(lines, fmt.Sprintf("a step: %s of %s%s, %s", plural.Of(o.Rows*o.Passes, "sequence"), plural.Of(o.SeqLen, "token"), passes, human.Counted(o.Rows*o.Passes*o.SeqLen, "token")))
}

func ifMoE(routed int64) string {
	if routed == 0 {
		return ""
	}
	return ", experts " + human.Int(routed)
}
