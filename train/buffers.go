package train

import (
	"titan/graph"
	"titan/models/decoder"
	"titan/optim"
)

// nextBuffers returns the model's buffers after a step, in the order of
// Config.Buffers. They stay as they are where the update was skipped: what tokens
// of a model that is not finite chose says nothing.
func nextBuffers(state map[string]*graph.Value, s sums, res optim.Results, c decoder.Config) []*graph.Value {
	var out []*graph.Value
	for _, p := range c.Buffers() {
		old := state[p.Name]
		next := decoder.BalanceRouter(old, s.experts, c.MoE.BiasRate)
		updated := graph.Equal(res.Skipped, state[optim.SkippedName])
		out = append(out, graph.Select(updated, next, old))
	}
	return out
}
