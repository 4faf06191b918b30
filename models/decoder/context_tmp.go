package decoder
import "titan/graph"
func contextAttention(q, k, v, segments *graph.Value, g Group, o AttentionOptions) *graph.Value { return nil }
