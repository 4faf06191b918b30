package train

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/optim"
)

// train runs 20 steps from the initial parameters of seed 1, and returns the losses
// and gradient norms, and the initial parameters.
func (c parityCase) train(t *testing.T) (losses, norms []float64, initial map[string][]byte) {
	t.Helper()
	o := c.options(t)
	step, err := BuildStep(o)
	require.NoError(t, err)
	machine := virtual(t, o.Mesh)
	exe, err := machine.Compile(step.Module)
	require.NoError(t, err)
	defer exe.Close()
	s, err := machine.Init(1, o.Model, step.Vars)
	require.NoError(t, err)
	defer s.Close()
	initial = map[string][]byte{}
	for i, v := range step.Vars {
		raw, err := s.Whole(i)
		require.NoError(t, err)
		initial[v.Name] = raw
	}
	for k := range 20 {
		batch := c.batch(uint64(k))
		var arrays [][]byte
		for _, v := range step.Batch {
			arrays = append(arrays, batch[v.Name])
		}
		r := &Running{exe: exe, step: step, state: s}
		metrics, err := r.Step(o.Optimizer.Rates(k%10), arrays)
		require.NoError(t, err)
		losses, norms = append(losses, metrics[MetricLoss]), append(norms, metrics[MetricGradNorm])
	}
	return losses, norms, initial
}

// From the same seed every mesh begins with the same bits and learns the same.
func TestCurves(t *testing.T) {
	quickly(t)
	cases := []parityCase{
		{mesh: "dp_replicate=2 cp=2 tp=2", packed: true},
		{mesh: "pp=2 dp_shard=2 ep=2", moe: true, packed: true, change: withMuon(t)},
	}
	if long {
		for _, c := range slices.Concat(parityCases, moreParityCases) {
			c.passes = min(c.passes, 1) // rows are those of parityRows in any case
			cases = append(cases, c)
		}
	}
	type curve struct {
		losses, norms []float64
		initial       map[string][]byte
	}
	alone := map[string]curve{}
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			key := fmt.Sprint(c.moe, c.packed, c.change != nil)
			if alone[key].losses == nil {
				one := c
				one.mesh, one.passes = "dp_shard=1", 1
				l, n, i := one.train(t)
				alone[key] = curve{l, n, i}
			}
			want := alone[key]
			losses, norms, initial := c.train(t)
			for name, bits := range want.initial {
				require.Equal(t, bits, initial[name], "%s begins with other bits", name)
			}
			require.Less(t, want.losses[19], 0.97*want.losses[0], "it learns")
			for k := range losses {
				require.InEpsilon(t, want.losses[k], losses[k], 2e-5, "loss of step %d", k+1)
				require.InEpsilon(t, want.norms[k], norms[k], 1e-3, "gradient norm of step %d", k+1)
			}
			t.Logf("losses of step 1 and 20: %.6f and %.6f on one device, %.6f and %.6f", want.losses[0], want.losses[19], losses[0], losses[19])
		})
	}
}

// withMuon trains with Muon, in f32 throughout.
func withMuon(t *testing.T) func(o *StepOptions) {
	return func(o *StepOptions) {
		c := optim.Defaults()
		c.Name, c.LR, c.MuonNSDType = "Muon", 3e-3, "float32"
		var ps []optim.Param
		for _, p := range o.Model.Params() {
			ps = append(ps, optim.Param{Name: p.Name, Shape: p.Shape, Axes: p.Axes})
		}
		s := optim.DefaultSchedule()
		s.WarmupSteps = 0
		opt, err := optim.New(c, s, 20, 1, ps)
		require.NoError(t, err)
		o.Optimizer = opt
	}
}
