package train

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/kernels"
	"titan/models/decoder"
	"titan/pjrt/hlo"
)

// What devices that share out experts exchange in a step for TPU is what
// docs/moe.md says, of every layer: with dropless experts rows there and back, for
// the backward pass rows with their cotangents there and cotangents back, weights
// and their gradients. A second set stands in loops, for rows that do not fit.
func TestExpertTraffic(t *testing.T) {
	const n, rows = 4, 256 // devices in ep; tokens of a device
	type policy struct {
		remat    string
		capacity float64
	}
	policies := []policy{{"full", 0}, {"full", 1.25}}
	if long {
		policies = append(policies, policy{"none", 0})
	}
	for _, c := range policies {
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
				elements(dtype.BF16, n*room*D): 2 * 5,
				elements(dtype.F32, n*room):    2 * 2,
				elements(dtype.S32, E):         1,
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

// With tile kernels no loop goes over experts' blocks, for rows that stay and for rows
// that are exchanged: a layer has three products, of which two are computed again, one for
// each of two gradients of rows, and three gradients of matrices. Those of a second round of exchanges are there as often.
func TestExpertTilesForTPU(t *testing.T) {
	for _, c := range []struct {
		topology string
		mesh     degrees
		rounds   int
	}{{"tpu7x:2x2x1", "dp_shard=8", 1}, {"v5e:2x4", "dp_shard=2 ep=4", 2}} {
		t.Run(c.topology, func(t *testing.T) {
			target, err := kernels.For(strings.Split(c.topology, ":")[0])
			require.NoError(t, err)
			var model decoder.Config
			_, _, mod := compiledFor(t, c.topology, "qwen3_moe", 1, 8, func(o *StepOptions) {
				o.Mesh = c.mesh.mesh(t)
				o.Options.Kernels, o.Options.Attention.Plain = &target, true
				model = o.Model
			})
			got := map[string]int{}
			mod.Walk(func(i *hlo.Instruction, times int64) {
				if i.CustomCallTarget == hlo.TileKernel {
					got[i.KernelName()] += int(times) / model.Layers
				}
			})
			require.Equal(t, map[string]int{
				"grouped_matmul": 5 * c.rounds, "grouped_matmul_transposed": 2 * c.rounds, "grouped_matmul_gradient": 3 * c.rounds,
			}, got)
		})
	}
}
