package configs

import (
	"fmt"
	"strings"

	"titan/internal/human"
	"titan/mesh"
	"titan/parallel"
)

// Bounds of what is taken for wasteful.
const (
	mostBubble  = 0.2 // of a pipeline's step
	leastChunk  = 128 // tokens of context parallelism
	leastWidth  = 128 // of a matrix, that of TPUs' matrix units
	hostDevices = 8   // of a machine with GPUs, usually
)

// parallelWarnings returns what is possible and wasteful in how work is shared.
func (r *Recipe) parallelWarnings() []string {
	axes, err := r.MeshAxes()
	if err != nil {
		return nil // elsewhere a mistake, or devices are open
	}
	model, err := r.Decoder()
	if err != nil {
		return nil
	}
	var out []string
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	p := r.Parallelism

	if tp, heads := p.Tensor, model.KVHeads; tp > heads {
		warn("%s is %d, more than the %d key/value heads: each of them is on %d devices", keyTensor, tp, heads, tp/heads)
	}
	if r.Mesh.Platform == "tpu" && p.Tensor > 1 {
		sparse, dense := model.SparseLayers()
		narrow := func(name string, n int) {
			if n/p.Tensor < leastWidth {
				warn("%s is %d and leaves %d of %s %d to a device: matrix units work on %d at a time", keyTensor, p.Tensor, n/p.Tensor, name, n, leastWidth)
			}
		}
		if len(dense) > 0 {
			narrow("hidden_dim", model.HiddenDim)
		}
		if len(sparse) > 0 {
			narrow("moe_hidden_dim", model.MoE.HiddenDim)
		}
	}
	if r.Mesh.Platform == "cuda" && p.Tensor > hostDevices {
		warn("%s is %d: machines have %d GPUs as a rule, and it would cross the network between them in every layer", keyTensor, p.Tensor, hostDevices)
	}
	if cp := p.Context; cp > 1 {
		if chunk := r.Training.SeqLen / (2 * cp); chunk < leastChunk {
			warn("%s is %d, which cuts sequences of %d tokens into chunks of %d: devices wait for each other's keys and values longer than they compute; leave it to sequences of %d tokens and more",
				keyContext, cp, r.Training.SeqLen, chunk, 2*cp*leastChunk)
		}
	}
	if passes, err := r.MicroSteps(); err == nil && r.Bubble(passes) > mostBubble {
		// (pp-1)/(n+pp-1) ≤ 1/5 from n = 4·(pp-1) on.
		enough := 4 * (p.Pipeline - 1)
		warn("%s is %d: with %s a stage waits for %.0f%% of a step; with training.global_batch_size = %d it were %.0f%%",
			keyPipeline, p.Pipeline, passesOf(passes), 100*r.Bubble(passes), enough*r.Training.LocalBatchSize*parallel.BatchDegree(axes), 100*r.Bubble(enough))
	}
	return append(out, r.memoryWarnings(axes)...)
}

// memoryWarnings returns what takes more of a device's memory than it must.
func (r *Recipe) memoryWarnings(axes []mesh.Axis) []string {
	m, err := mesh.New(axes, nil)
	if err != nil {
		return nil
	}
	plan, err := r.Placement(m)
	if err != nil {
		return nil
	}
	out := wholeMatrices(m, plan)
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	use, err := r.Memory(m)
	if err != nil || use.Device == 0 {
		return out
	}
	always := use.Parameters + use.Gradients + use.State
	switch {
	case always > use.Device:
		warn("parameters, gradients and optimizer state take %s of a device that has %s: share them out among more devices (mesh.topology), or keep optimizer state in bfloat16 (optimizer.state_dtype)", human.Size(always), human.Size(use.Device))
	case always+use.Kept > use.Device:
		key := "parallelism.fsdp_reshard_after_forward"
		warn("%s is %q%s, which keeps %s of gathered parameters on a device throughout a step: with %s of parameters, gradients and optimizer state that is more than the %s it has; set it to \"always\"",
			key, r.Parallelism.Reshard, map[bool]string{true: ", in a pipeline \"never\""}[r.Parallelism.Reshard == "default"], human.Size(use.Kept), human.Size(always), human.Size(use.Device))
	}
	return out
}

// wholeMatrices returns a warning for each reason why matrices are not sharded.
// That vectors are not is the rule.
func wholeMatrices(m *mesh.Mesh, plan *parallel.Plan) []string {
	var order []string
	names, sizes := map[string][]string{}, map[string]int64{}
	for _, w := range plan.Whole() {
		rank := len(w.Shape)
		if strings.HasPrefix(w.Name, "layers.") {
			rank--
		}
		local, err := plan.Spec(w.Name).Shard(m, w.Shape)
		if err != nil || rank < 2 {
			continue
		}
		// The reason is "no dimension of SHAPE divides by DEVICES, kept whole".
		_, why, _ := strings.Cut(strings.TrimSuffix(w.Reason, ", kept whole"), " divides ")
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], w.Name)
		sizes[why] += 4 * elements(local)
	}
	var out []string
	for _, why := range order {
		out = append(out, fmt.Sprintf("not sharded, %s on every device: %s, of which no dimension divides %s; with more copies (data_parallel_replicate_degree) fewer devices share one", human.Size(sizes[why]), listed(names[why]), why))
	}
	return out
}
