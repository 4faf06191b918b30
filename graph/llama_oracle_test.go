package graph_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
)

// A whole decoder (grouped-query attention, rotary embedding, SwiGLU,
// cross-entropy) against JAX's automatic differentiation: loss and every third
// gradient element, without and with checkpointing.
func TestLlamaLikeJAX(t *testing.T) {
	raw, err := os.ReadFile("testdata/oracle/llama.json")
	require.NoError(t, err)
	var want struct {
		Loss  float64
		Grads map[string][]float64
	}
	require.NoError(t, json.Unmarshal(raw, &want))
	full := SaveNothing()
	for _, remat := range []*Policy{nil, &full} {
		c := llama{vocab: 32, dim: 16, ffn: 24, layers: 2, heads: 4, kv: 2, headDim: 8, seq: 12, batch: 2, dtype: F32, remat: remat}
		m := trace(t, nil, func(b *Builder) { require.NoError(t, c.step(b)) })
		var inputs []array
		for i, in := range m.Inputs() {
			a := array{in.Type, make([]float64, in.Type.Elements())}
			for k := range a.data {
				switch in.Name {
				case "tokens":
					a.data[k] = float64(k * 7 % 32)
				case "labels":
					a.data[k] = float64(k * 5 % 32)
				default:
					a.data[k] = float64(float32(math.Sin(float64(k+1)*float64(i+1)) / 4))
				}
			}
			inputs = append(inputs, a)
		}
		got := run(t, m, inputs...)
		require.InDelta(t, want.Loss, got[0].data[0], 2e-6)
		for i, o := range m.Outputs()[1:] {
			largest := 0.0
			for _, g := range want.Grads[o.Name] {
				largest = max(largest, math.Abs(g))
			}
			require.Len(t, want.Grads[o.Name], (o.Type.Elements()+2)/3, o.Name)
			for k, g := range want.Grads[o.Name] {
				// The step is p - 0.1·g, rounded at the size of p.
				have := (inputs[i].data[3*k] - got[1+i].data[3*k]) * 10
				require.InDelta(t, g, have, 2e-5*largest+4e-7, "%s[%d]", o.Name, 3*k)
			}
		}
	}
}
