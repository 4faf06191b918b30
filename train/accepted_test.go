package train

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/models/decoder"
)

// randomRecipe draws overrides of a recipe: a small model of any kind, a mesh, and
// settings that change how the step is traced. Most of what is drawn fits together,
// and some of it does not.
func randomRecipe(rng *rand.Rand) []string {
	one := func(from ...string) string { return from[rng.IntN(len(from))] }
	chance := func(percent int) bool { return rng.IntN(100) < percent }
	var set []string
	add := func(s ...string) { set = append(set, s...) }

	family := one("llama3", "qwen3", "qwen3_moe", "qwen3_moe")
	add("model.name="+family, "model.flavor=debugmodel", "model.override={dim="+one("32", "64", "48")+",n_layers="+one("2", "4", "6")+
		",n_heads=8,n_kv_heads="+one("2", "4", "8", "1")+",head_dim="+one("8", "16", "128")+",hidden_dim="+one("64", "96", "128")+",vocab_size="+one("64", "96", "384")+"}")
	if chance(20) {
		add("model.override.tie_embeddings=true")
	}
	sparse := family == "qwen3_moe"
	if sparse {
		add("model.override.n_experts="+one("4", "8"), "model.override.moe_hidden_dim="+one("16", "32", "24"))
		if chance(40) {
			add("model.override." + one("mlp_only_layers=[0]", "mlp_only_layers=[0,2]", "decoder_sparse_step=2", "norm_topk_prob=false", "z_loss_coef=0.001", "aux_loss_coef=0.0"))
		}
		if chance(40) {
			add("moe.dispatch=capacity", "moe.capacity_factor="+one("1.25", "0.5", "4.0"))
		}
		if chance(40) {
			add("moe.load_balance=bias")
		}
		if chance(20) {
			add("moe.expert_buffer_factor=" + one("1.0", "2.0"))
		}
	}

	degree := func(key string, percent int, from ...string) {
		if chance(percent) {
			add("parallelism." + key + "_degree=" + one(from...))
		}
	}
	degree("data_parallel_replicate", 30, "2", "2", "4", "3")
	degree("data_parallel_shard", 40, "2", "4", "6")
	degree("tensor_parallel", 40, "2", "2", "4", "8", "3")
	degree("context_parallel", 40, "2", "2", "4", "3")
	degree("pipeline_parallel", 35, "2", "2", "3", "4")
	if sparse {
		degree("expert_parallel", 60, "2", "4", "8")
	} else {
		degree("expert_parallel", 5, "2")
	}
	switch {
	case chance(15):
		add("mesh.devices=" + one("1", "8", "16", "24"))
	case chance(40):
		add("mesh.platform=tpu", "mesh.topology="+one("v5e:2x2", "v5e:2x4", "v6e:4x4", "tpu7x:2x2x1", "v5p:2x2x2", "v5e:2x2*2"))
	}
	if chance(40) {
		add("parallelism.fsdp_reshard_after_forward=" + one("always", "never"))
	}
	if chance(30) {
		add("parallelism.context_parallel_rotate_method=allgather")
	}

	add("training.seq_len="+one("48", "64", "64", "96", "192", "256", "1024"), "training.local_batch_size="+one("1", "2", "3"))
	if chance(60) {
		add("training.global_batch_size=" + one("8", "16", "24", "48", "96"))
	}
	add("training.mixed_precision_param=" + one("bfloat16", "float32"))
	if chance(20) {
		add("training.unroll_layers=true")
	}
	if chance(50) {
		add("data.reset_positions="+one("true", "false"), "data.isolate_documents="+one("true", "false"))
	}
	if chance(40) {
		add("validation={enable=true,dataset_path='v',local_batch_size=" + one("0", "2") + ",seq_len=" + one("0", "0", "32", "100") + "}")
	}

	mode := one("none", "full", "selective", "selective", "selective", "memory_budget")
	add("activation_checkpoint.mode=" + mode)
	switch mode {
	case "selective":
		add("activation_checkpoint.selective_ac_option='" + one(append([]string{"op", "op", "1", "2", "3", "5"}, decoder.PresetNames()...)...) + "'")
		if chance(50) {
			add("activation_checkpoint.save=['" + one(decoder.SavedNames()...) + "','" + one(decoder.SavedNames()...) + "']")
		}
	case "memory_budget":
		add("activation_checkpoint.memory_budget=" + one("1GiB", "1GiB", "50%"))
	}
	if mode != "none" && chance(15) {
		add("activation_checkpoint.offload=['" + one(decoder.SavedNames()...) + "']")
	}
	if chance(25) {
		add("quantize.linear.float8.enable=true", "quantize.linear.float8.recipe_name="+one(decoder.RecipeTensorwise, decoder.RecipeTensorwise, decoder.RecipeRowwise, decoder.RecipeRowwiseGradHP))
		if chance(30) {
			add("quantize.linear.float8.enable_fsdp_float8_all_gather=true")
		}
	}
	if chance(35) {
		add("optimizer.name=Muon", "optimizer.muon_ns_dtype="+one("bfloat16", "float32"))
	}
	if chance(25) {
		add("optimizer." + one("state_dtype=bfloat16", "skip_nonfinite=false", "param_groups=[{pattern='norm',weight_decay=0.0}]",
			"param_groups=[{pattern='embed',optimizer='Muon'},{pattern='.',lr=1e-4}]"))
	}
	if chance(30) {
		add("kernels.attention="+one("auto", "tile", "plain"), "kernels.experts="+one("auto", "tile", "plain"))
		if chance(40) {
			add("kernels." + one("attention_tiles={queries=128,keys=256}", "attention_tiles.keys=128", "expert_tiles.product={m=32,k=128,n=128}", "expert_tiles.rhs.m=64"))
		}
	}
	if sparse && chance(10) {
		add("debug.moe_force_load_balance=true")
	}
	return set
}

// traced builds the programs of a run, as a run does up to compiling them.
func traced(r *configs.Recipe) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	r.Warnings()
	m, err := r.Machine()
	if err != nil {
		return err
	}
	o, err := OptionsFor(r, m, PlatformOf(r))
	if err != nil {
		return err
	}
	s, err := BuildStep(o)
	if err != nil {
		return err
	}
	if s.Module.StableHLO() == "" {
		return errors.New("the step is empty")
	}
	if o.Options.Remat.Mode == decoder.RematBudget {
		for _, o.Options.Remat = range o.Options.Remat.Candidates(&o.Model) {
			if _, err := BuildStep(o); err != nil {
				return fmt.Errorf("%v: %w", o.Options.Remat, err)
			}
		}
	}
	if r.Validation.Enable {
		e, err := buildEval(s.Plan, evalOptions(r, o, PlatformOf(r)))
		if err != nil {
			return fmt.Errorf("validation: %w", err)
		}
		if e.module.StableHLO() == "" {
			return errors.New("the validation is empty")
		}
	}
	return nil
}

// What the check of a recipe accepts can be traced, whatever is combined; what it
// refuses, it refuses by a key. TITAN_LONG tries thousands.
func TestAcceptedRecipesTrace(t *testing.T) {
	accept := 40
	if long {
		accept = 2000
	}
	file := filepath.Join(t.TempDir(), "any.toml")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	rng := rand.New(rand.NewPCG(21, 22))
	used := map[string]int{}
	refused := 0
	for accepted := 0; accepted < accept; {
		set := randomRecipe(rng)
		r, _, err := configs.Load(file, set)
		if err != nil {
			var all *configs.Error
			require.ErrorAs(t, err, &all, "%q", set)
			for _, p := range all.Problems {
				require.NotEmpty(t, p.Key, "%q: %v", set, p)
				require.NotEmpty(t, p.Msg, "%q: %v", set, p)
			}
			refused++
			require.Less(t, refused, 60*accept, "nearly all is refused, lately: %v", err)
			continue
		}
		accepted++
		require.NoError(t, traced(r), "--set %s", strings.Join(set, " --set "))
		for _, s := range set {
			key, _, _ := strings.Cut(s, "=")
			used[key]++
		}
	}
	t.Logf("%d refused, of the others: %v", refused, used)
	for _, key := range []string{"tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel", "data_parallel_replicate"} {
		require.Greater(t, used["parallelism."+key+"_degree"], accept/20, key)
	}
}
