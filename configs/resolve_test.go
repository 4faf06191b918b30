package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/data"
	"titan/mesh"
	"titan/models"
)

func TestResolve(t *testing.T) {
	write(t, map[string]string{"run.toml": small})
	for name, c := range map[string]struct {
		set              []string
		replicate, shard int
		micro, batch     int
		tokens           int64
	}{
		"defaults":  {nil, 1, 1, 1, 8, 8 * 2048},
		"devices":   {[]string{"mesh.devices=8"}, 1, 8, 1, 64, 64 * 2048},
		"hsdp":      {[]string{"mesh.devices=8", "parallelism.data_parallel_replicate_degree=2"}, 2, 4, 1, 64, 64 * 2048},
		"asked for": {[]string{"parallelism.data_parallel_replicate_degree=2", "parallelism.data_parallel_shard_degree=3"}, 2, 3, 1, 48, 48 * 2048},
		"replicas":  {[]string{"parallelism.data_parallel_replicate_degree=4"}, 4, 1, 1, 32, 32 * 2048},
		"passes":    {[]string{"mesh.devices=2", "training.global_batch_size=48", "training.seq_len=16"}, 1, 2, 3, 48, 48 * 16},
		"one pass":  {[]string{"mesh.devices=2", "training.global_batch_size=16", "training.seq_len=16"}, 1, 2, 1, 16, 16 * 16},
		"topology":  {[]string{"mesh.platform=tpu", "mesh.topology=tpu7x:2x2x1"}, 1, 8, 1, 64, 64 * 2048},
		"slices":    {[]string{"mesh.platform=tpu", "mesh.topology=v5e:2x2*4", "parallelism.data_parallel_replicate_degree=4"}, 4, 4, 1, 128, 128 * 2048},
		"plugin":    {[]string{"mesh.platform=./x.so", "parallelism.data_parallel_shard_degree=2"}, 1, 2, 1, 16, 16 * 2048},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, err := Load("run.toml", c.set)
			require.NoError(t, err)
			axes, err := r.MeshAxes()
			require.NoError(t, err)
			require.Equal(t, []mesh.Axis{{Name: "dp_replicate", Size: c.replicate}, {Name: "dp_shard", Size: c.shard}}, axes)
			dp, err := r.DataParallel()
			require.NoError(t, err)
			require.Equal(t, c.replicate*c.shard, dp)
			micro, err := r.MicroSteps()
			require.NoError(t, err)
			require.Equal(t, c.micro, micro)
			batch, err := r.GlobalBatch()
			require.NoError(t, err)
			require.Equal(t, c.batch, batch)
			tokens, err := r.TokensPerStep()
			require.NoError(t, err)
			require.Equal(t, c.tokens, tokens)
		})
	}
}

func TestImpossible(t *testing.T) {
	write(t, map[string]string{"run.toml": small})
	for says, set := range map[string][]string{
		"training.global_batch_size: is 7 and must be a multiple of 8: local_batch_size 8 on 1 data-parallel device; the nearest that works is 8":                                    {"training.global_batch_size=7"},
		"training.global_batch_size: is 21 and must be a multiple of 16: local_batch_size 8 on 2 data-parallel devices; the nearest that works is 16":                                {"training.global_batch_size=21", "mesh.devices=2"},
		"parallelism.data_parallel_shard_degree: is 3, but there are 8 devices; the nearest that works is 8":                                                                         {"mesh.devices=8", "parallelism.data_parallel_shard_degree=3"},
		"parallelism.data_parallel_shard_degree: is 2147483647; with 2147483647 of other degrees that is more than 2147483647 devices; the nearest that works is 1":                  {"parallelism.data_parallel_replicate_degree=2147483647", "parallelism.data_parallel_shard_degree=2147483647"},
		"parallelism.data_parallel_replicate_degree: is 9223372036854775807, more than 2147483647 devices; the nearest that works is 8":                                              {"mesh.devices=8", "parallelism.data_parallel_replicate_degree=9223372036854775807"},
		"data_parallel_shard_degree: is 4096, and all degrees together ask for 4096 devices: more than 1024 virtual ones on one machine are refused; the nearest that works is 1024": {"parallelism.data_parallel_shard_degree=4096"},
		"is 2000000000, and all degrees together ask for 2000000000 devices: more than 1048576 are taken for a mistake; the nearest that works is 1024":                              {"mesh.platform=tpu", "parallelism.data_parallel_shard_degree=2000000000"},
		"mesh.devices: is 2000; more than 1024 virtual devices on one machine are refused":                                                                                           {"mesh.devices=2000"},
		"mesh.devices: is 4, but the topology v5e:4x4 has 16 devices (16 chips of 1); leave it out":                                                                                  {"mesh.platform=tpu", "mesh.topology=v5e:4x4", "mesh.devices=4"},
		"mesh.topology: v5e:16x16*2000000 has 512000000 devices, more than 1048576":                                                                                                  {"mesh.platform=tpu", "mesh.topology=v5e:16x16*2000000"},
		"mesh.platform: is \"tpus\", which is neither a plugin nor a path; did you mean \"tpu\"?":                                                                                    {"mesh.platform=tpus"},
		"debug.moe_force_load_balance: is for models with experts, and llama3 debugmodel has none":                                                                                   {"debug.moe_force_load_balance=true"},
		"debug.deterministic: is not supported yet on platform \"cuda\"":                                                                                                             {"mesh.platform=cuda", "mesh.devices=1", "debug.deterministic=true"},
	} {
		_, _, err := Load("run.toml", set)
		require.ErrorContains(t, err, says)
	}
	_, _, err := Load("run.toml", []string{"debug.deterministic=true"})
	require.NoError(t, err, "on cpu it is so anyway")
}

func TestOpenMesh(t *testing.T) {
	r := Defaults()
	r.Mesh.Platform = "tpu"
	_, err := r.MeshAxes()
	require.ErrorContains(t, err, "mesh.devices: is open")
	axes, err := r.MeshAxesOn(16)
	require.NoError(t, err)
	require.Equal(t, 16, axes[1].Size)
}

func TestSources(t *testing.T) {
	r := Defaults()
	_, err := r.Sources()
	require.EqualError(t, err, "training.dataset_path: is missing: there is nothing to train on; make a dataset with titan data prepare and name it here, or in [[data.sources]]")
	r.Training.DatasetPath = "a"
	s, err := r.Sources()
	require.NoError(t, err)
	require.Equal(t, []data.Source{{Prefix: "a"}}, s)
	r.Data.Sources = []data.SourceConfig{{Path: "b", Weight: 2}, {Path: "c", Weight: 1}}
	s, err = r.Sources()
	require.NoError(t, err)
	require.Equal(t, []data.Source{{Prefix: "b", Weight: 2}, {Prefix: "c", Weight: 1}}, s)
}

func TestValidationBatch(t *testing.T) {
	r := Defaults()
	batch, length := r.ValidationBatch()
	require.Equal(t, []int{8, 2048}, []int{batch, length})
	r.Validation.LocalBatchSize, r.Validation.SeqLen = 1, 64
	batch, length = r.ValidationBatch()
	require.Equal(t, []int{1, 64}, []int{batch, length})
}

func TestWarnings(t *testing.T) {
	write(t, map[string]string{"run.toml": small})
	for set, says := range map[string]string{
		"training.seq_len=4096":                                  "training.seq_len is 4096, more than the model's max_seq_len of 2048",
		"validation={enable=true,dataset_path='x',seq_len=4096}": "validation.seq_len is 4096, more than",
		"training.steps=100":                                     "warm-up is cut to 100",
		"lr_scheduler.total_steps=50":                            "the last 9950 have the lowest learning rate",
		"checkpoint={enable=true,interval=20000}":                "there is only the checkpoint after the last step",
	} {
		r, _, err := Load("run.toml", []string{set})
		require.NoError(t, err)
		require.Condition(t, func() bool {
			for _, w := range r.Warnings() {
				if strings.Contains(w, says) {
					return true
				}
			}
			return false
		}, "%s: %q", set, r.Warnings())
	}
	r, _, err := Load("run.toml", nil)
	require.NoError(t, err)
	require.Empty(t, r.Warnings())
}

// A recipe that a program put together is checked as one from a file.
func TestValidate(t *testing.T) {
	r := Defaults()
	require.EqualError(t, r.Validate(), "model.name: is missing; choose a family: llama3, qwen3, qwen3_moe")
	r.Model = models.Config{Name: "qwen3", Flavor: "debugmodel"}
	require.NoError(t, r.Validate())
	r.Training.Steps, r.Training.GlobalBatchSize = 0, 9
	require.EqualError(t, r.Validate(), "training.steps: is 0 and must be positive\ntraining.global_batch_size: is 9 and must be a multiple of 8: local_batch_size 8 on 1 data-parallel device; the nearest that works is 8")
}
