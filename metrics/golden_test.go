package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/models"
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

// llama returns Llama 3.1 of a size by its published dimensions.
func llama(layers, dim, heads, ffn int) ModelShape {
	const kv, hd, vocab = 8, 128, 128256
	attn := int64(dim*heads*hd*2 + dim*kv*hd*2)
	params := 2*int64(vocab)*int64(dim) + int64(dim) + int64(layers)*(attn+2*int64(dim)+3*int64(dim)*int64(ffn))
	return ModelShape{Params: params, Embedding: vocab * int64(dim), Layers: layers, Heads: heads, HeadDimQK: hd, HeadDimV: hd}
}

// MaxText's published recipes on TPU v7x: tokens a second and chip follow from
// batch and step time, TFLOP/s a chip from those and the FLOPs of a token under
// the causal convention.
func TestPublishedMaxText(t *testing.T) {
	m70, m405 := llama(80, 8192, 64, 28672), llama(126, 16384, 128, 53248)
	require.EqualValues(t, 8030261248, llama(32, 4096, 32, 14336).Params)
	require.EqualValues(t, 70553706496, m70.Params)
	require.EqualValues(t, 405853388800, m405.Params)
	for _, row := range []struct {
		name               string
		m                  ModelShape
		seq, chips, batch  int
		tps, tflops, steps float64 // of a chip; 0: not published
	}{
		{"405B, 8k", m405, 8192, 256, 1536, 499.77, 1261.4, 98.34},
		{"70B, 8k", m70, 8192, 64, 256, 2686.98, 1207.05, 12.20},
		{"70B, 8k, 256 chips", m70, 8192, 256, 1024, 2670.55, 0, 12.27},
		{"70B, 128k", m70, 131072, 256, 64, 963.03, 0, 34.02},
		{"235B-A22B, 4k", qwen235b(), 4096, 256, 8192, 4245.89, 629.79, 30.87},
	} {
		require.InEpsilon(t, row.tps, TokensPerSecond(row.batch*row.seq, row.steps, row.chips), 1e-3, row.name)
		if row.tflops > 0 {
			require.InEpsilon(t, row.tflops, row.m.FlopsPerToken(row.seq).TFLOPs(Causal, row.tps), 1e-4, row.name)
		}
	}
	// "405B on 1,024 chips, 8k: about 500 tokens a second and chip, MFU above 50%."
	chip := 2307e12
	require.Greater(t, m405.FlopsPerToken(8192).Utilization(Causal, 500, chip).Percent, 50.0)
	// The conventions differ by half of attention: at 128k by hand,
	// (6·69.503e9 + 6·80·64·256·131072) / (6·69.503e9 + 3·80·64·256·131072).
	f := m70.FlopsPerToken(131072)
	require.InEpsilon(t, 1.5528, f.Total(TorchTitan)/f.Total(Causal), 1e-4)
}

// Every peak of the reference.
func TestPeaks(t *testing.T) {
	for kind, tflops := range map[string]float64{
		"NVIDIA A100-SXM4-80GB": 312, "NVIDIA H100 80GB HBM3": 989, "NVIDIA H200": 989, "NVIDIA B200": 2250, "NVIDIA GB200": 2500,
		"AMD Instinct MI300X": 1300, "AMD Instinct MI355X": 2500,
		"TPU v4": 275, "TPU v5 lite": 197, "TPU v5": 459, "TPU v6 lite": 918, "tpu7x": 1153.5,
		"v5e": 197, "v5p": 459, "v6e": 918,
	} {
		got, err := PeakBF16(kind)
		require.NoError(t, err, kind)
		require.Equal(t, tflops*1e12, got, kind)
	}
	// The recipe decides over all; the CPU has none, and nothing is guessed.
	for _, c := range []struct {
		recipe float64
		kind   string
		want   float64
	}{{0, "cpu", 0}, {0, "TPU v4", 275e12}, {1.5, "cpu", 1.5e12}, {100, "TPU v4", 100e12}, {7, "unheard of", 7e12}} {
		got, err := Config{PeakTFLOPs: c.recipe}.Peak(c.kind)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := Config{}.Peak("NVIDIA L4")
	require.ErrorContains(t, err, `"NVIDIA L4"`)
	require.ErrorContains(t, err, "metrics.peak_tflops")
}

// A decoder's own count of its parameters gives the same shapes.
func TestShapeOf(t *testing.T) {
	for _, c := range []struct {
		family, flavor string
		want           ModelShape
	}{{"llama3", "8B", llama(32, 4096, 32, 14336)}, {"llama3", "70B", llama(80, 8192, 64, 28672)}, {"llama3", "405B", llama(126, 16384, 128, 53248)}, {"qwen3_moe", "235B-A22B", qwen235b()}} {
		d, err := models.Lookup(c.family, c.flavor)
		require.NoError(t, err)
		require.Equal(t, c.want, ShapeOf(&d), "%s %s", c.family, c.flavor)
	}
	d, err := models.Lookup("qwen3", "0.6B")
	require.NoError(t, err)
	s := ShapeOf(&d)
	require.True(t, s.Tied)
	require.Equal(t, s.Params, s.Active(), "a tied embedding multiplies as the output layer")
}
