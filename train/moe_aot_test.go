package train

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/models/decoder"
)

// What devices that share out experts exchange in a step for TPU is what
// docs/moe.md says, of every layer: with dropless experts rows there and back, for
// the backward pass rows with their cotangents there and cotangents back, weights
// and their gradients. A second set stands in loops, for rows that do not fit.
func TestExpertTraffic(t *testing.T) {
	const n, rows = 4, 256 // devices in ep; tokens of a device
	for _, c := range []struct {
		remat    string
		capacity float64
	}{{"none", 0}, {"full", 0}, {"full", 1.25}} {
		t.Run(fmt.Sprint(c.remat, c.capacity), func(t *testing.T) {
			var model decoder.Config
			_, _, mod := compiledFor(t, "v5e:2x4", "qwen3_moe", 1, 8, func(o *StepOptions) {
				o.Mesh = degrees("dp_shard=2 ep=4").mesh(t)
				o.Options.Remat = decoder.ActivationCheckpoint{Mode: c.remat}
				moe := *o.Model.MoE
				moe.CapacityFactor = c.capacity
				o.Model.MoE, model = &moe, o.Model
			})
			D, E, k := model.Dim, model.MoE.Experts, model.MoE.TopK
			got := map[string]int{}
			for _, op := range mod.Collectives() {
				if op.Kind() != "all-to-all" {
					continue
				}
				require.EqualValues(t, model.Layers, op.Times, "%v", op.Op)
				require.Contains(t, op.Op.String(), "replica_groups={{0,1,2,3},{4,5,6,7}}")
				var size int64
				var d dtype.DType
				for _, x := range op.Op.Operands {
					size, d = size+x.Shape.Bytes(), x.Shape.Type.DType()
				}
				got[fmt.Sprint(d, " ", size)]++
			}
			elements := func(d dtype.DType, n int) string { return fmt.Sprint(d, " ", n*d.Size()) }
			room := rows * k * 3 / 2 / n // a buffer for each device
			want := map[string]int{
				elements(dtype.BF16, n*room*D):   2 * 3,
				elements(dtype.BF16, n*room*2*D): 2,
				elements(dtype.F32, n*room):      2 * 2,
				elements(dtype.S32, E):           1,
			}
			if c.remat == "full" {
				want[elements(dtype.S32, E)] = 2
			}
			if c.capacity > 0 {
				room := int(c.capacity * float64(rows*k) / float64(E))
				want = map[string]int{elements(dtype.BF16, E*room*D): 6} // forward, again, and backward
			}
			require.Equal(t, want, got)
		})
	}
}
