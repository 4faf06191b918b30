package train

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/data"
	"titan/pjrt"
)

// Held-out data that is the training data, and that is one batch: the loss
// measured after a step is the loss of the next step, whatever the batch of the
// validation and the mesh. Each step is an epoch.
func TestValidation(t *testing.T) {
	quickly(t)
	prefix := dataset(t, documents(3, 1, 16*4+1, 16*4+1)...)
	for about, set := range map[string][]string{
		"4 devices":                   nil,
		"1 device, padded to 6 rows":  {"mesh.devices=1", "training.local_batch_size=4", "validation.local_batch_size=3"},
		"4 devices, shorter sequence": {"validation.seq_len=8"},
	} {
		r := recipe(t, prefix, append(set, "validation.enable=true", "validation.freq=1", "validation.dataset_path="+prefix)...)
		_, log := run(t, r)
		require.Contains(t, log, "6.00 epochs in 6 steps")
		require.Contains(t, log, "validate step:  6  loss:")
		losses, evals := curve(t, r, loss, 6), records(t, r, "validation")
		require.Len(t, evals, 6)
		for s := 1; s < 6; s++ {
			got := evals[s].number(t, evalLoss)
			if about == "4 devices, shorter sequence" {
				require.NotEqual(t, losses[s], got)
				continue
			}
			require.InEpsilon(t, losses[s], got, 2e-6, "%s: after step %d", about, s)
		}
		require.Less(t, losses[5], losses[0]-0.1, "it learns the one batch")
	}
	r := recipe(t, prefix, "validation.enable=true", "validation.freq=4", "validation.steps=1", "validation.dataset_path="+prefix)
	run(t, r)
	evals := records(t, r, "validation")
	require.Len(t, evals, 2, "after step 4 and the last")
	require.Contains(t, evals, 4)
	require.Contains(t, evals, 6)
}

// lossOf returns the sum of the losses of all of a dataset, and its tokens, with
// new parameters.
func lossOf(t *testing.T, r *configs.Recipe, prefixes ...string) (sum, tokens float64) {
	t.Helper()
	m, err := OpenMachine(r)
	require.NoError(t, err)
	defer m.Close()
	o, err := OptionsFor(r, m.Mesh, PlatformOf(r))
	require.NoError(t, err)
	plan, err := NewPlan(m.Mesh, o.Model, o.Placement)
	require.NoError(t, err)
	e, err := buildEval(plan, o)
	require.NoError(t, err)
	exe, err := m.Compile(e.module)
	require.NoError(t, err)
	defer exe.Close()
	s, err := m.Init(5, o.Model, ParamVars(plan, o.Model))
	require.NoError(t, err)
	defer s.Close()
	for i, v := range s.Vars { // attention matters more than in new parameters
		if strings.HasPrefix(v.Name, "layers.w") {
			raw, err := s.Whole(i)
			require.NoError(t, err)
			xs := floats(raw)
			for j := range xs {
				xs[j] *= 8
			}
			require.NoError(t, s.put(exe.Devices, m.Client, i, []int{0}, pjrt.AsBytes(xs)))
		}
	}
	for _, p := range prefixes {
		l, err := data.New(data.Options{
			Sources: []data.Source{{Prefix: p}}, SeqLen: o.SeqLen, GlobalBatch: o.Rows, Vocab: vocab, Pass: true,
			ResetPositions: r.Data.ResetPositions, IsolateDocuments: r.Data.IsolateDocuments, MaskBoundaries: r.Data.MaskBoundaries,
		})
		require.NoError(t, err)
		for k := range l.Steps() {
			b, err := l.Batch(k, firstRows(o.Rows))
			require.NoError(t, err)
			batch, err := arrays(e.batch, b)
			require.NoError(t, err)
			x, n, err := evaluate(exe, s, nil, batch)
			require.NoError(t, err)
			require.EqualValues(t, b.Valid, n)
			sum, tokens = sum+x, tokens+n
		}
		require.NoError(t, l.Close())
	}
	return sum, tokens
}

// The loss of documents that are kept apart does not depend on what is packed
// before them: it is that of the documents alone. Documents that are not kept
// apart do see each other.
func TestIsolatedDocuments(t *testing.T) {
	quickly(t)
	var docs [][]int32
	for i, n := range []int{5, 11, 16, 7, 9, 4, 4, 8, 2, 3, 11, 15, 1, 12} { // rows of 16; the last one is short
		docs = append(docs, documents(uint64(50+i), 1, n, n)...)
	}
	packed := dataset(t, docs...)
	var alone []string
	labels := 0
	for _, d := range docs {
		if len(d) > 1 { // of a single token nothing is predicted
			alone = append(alone, dataset(t, d))
			labels += len(d) - 1
		}
	}
	one := []string{"mesh.devices=1", "data.mask_boundaries=true"}
	apart := recipe(t, packed, append(one, "data.isolate_documents=true", "data.reset_positions=true")...)
	together, n := lossOf(t, apart, packed)
	require.EqualValues(t, labels, n)
	separate, n := lossOf(t, apart, alone...)
	require.EqualValues(t, labels, n)
	require.InEpsilon(t, separate, together, 2e-6)

	mixed, n := lossOf(t, recipe(t, packed, one...), packed)
	require.EqualValues(t, labels, n)
	require.Greater(t, math.Abs(mixed-separate), 1e-3*separate)
}
