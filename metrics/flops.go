// Package metrics turns what a training step did into the figures that people
// compare: FLOPs per token, tokens per second, model FLOPs utilisation.
//
// A figure is only comparable under one FLOP convention, so every utilisation
// carries its convention:
//
//	f := metrics.ModelShape{…}.FlopsPerToken(8192)
//	mfu := f.Utilization(metrics.TorchTitan, tps, peak)
package metrics

import "fmt"

// Convention says how attention is counted.
type Convention uint8

const (
	// TorchTitan counts attention over the full square, as TorchTitan does.
	TorchTitan Convention = iota
	// Causal counts the half of the square under the causal mask, as MaxText
	// does since July 2025 and as the published TPU v7x figures do.
	Causal
)

func (c Convention) String() string { return [...]string{"torchtitan", "causal"}[min(c, 1)] }

// ModelShape is what counting FLOPs needs to know of a decoder-only model.
type ModelShape struct {
	// Params counts all parameters, Embedding those of the input embedding.
	Params, Embedding int64
	// Tied models use the embedding as output layer, where it multiplies.
	Tied bool
	// Layers, Heads and the head dimensions of queries and keys, and of values.
	Layers, Heads, HeadDimQK, HeadDimV int
	// Routed counts the parameters of all routed experts (part of Params), of
	// which every token meets TopK of Experts. Zero for dense models.
	Routed        int64
	TopK, Experts int
}

// Active is the number of parameters that multiply each token: without the
// input embedding (unless it is tied to the output) and with TopK of Experts.
func (m ModelShape) Active() int64 {
	n := m.Params
	if !m.Tied {
		n -= m.Embedding
	}
	if m.Experts > 0 {
		n -= m.Routed - m.Routed*int64(m.TopK)/int64(m.Experts)
	}
	return n
}

// Flops is the training cost of one token, forward and backward, without
// recomputation.
type Flops struct {
	Matmul    float64 // 6 × active parameters
	Attention float64 // over the full square
}

// FlopsPerToken counts one token of a sequence of seqLen, by the formulas of
// TorchTitan: 6·P for the parameters and 6·L·H·(d_qk+d_v)·T for attention.
func (m ModelShape) FlopsPerToken(seqLen int) Flops {
	return Flops{
		Matmul:    6 * float64(m.Active()),
		Attention: 6 * float64(m.Layers) * float64(m.Heads) * float64(m.HeadDimQK+m.HeadDimV) * float64(seqLen),
	}
}

// Total is the cost of a token under convention c.
func (f Flops) Total(c Convention) float64 {
	if c == Causal {
		return f.Matmul + f.Attention/2
	}
	return f.Matmul + f.Attention
}

// Utilization is a model FLOPs utilisation in percent, with what it means.
type Utilization struct {
	Percent    float64
	Convention Convention
}

func (u Utilization) String() string { return fmt.Sprintf("%.2f%% (%v)", u.Percent, u.Convention) }

// Utilization is 100·F·tps/peak for tps tokens per second and device and a peak
// in FLOP/s per device.
func (f Flops) Utilization(c Convention, tps, peak float64) Utilization {
	return Utilization{100 * f.Total(c) * tps / peak, c}
}

// TFLOPs is the achieved rate per device in TFLOP/s.
func (f Flops) TFLOPs(c Convention, tps float64) float64 { return f.Total(c) * tps / 1e12 }
