package configs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/parallel"
)

// problemsOf loads a recipe and returns what is wrong with it.
func problemsOf(t *testing.T, recipe string, set ...string) (*Recipe, []Problem) {
	t.Helper()
	r, _, err := Load(recipe, set)
	if err == nil {
		return r, nil
	}
	var all *Error
	require.ErrorAs(t, err, &all)
	return nil, all.Problems
}

var suggestion = regexp.MustCompile(`the nearest that works is ([^,;]+)`)

// Whatever is named as the nearest that works is, of that key, no mistake any
// more; and what has no mistake can be laid out: parameters on the mesh, the mesh
// on the machines.
func TestSuggestionsWork(t *testing.T) {
	write(t, map[string]string{
		"dense.toml":  "[model]\nname = 'llama3'\nflavor = 'debugmodel'\n",
		"sparse.toml": "[model]\nname = 'qwen3_moe'\nflavor = 'debugmodel'\n",
	})
	rng := rand.New(rand.NewPCG(11, 12))
	one := func(from ...string) string { return from[rng.IntN(len(from))] }
	degree := func() string { return one("1", "1", "1", "2", "2", "3", "4", "5", "6", "8", "12", "16", "100000") }
	suggested, accepted := map[string]int{}, 0
	for range 600 {
		set := []string{
			"training.seq_len=" + one("256", "2048", "1000", "96", "2049"),
			"training.local_batch_size=" + one("1", "2", "3"),
			"training.global_batch_size=" + one("-1", "-1", "7", "48", "96", "4096"),
		}
		for _, key := range []string{keyReplicate, keyTensor, keyContext, keyExpert, keyPipeline} {
			if rng.IntN(2) == 0 {
				set = append(set, key+"="+degree())
			}
		}
		if rng.IntN(4) == 0 {
			set = append(set, keyShard+"="+degree())
		}
		switch rng.IntN(4) {
		case 0:
			set = append(set, "mesh.platform=tpu", "mesh.topology="+one("v5e:2x4", "v5e:4x4*2", "v5e:2x2*6", "tpu7x:2x2x1", "v5p:4x4x4*4"))
		case 1, 2:
			set = append(set, "mesh.devices="+one("1", "8", "16", "24", "48"))
		}
		if rng.IntN(4) == 0 {
			set = append(set, "validation={enable=true,dataset_path='v',seq_len=100}")
		}
		recipe := one("dense.toml", "sparse.toml")
		if rng.IntN(3) == 0 {
			set = append(set, "model.override={n_layers=12,n_heads=24,n_kv_heads="+one("2", "6", "24")+",hidden_dim=1536}")
		}
		if recipe == "sparse.toml" && rng.IntN(3) == 0 {
			set = append(set, "model.override.n_layers=12", "model.override.mlp_only_layers="+one("[0]", "[0,6]", "[0,3,6,9]", "[0,1,2,3]"))
		}
		if rng.IntN(4) == 0 {
			set = append(set, "quantize.linear.float8.enable=true")
		}
		r, problems := problemsOf(t, recipe, set...)
		for _, p := range problems {
			m := suggestion.FindStringSubmatch(p.Msg)
			if m == nil {
				continue
			}
			suggested[p.Key]++
			_, left := problemsOf(t, recipe, append(slices.Clone(set), p.Key+"="+m[1])...)
			for _, l := range left {
				require.NotEqual(t, p.Key, l.Key, "%v\nsuggested for %v\nstill: %v", set, p, l)
			}
		}
		if r == nil {
			require.NotEmpty(t, problems)
			continue
		}
		accepted++
		axes, err := r.MeshAxes()
		require.NoError(t, err)
		m, err := mesh.New(axes, nil)
		require.NoError(t, err)
		if top, err := mesh.ParseTopology(r.Mesh.Topology); r.Mesh.Topology != "" {
			require.NoError(t, err)
			m, err = mesh.ForTopology(axes, top.DeviceInfos(), parallel.AcrossSlices()...)
			require.NoError(t, err, "%v", set)
			for _, a := range axes {
				route, err := m.Route(a.Name)
				require.NoError(t, err)
				if route.Slices > 1 {
					require.Contains(t, parallel.AcrossSlices(), a.Name)
				}
			}
		}
		_, err = r.Placement(m)
		require.NoError(t, err, "%v", set)
		r.Warnings()
	}
	require.Greater(t, accepted, 50)
	for _, key := range []string{keyReplicate, keyShard, keyTensor, keyContext, keyExpert, keyPipeline, "training.seq_len", "validation.seq_len", keyBatch} {
		require.Greater(t, suggested[key], 2, key)
	}
}

// Exactly those degrees are accepted that the rules, written out, accept.
func TestDegreesAccepted(t *testing.T) {
	write(t, map[string]string{"run.toml": "training.local_batch_size = 1\nmodel = { name = 'qwen3_moe', flavor = 'debugmodel' }\n"})
	r, _, err := Load("run.toml", []string{"mesh.devices=16", "training.seq_len=96", "model.override={n_layers=6,mlp_only_layers=[0,3],n_kv_heads=2,hidden_dim=192}"})
	require.NoError(t, err)
	accepted := 0
	for n := range 5 * 5 * 5 * 5 * 5 * 2 {
		pick := func() int { d := []int{1, 2, 3, 4, 8}[n%5]; n /= 5; return d }
		pp, dpr, ep, cp, tp := pick(), pick(), pick(), pick(), pick()
		shard := []int{-1, 2}[n]
		try := *r
		p := &try.Parallelism
		p.Pipeline, p.Replicate, p.Shard, p.Expert, p.Context, p.Tensor = pp, dpr, shard, ep, cp, tp
		try.Training.GlobalBatchSize = 48

		dps := 0
		if others := pp * dpr * cp * tp; 16%others == 0 {
			dps = 16 / others
		}
		ok := dps > 0 && (shard == -1 || shard == dps) && dps%ep == 0
		// 8 heads, 2 key/value heads, widths 192 and 256, 8 experts, 2048 words.
		ok = ok && 8%tp == 0 && (2%tp == 0 || tp%2 == 0) && 192%tp == 0 && 256%tp == 0 && 2048%tp == 0 && 8%ep == 0
		// Of 6 layers 0 and 3 are dense: 1 or 2 stages.
		ok = ok && (pp == 1 || pp == 2)
		ok = ok && (cp == 1 && 96%tp == 0 || cp > 1 && 96%(2*cp) == 0 && 96/cp%tp == 0)
		ok = ok && 48%(dpr*dps) == 0 && 48/(dpr*dps) >= pp
		err := try.Validate()
		require.Equal(t, ok, err == nil, "pp %d dp_replicate %d dp_shard %d ep %d cp %d tp %d: %v", pp, dpr, shard, ep, cp, tp, err)
		if ok {
			accepted++
		}
	}
	require.Greater(t, accepted, 50)
}

// What is possible and wasteful is said, with numbers.
func TestParallelWarnings(t *testing.T) {
	tpu := func(topology string, set ...string) []string {
		return append([]string{"mesh.platform=tpu", "mesh.topology=" + topology}, set...)
	}
	for name, c := range map[string]struct {
		flavor, says string
		set          []string
	}{
		"kv heads":   {"llama3 8B", keyTensor + " is 16, more than the 8 key/value heads: each of them is on 2 devices", tpu("v5p:4x4x4", keyTensor+"=16")},
		"narrow":     {"qwen3_moe 30B-A3B", "tensor_parallel_degree is 8 and leaves 96 of moe_hidden_dim 768 to a device", tpu("v6e:8x8", keyTensor+"=8")},
		"hosts":      {"llama3 8B", "tensor_parallel_degree is 16: machines have 8 GPUs as a rule", []string{"mesh.platform=cuda", "mesh.devices=16", keyTensor + "=16"}},
		"short":      {"llama3 debugmodel", "context_parallel_degree is 4, which cuts sequences of 512 tokens into chunks of 64", []string{"mesh.devices=4", keyContext + "=4", "training.seq_len=512"}},
		"bubble":     {"llama3 debugmodel", "pipeline_parallel_degree is 3: with 3 passes a stage waits for 40% of a step; with training.global_batch_size = 64 it were 20%", []string{"mesh.devices=3", keyPipeline + "=3", "training.global_batch_size=24", "training.seq_len=1536"}},
		"whole":      {"llama3 debugmodel", "not sharded, 12.4 KiB on every device: layers.wq, layers.wk, layers.wv, layers.wo, layers.w_gate, layers.w_up and layers.w_down, of which no dimension divides by the 8 devices of dp_shard", []string{"mesh.devices=8", "model.override={n_heads=1,n_kv_heads=1,head_dim=2,dim=12,hidden_dim=12}"}},
		"full":       {"llama3 70B", "take 16.4", tpu("v5e:8x8", "training.local_batch_size=1")},
		"kept":       {"llama3 70B", `fsdp_reshard_after_forward is "never", which keeps `, tpu("v5p:4x4x4", "parallelism.fsdp_reshard_after_forward=never")},
		"kept in pp": {"llama3 70B", `fsdp_reshard_after_forward is "default", in a pipeline "never", which keeps `, tpu("v5e:16x16", keyPipeline+"=2", "training.local_batch_size=1", "training.global_batch_size=512")},
	} {
		t.Run(name, func(t *testing.T) {
			family, flavor, _ := strings.Cut(c.flavor, " ")
			write(t, map[string]string{"run.toml": fmt.Sprintf("model = { name = %q, flavor = %q }\n", family, flavor)})
			r, _, err := Load("run.toml", c.set)
			require.NoError(t, err)
			require.Condition(t, func() bool {
				return slices.ContainsFunc(r.Warnings(), func(w string) bool { return strings.Contains(w, c.says) })
			}, "%q", r.Warnings())
		})
	}
}

// What warnings advise is not warned of.
func TestWarningsAdvice(t *testing.T) {
	write(t, map[string]string{"run.toml": "model = { name = 'llama3', flavor = 'debugmodel' }\n"})
	for _, pp := range []int{2, 4, 8} {
		set := []string{fmt.Sprintf("mesh.devices=%d", 2*pp), fmt.Sprintf("%s=%d", keyPipeline, pp), fmt.Sprintf("training.global_batch_size=%d", 16*pp), "model.override.n_layers=64"}
		r, _, err := Load("run.toml", set)
		require.NoError(t, err)
		if len(r.Warnings()) == 0 {
			require.LessOrEqual(t, r.Bubble(pp), mostBubble, "%d", pp)
			continue
		}
		advised := regexp.MustCompile(`training.global_batch_size = (\d+)`).FindStringSubmatch(r.Warnings()[0])
		require.NotNil(t, advised, "%q", r.Warnings())
		r, _, err = Load("run.toml", append(set, "training.global_batch_size="+advised[1]))
		require.NoError(t, err)
		require.Empty(t, r.Warnings())
	}
}

// The axes for devices that are there, too, come with the nearest that work.
func TestMeshAxesOnExplains(t *testing.T) {
	write(t, map[string]string{"run.toml": "model = { name = 'llama3', flavor = 'debugmodel' }\n"})
	r, _, err := Load("run.toml", []string{"mesh.platform=cuda", keyShard + "=4", keyTensor + "=2"})
	require.NoError(t, err)
	_, err = r.MeshAxesOn(16)
	require.EqualError(t, err, keyShard+": is 4, but the other degrees leave 8 of 16 devices; the nearest that works is 8")
	r.Parallelism.Tensor = 0
	_, err = r.MeshAxesOn(16)
	require.ErrorContains(t, err, "must be positive")
	require.True(t, errors.As(err, new(interface{ Unwrap() []error })))
}
