package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
)

// choosing runs a choice in which a compiled step needs ratio times what was counted
// besides its arguments, and takes as long as was guessed. It lists what was compiled.
func choosing(t *testing.T, tries int, ratio float64, limit int64, load func(...string) (*configs.Recipe, error)) (*Report, []string) {
	t.Helper()
	r, err := load()
	require.NoError(t, err)
	var compiled []string
	o := Options{Recipe: r, Log: func(format string, args ...any) {
		if s, ok := strings.CutPrefix(fmt.Sprintf(format, args...), "trying "); ok {
			compiled = append(compiled, s)
		}
	}}
	out, err := choose(context.Background(), o, tries, load, func(_ context.Context, o Options) (*Report, error) {
		s, err := build(o.Recipe)
		require.NoError(t, err)
		mc, err := newMachine(s.topology.Kind)
		require.NoError(t, err)
		g, err := s.guess(mc)
		require.NoError(t, err)
		out := s.report(o)
		out.Memory = Memory{Limit: limit, Arguments: s.arguments, Needed: s.arguments + int64(ratio*float64(g.memory))}
		if out.Memory.Fits = out.Memory.Needed <= limit; out.Memory.Fits {
			out.Prediction = &Prediction{Seconds: g.seconds, Parts: []Share{{Communication.String(), g.waits, 0, Communication}}}
		}
		return out, nil
	})
	require.NoError(t, err)
	return out, compiled
}

// With room for everything nothing is computed again, and there is one pass.
func TestChoose(t *testing.T) {
	load := debugRecipe(t, "training.local_batch_size=2", "training.global_batch_size=32", "activation_checkpoint.mode=full")
	r, compiled := choosing(t, 3, 1, 1<<40, load)
	require.Len(t, compiled, 3)
	best := r.Choices.Compiled[r.Choices.Chosen]
	require.Equal(t, 1, best.Passes, "%v", r.Choices)
	require.Equal(t, 8, best.Rows, "four devices share 32 sequences: %v", r.Choices)
	require.Equal(t, "none", best.Policy)
	require.Equal(t, 32, r.Sequences, "a step keeps its size")
	asIs := r.Choices.Compiled[0]
	require.Nil(t, asIs.Set)
	require.Equal(t, 4, asIs.Passes)
	require.Less(t, best.Seconds, asIs.Seconds)
	require.Contains(t, r.Choices.String(), "the recipe\n")
	require.Contains(t, r.Choices.String(), " chosen\n")
	// What is printed is what the recipe can be run with.
	changed, err := load(best.Set...)
	require.NoError(t, err)
	s, err := build(changed)
	require.NoError(t, err)
	require.Equal(t, best.Mesh, s.mesh.String())
	for _, x := range r.Choices.Compiled[1:] {
		require.NotContains(t, strings.Join(x.Set, " "), "tensor_parallel", "not where there is room without")
	}
}

// What the compiler says of one step corrects what is expected of the others: of what
// needs too much, at most one step is compiled.
func TestChooseLearns(t *testing.T) {
	set := []string{"training.local_batch_size=4", "training.seq_len=512", "activation_checkpoint.mode=full"}
	load := debugRecipe(t, set...)
	r, err := load()
	require.NoError(t, err)
	s, err := build(r)
	require.NoError(t, err)
	// Twice of what is counted for the recipe, and a little.
	limit := s.arguments + int64(2.2*float64(s.counted()))
	out, compiled := choosing(t, 3, 2, limit, load)
	require.NotEmpty(t, compiled)
	for _, x := range out.Choices.Compiled {
		require.True(t, x.Fits, "%v", out.Choices)
	}
	require.Less(t, out.Choices.Room, out.Choices.Weighed)
}

// Where there is one mesh only, all tries are on it.
func TestChooseOnOneMesh(t *testing.T) {
	_, compiled := choosing(t, 3, 1, 1<<40, debugRecipe(t, "mesh.topology=v5e:1x1", "training.local_batch_size=4", "activation_checkpoint.mode=full"))
	require.Len(t, compiled, 3)
}

// A memory budget holds for what is chosen, too.
func TestChooseWithinBudget(t *testing.T) {
	r, err := debugRecipe(t, "training.local_batch_size=4", "training.seq_len=512", "activation_checkpoint.mode=full")()
	require.NoError(t, err)
	s, err := build(r)
	require.NoError(t, err)
	budget := s.arguments + s.counted() + 1<<20
	load := debugRecipe(t, "training.local_batch_size=4", "training.seq_len=512", "activation_checkpoint.mode=memory_budget", fmt.Sprintf("activation_checkpoint.memory_budget=%dKiB", budget>>10))
	out, compiled := choosing(t, 3, 1, 1<<40, load)
	require.NotEmpty(t, compiled)
	for _, x := range out.Choices.Compiled[1:] {
		require.True(t, x.Fits)
		require.LessOrEqual(t, x.Needed, budget, "%v", out.Choices)
	}
}

// If nothing fits, the report is about the recipe as it is, and says so.
func TestChooseNothing(t *testing.T) {
	out, compiled := choosing(t, 3, 1, 1<<20, debugRecipe(t, "training.local_batch_size=2"))
	require.Empty(t, compiled)
	require.False(t, out.Memory.Fits)
	require.Zero(t, out.Choices.Room)
	require.Contains(t, out.Choices.String(), "0 of which should fit")
}

// Fewer sequences than devices leave tp and cp.
func TestChooseSplitsSequences(t *testing.T) {
	load := debugRecipe(t, "training.local_batch_size=1", "training.global_batch_size=2", "parallelism.tensor_parallel_degree=2", "parallelism.data_parallel_shard_degree=2")
	out, compiled := choosing(t, 2, 1, 1<<40, load)
	require.NotEmpty(t, compiled)
	for _, x := range out.Choices.Compiled {
		require.Regexp(t, "[tc]p=[24]", x.Mesh)
	}
	require.Equal(t, 2, out.Sequences)
}

// Every policy can be written into a recipe, for models with and without experts.
func TestPolicySets(t *testing.T) {
	for _, name := range []string{"llama3_debug", "qwen3_moe_debug"} {
		r, _, err := configs.Load("builtin:"+name, nil)
		require.NoError(t, err)
		all := policies(r)
		require.GreaterOrEqual(t, len(all), 9)
		for _, p := range all {
			changed, _, err := configs.Load("builtin:"+name, append(policySet(&r.ActivationCheckpoint, p), "mesh.platform=tpu", "mesh.devices=0", "mesh.topology=v5e:2x2"))
			require.NoError(t, err, "%v", p)
			require.Equal(t, p.String(), changed.ActivationCheckpoint.String())
			require.Empty(t, policySet(&changed.ActivationCheckpoint, p), "nothing to change any more")
		}
	}
}

func TestMeshes(t *testing.T) {
	r, err := debugRecipe(t)()
	require.NoError(t, err)
	require.Equal(t, []degrees{{1, 4, 1, 1, 1, 1}, {2, 2, 1, 1, 1, 1}, {4, 1, 1, 1, 1, 1}}, meshes(r, 4, false))
	within := meshes(r, 4, true)
	require.Contains(t, within, degrees{1, 1, 4, 1, 1, 1})
	require.Contains(t, within, degrees{2, 1, 1, 2, 1, 1})
	for _, d := range within {
		require.Equal(t, 4, d.replicate*d.shard*d.tensor*d.context*d.pipeline)
	}
	require.Equal(t, []int{1, 2, 3, 6}, batches(24, 4))
	require.Empty(t, batches(24, 16))
}

// Guesses put steps in the order in which they are: what is computed again and what
// is sent costs.
func TestGuessOrder(t *testing.T) {
	load := debugRecipe(t, "training.seq_len=1024", "training.local_batch_size=4", "training.global_batch_size=16")
	of := func(set ...string) guess {
		r, err := load(set...)
		require.NoError(t, err)
		s, err := build(r)
		require.NoError(t, err)
		mc, err := newMachine("v5e")
		require.NoError(t, err)
		g, err := s.guess(mc)
		require.NoError(t, err)
		require.Equal(t, s.counted(), g.memory)
		return g
	}
	none, full := of("activation_checkpoint.mode=none"), of("activation_checkpoint.mode=full")
	require.Less(t, none.seconds, full.seconds)
	require.Greater(t, none.memory, full.memory)
	passes := of("activation_checkpoint.mode=full", "training.local_batch_size=1")
	require.Less(t, full.waits, passes.waits, "parameters are gathered four times")
	require.Greater(t, full.memory, passes.memory)
	require.Greater(t, of("activation_checkpoint.mode=full", "parallelism.tensor_parallel_degree=2", "training.local_batch_size=8").waits, full.waits, "tp is waited for")
}

func TestChooseReportsFailures(t *testing.T) {
	load := debugRecipe(t)
	r, err := load()
	require.NoError(t, err)
	failed := errors.New("broken")
	_, err = choose(context.Background(), Options{Recipe: r}, 1, load, func(context.Context, Options) (*Report, error) { return nil, failed })
	require.ErrorIs(t, err, failed)
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	_, err = choose(ctx, Options{Recipe: r}, 1, load, func(context.Context, Options) (*Report, error) {
		calls++
		cancel()
		return &Report{Memory: Memory{Limit: 1 << 40}}, nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, calls)
}
