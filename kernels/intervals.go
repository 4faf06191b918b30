package kernels

import (
	"titan/dtype"
	"titan/graph"
)

// Intervals says which keys queries see.
type Intervals struct {
	// Places, s32 [Q], has for each query the last key that it sees, its own in
	// causal attention; nil: it sees all.
	Places *graph.Value
	// Starts, s32 [B, Q], has for each query of B sequences the first key that it
	// sees; nil: it sees all from the beginning. [Starts] makes it of documents.
	Starts *graph.Value
}

// KeyIntervals returns Lo and Hi, s32 [B, Q], for [Attention] of Q queries to T
// keys; B is 1 without Starts. What lies before or behind the keys is cut off, and
// an interval may be empty.
func KeyIntervals(b *graph.Builder, Q, T int, in Intervals) (lo, hi *graph.Value) {
	B := 1
	if in.Starts != nil {
		B = in.Starts.Dim(0)
	}
	none, all := b.Zeros(graph.T(dtype.S32, B, Q)), b.Full(graph.T(dtype.S32, B, Q), float64(T))
	inside := func(x *graph.Value) *graph.Value { return graph.Min(graph.Max(x, none), all) }
	lo, hi = none, all
	if in.Starts != nil {
		lo = inside(in.Starts)
	}
	if in.Places != nil {
		hi = inside(graph.BroadcastInDim(graph.AddScalar(in.Places, 1), []int{B, Q}, []int{1}))
	}
	return lo, hi
}

// Starts returns for each token of sequences, s32 [B, S], the place in its sequence
// of the first token of its document. segments, s32 [B, S], is the same for tokens
// of one document, which are consecutive, and differs between neighbours. With
// causal attention that is all there is to documents: a query sees the keys from
// its start to its own place. Takes O(S·log S).
func Starts(segments *graph.Value) *graph.Value {
	b, B, S := segments.Builder(), segments.Dim(0), segments.Dim(1)
	zero := b.Int(dtype.S32, 0)
	later := func(x *graph.Value, by int) *graph.Value { // x moved to places later by so many
		return graph.Pad(graph.SliceDim(x, 1, 0, S-by), zero, []int{0, by}, []int{0, 0}, []int{0, 0})
	}
	if S == 1 {
		return b.Zeros(segments.Type())
	}
	place := b.Iota(graph.T(dtype.S32, B, S), 1)
	start := graph.Select(graph.NotEqual(segments, later(segments, 1)), place, zero)
	for by := 1; by < S; by *= 2 { // the largest so far
		start = graph.Max(start, later(start, by))
	}
	return start
}
