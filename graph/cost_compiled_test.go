package graph_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/internal/xlatest"
	"titan/pjrt/hlo"
	"titan/sharding"
)

// TestImpliedCollectivesAreCompiled: what the cost calls implied is what the
// compiler inserts, element by element. (The CPU compiler all-reduces where
// others reduce-scatter, and gathers in f32 what is bf16.)
func TestImpliedCollectivesAreCompiled(t *testing.T) {
	const n = 4
	full := decoder
	full.spec = func(kind string) PortOption {
		if kind == "x" {
			return Sharded(sharding.P("d"))
		}
		return Sharded(sharding.P(nil, "d"))
	}
	full.weight = func(w *Value, kind string) *Value {
		return Constrain(Convert(w, BF16), sharding.P(), Cotangent(sharding.P("d")), GradIn(F32))
	}
	full.act = func(x *Value) *Value { return Constrain(Convert(x, F32), sharding.P("d")) }
	tensor := decoder
	tensor.forward = true
	tensor.spec = func(kind string) PortOption {
		switch kind {
		case "x":
			return Sharded(sharding.P())
		case "o", "down":
			return Sharded(sharding.P(nil, "d"))
		}
		return Sharded(sharding.P(nil, nil, "d"))
	}
	tensor.act = func(x *Value) *Value { return Constrain(x, sharding.P()) }
	for name, c := range map[string]stack{"fully sharded": full, "tensor": tensor} {
		t.Run(name, func(t *testing.T) {
			m := c.trace(t, costMesh(t, "d", n))
			want := map[string]float64{}
			for _, cc := range m.Cost().Collectives {
				kind, size := strings.ReplaceAll(cc.Kind, "_", "-"), 4.
				switch kind {
				case "all-gather":
					size = 2
				case "reduce-scatter":
					kind = "all-reduce"
				}
				want[kind] += cc.Bytes / size
			}
			x := xlatest.Compile(t, xlatest.CPU(t), m.StableHLO(), n)
			prog, err := x.OptimizedHLO()
			require.NoError(t, err)
			got := map[string]float64{}
			for _, cc := range prog.Collectives() {
				cc.Op.Shape.Leaves(func(s hlo.Shape) {
					got[cc.Kind()] += float64(cc.Times) * float64(s.Bytes()) / float64(s.Type.DType().Size())
				})
			}
			require.NotEmpty(t, got)
			require.Equal(t, want, got)
		})
	}
}
