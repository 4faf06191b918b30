package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TorchTitan's own example: Llama-3 8B at 8k, against a peak of 989 TFLOP/s.
func TestTorchTitanGolden(t *testing.T) {
	m := ModelShape{Params: 8030261248, Embedding: 525336576, Layers: 32, Heads: 32, HeadDimQK: 128, HeadDimV: 128}
	f := m.FlopsPerToken(8192)
	require.Equal(t, 57914449920.0, f.Total(TorchTitan))
	require.InDelta(t, 119.25, f.TFLOPs(TorchTitan, 2059), 0.005)
	require.InDelta(t, 12.06, f.Utilization(TorchTitan, 2059, 989e12).Percent, 0.005)
}

// qwen235b is Qwen3-235B-A22B by its published dimensions.
func qwen235b() ModelShape {
	const layers, dim, heads, kv, hd, experts, topk, ffn, vocab = 94, 4096, 64, 4, 128, 128, 8, 1536, 151936
	attn := int64(dim*heads*hd*2 + dim*kv*hd*2 + 2*hd)
	routed := int64(layers) * experts * 3 * dim * ffn
	params := 2*int64(vocab)*dim + dim + int64(layers)*(attn+2*dim+dim*experts) + routed
	return ModelShape{Params: params, Embedding: vocab * dim, Layers: layers, Heads: heads, HeadDimQK: hd, HeadDimV: hd, Routed: routed, TopK: topk, Experts: experts}
}

// The published weak scaling of Qwen3-235B-A22B on TPU v7x: batch and step time
// give the tokens per second, those and the FLOPs of a token the MFU.
func TestPublishedWeakScaling(t *testing.T) {
	m := qwen235b()
	require.InDelta(t, 235.1e9, float64(m.Params), 0.1e9)
	f := m.FlopsPerToken(4096)
	require.Equal(t, 148335301632.0, f.Total(Causal))
	peak, err := PeakBF16("tpu7x")
	require.NoError(t, err)
	require.Equal(t, 1153.5e12, peak)
	for _, row := range []struct {
		chips, batch   int
		tps, mfu, step float64
	}{
		{1024, 32768, 2236, 28.8, 29.3},
		{8192, 262144, 2104, 27.1, 31.2},
	} {
		tps := TokensPerSecond(row.batch*4096, row.step, 2*row.chips)
		require.InEpsilon(t, row.tps, tps, 0.05/row.step+1e-3, "the step time is rounded to 0.1 s")
		require.InDelta(t, row.mfu, f.Utilization(Causal, row.tps, peak).Percent, 0.06)
	}
}

func TestPeakIsNeverGuessed(t *testing.T) {
	for kind, want := range map[string]float64{"TPU v5 lite": 197e12, "v5p": 459e12, "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA GB200": 2500e12, "NVIDIA B200": 2250e12} {
		got, err := PeakBF16(kind)
		require.NoError(t, err)
		require.Equal(t, want, got, kind)
	}
	_, err := PeakBF16("cpu")
	require.ErrorContains(t, err, `"cpu"`)
}
