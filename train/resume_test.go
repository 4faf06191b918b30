package train

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
)

// mixture is a recipe of everything at once: experts, bfloat16, documents apart,
// several passes a step, and dimensions that 4 devices do not divide.
var mixture = []string{
	"model.name=qwen3_moe",
	"model.override={dim = 30, hidden_dim = 42, moe_hidden_dim = 14, n_experts = 3, top_k = 2, head_dim = 10, z_loss_coef = 1e-3}",
	"training.mixed_precision_param=bfloat16", "training.global_batch_size=8",
	"data.reset_positions=true", "data.isolate_documents=true", "data.mask_boundaries=true",
	"optimizer.param_groups=[{pattern = \"norm\", weight_decay = 0.0}]",
}

// A run that was stopped and resumed is the run that was not, bit for bit:
// losses, gradient norms, parameters, moments, counters, place in the data.
func TestResumeIsExact(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	for name, set := range map[string][]string{"plain": nil, "mixture": mixture} {
		t.Run(name, func(t *testing.T) {
			straight := recipe(t, data, set...)
			res, log := run(t, straight)
			require.EqualValues(t, 6, res.Step)
			require.Nil(t, res.Stopped)
			require.Equal(t, []int{2, 4, 6}, steps(t, straight))
			if name == "mixture" {
				require.Contains(t, log, "not sharded (")
				require.Contains(t, log, "in 2 passes")
			}
			want := saved(t, straight, 6)
			losses, norms := curve(t, straight, loss, 6), curve(t, straight, gradNorm, 6)
			require.Less(t, losses[5], losses[0], "it learns")

			where := []string{"step:  1 ", "saved ", "step:  4 "}
			if long {
				where = append(where, "parameters: ", "step:  2 ", "step:  3 ")
			}
			for i, text := range where {
				mode := []string{"disabled", "async"}[i%2]
				r := recipe(t, data, append(set, "checkpoint.async_mode="+mode)...)
				res, log := runUntil(t, r, text)
				require.Equal(t, syscall.SIGTERM, res.Stopped, "%s", log)
				require.True(t, res.Preempted())
				require.Less(t, int(res.Step), 6)
				if res.Step > 0 {
					require.Contains(t, steps(t, r), int(res.Step))
					require.Contains(t, log, fmt.Sprintf("ending after step %d", res.Step))
				}
				_, log = run(t, again(r, nil))
				require.Equal(t, res.Step > 0, contains(log, "resumed from "), "%s", log)
				about := fmt.Sprintf("%s, stopped after step %d", mode, res.Step)
				require.Equal(t, losses, curve(t, r, loss, 6), about)
				require.Equal(t, norms, curve(t, r, gradNorm, 6), about)
				sameState(t, want, saved(t, r, 6), about)
			}
		})
	}
}

// The same run on other meshes, straight or resumed there, and with one batch
// cut into passes: equal up to the order of additions. Labels at the start of
// documents do not count, so that rows, devices and passes have different
// numbers of valid tokens.
func TestOtherMeshesAndPasses(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(2, 60, 2, 12)...)
	straight := recipe(t, data, "data.mask_boundaries=true")
	run(t, straight)
	losses, norms, want := curve(t, straight, loss, 6), curve(t, straight, gradNorm, 6), saved(t, straight, 6)

	near := func(r *configs.Recipe, from int, about string) {
		got, gotNorms := curve2(t, r, loss, from, 6), curve2(t, r, gradNorm, from, 6)
		for i := range got {
			require.InEpsilon(t, losses[from+i], got[i], 2e-6, "%s: loss of step %d", about, from+i+1)
			require.InEpsilon(t, norms[from+i], gotNorms[i], 1e-4, "%s: gradient norm of step %d", about, from+i+1)
		}
		state := saved(t, r, 6)
		require.Len(t, state, len(want))
		for name, w := range want {
			if s := state[name]; name == "embed" || name == "layers.wq" {
				requireNear(t, floats(w), floats(s), 2e-4, about+": "+name)
			}
			if name == "optim.step" || name == "state train" {
				require.Equal(t, string(w), string(state[name]), "%s: %s", about, name)
			}
		}
	}
	onMesh := recipe(t, data, "data.mask_boundaries=true", "parallelism.data_parallel_replicate_degree=2")
	_, log := run(t, onMesh)
	require.Contains(t, log, "dp_replicate=2 × dp_shard=2")
	near(onMesh, 0, "2x2")

	for about, set := range map[string][]string{
		"2x2":                     {"parallelism.data_parallel_replicate_degree=2"},
		"one device":              {"mesh.devices=1", "training.local_batch_size=4"},
		"one device, four passes": {"mesh.devices=1", "training.global_batch_size=4"},
	} {
		r := recipe(t, data, append(set, "data.mask_boundaries=true")...)
		copyCheckpoint(t, straight, r, 2)
		_, log := run(t, r)
		require.Contains(t, log, "resumed from ")
		require.NotContains(t, log, "WARNING", "the batches are the same")
		near(r, 2, about+", resumed after step 2")
	}
}

// copyCheckpoint copies a checkpoint with ordinary tools.
func copyCheckpoint(t *testing.T, from, to *configs.Recipe, step int) {
	t.Helper()
	name := fmt.Sprintf("step-%08d", step)
	copyDir(t, filepath.Join(from.Job.DumpFolder, from.Checkpoint.Folder, name), filepath.Join(to.Job.DumpFolder, to.Checkpoint.Folder, name))
}
