package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// BenchmarkTrace32 traces, differentiates and prints 32 unrolled layers with
// the widths of TorchTitan's Llama debug model.
func BenchmarkTrace32(b *testing.B) {
	full := SaveNothing()
	for name, remat := range map[string]*Policy{"plain": nil, "checkpointed": &full} {
		b.Run(name, func(b *testing.B) {
			c := llama{vocab: 2048, dim: 256, ffn: 768, layers: 32, heads: 16, kv: 16, headDim: 16, seq: 512, batch: 8, dtype: BF16, remat: remat, adamw: true}
			size := 0
			for b.Loop() {
				m, err := Trace("step", nil, c.step)
				require.NoError(b, err)
				size = len(m.StableHLO())
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
