package plan

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// searching runs a search in which a step needs so many bytes for each sequence
// that a device works on at a time, and lists what was compiled.
func searching(t *testing.T, perSequence int64, limit int64, set ...string) (changes []Change, compiled []string) {
	t.Helper()
	return searchingAt(t, false, perSequence, limit, set...)
}

// searchingAt does so with little effort, if quick.
func searchingAt(t *testing.T, quick bool, perSequence int64, limit int64, set ...string) (changes []Change, compiled []string) {
	t.Helper()
	load := debugRecipe(t, set...)
	r, err := load()
	require.NoError(t, err)
	s, err := build(r)
	require.NoError(t, err)
	o := Options{Recipe: r, Quick: quick, Log: func(format string, args ...any) { compiled = append(compiled, fmt.Sprintf(format, args...)) }}
	first := s.report(o)
	first.counted = s.counted()
	first.Memory = Memory{Limit: limit, Arguments: s.arguments, Needed: s.arguments + perSequence*int64(r.Training.LocalBatchSize)}
	changes, err = search(context.Background(), o, first, load, func(_ context.Context, o Options) (*Report, error) {
		s, err := build(o.Recipe)
		if err != nil {
			return nil, err
		}
		out := s.report(o)
		temporaries := perSequence * int64(o.Recipe.Training.LocalBatchSize)
		out.Memory = Memory{Limit: limit, Temporaries: temporaries, Needed: s.arguments + temporaries}
		out.Memory.Fits = out.Memory.Needed <= limit
		if o.Quick {
			out.Memory.mark()
		}
		out.TokensPerSecond = 1000
		return out, nil
	})
	require.NoError(t, err)
	return changes, compiled
}

// The first change that fits ends the search; the step keeps its size.
func TestSearch(t *testing.T) {
	changes, compiled := searching(t, 1<<30, 5<<30, "training.local_batch_size=8", "activation_checkpoint.mode=full")
	require.Len(t, changes, 1, "%v", changes)
	require.Equal(t, []string{"training.local_batch_size=4", "training.global_batch_size=32"}, changes[0].Set)
	require.True(t, changes[0].Fits)
	require.Equal(t, []string{"trying training.local_batch_size=4 training.global_batch_size=32"}, compiled)
	require.Contains(t, changes[0].String(), "fits, 4.0")
}

// A change that fits only just with little effort is marked, and the next one is
// tried.
func TestSearchGoesOnFromTight(t *testing.T) {
	set := []string{"training.local_batch_size=8", "activation_checkpoint.mode=full"}
	changes, _ := searchingAt(t, true, 1<<30, 9<<29, set...)
	require.Len(t, changes, 2, "%v", changes)
	require.True(t, changes[0].Fits)
	require.True(t, changes[0].Tight, "4 of 4.5 GiB, less than a fifth of the temporaries is left")
	require.Contains(t, changes[0].String(), ": fits, only just, 4.0")
	require.Contains(t, changes[1].Set, "training.local_batch_size=2")
	require.False(t, changes[1].Tight)
	changes, _ = searching(t, 1<<30, 9<<29, set...)
	require.Len(t, changes, 1, "what the compiler says at its default effort holds")
	require.False(t, changes[0].Tight)
}

// What its own count shows to be hopeless is not compiled.
func TestSearchSkips(t *testing.T) {
	changes, compiled := searching(t, 16<<30, 32<<30, "training.local_batch_size=16", "training.seq_len=512", "activation_checkpoint.mode=full")
	last := changes[len(changes)-1]
	require.True(t, last.Fits, "%v", changes)
	require.Contains(t, last.Set, "training.local_batch_size=1")
	require.True(t, changes[0].Estimated)
	require.Contains(t, changes[0].String(), "by estimate")
	require.Less(t, len(compiled), len(changes))
}

// What is kept for the backward pass goes first.
func TestSearchOrder(t *testing.T) {
	changes, _ := searching(t, 1<<30, 1<<29, "training.local_batch_size=1", "activation_checkpoint.mode=none", "parallelism.fsdp_reshard_after_forward=never", "parallelism.data_parallel_replicate_degree=2")
	require.NotEmpty(t, changes)
	require.Contains(t, changes[0].Set, "parallelism.data_parallel_replicate_degree=1")
	require.Equal(t, []string{"parallelism.fsdp_reshard_after_forward=always"}, changes[1].Set)
	require.Equal(t, []string{"parallelism.fsdp_reshard_after_forward=always", "activation_checkpoint.mode=full"}, changes[2].Set)
	for _, c := range changes {
		require.False(t, c.Fits)
	}
}

func TestSearchReportsFailures(t *testing.T) {
	load := debugRecipe(t, "training.local_batch_size=2", "activation_checkpoint.mode=full")
	r, err := load()
	require.NoError(t, err)
	failed := errors.New("broken")
	_, err = search(context.Background(), Options{Recipe: r}, &Report{Memory: Memory{Limit: 1 << 40}, Sequences: 8}, load,
		func(context.Context, Options) (*Report, error) { return nil, failed })
	require.ErrorIs(t, err, failed)
}
