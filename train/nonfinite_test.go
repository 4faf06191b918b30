package train

import (
	"bytes"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/configs"
	"titan/dtype"
	"titan/optim"
	"titan/pjrt"
)

// ready returns a trainer before its first step, its log, and what ends it.
func ready(t *testing.T, r *configs.Recipe) (tr *trainer, out *bytes.Buffer, done func()) {
	t.Helper()
	var log bytes.Buffer
	tr = &trainer{recipe: r, out: &log, saved: -1, stop: listen(nil)}
	done = sync.OnceFunc(func() { tr.endRecord(&Result{}, nil); tr.close(); tr.stop.close() })
	t.Cleanup(done)
	require.NoError(t, tr.prepare(ctx, RunOptions{Recipe: r, Version: "test"}))
	tr.meter.Begin(0)
	return tr, &log, done
}

// step does a step on the batch of another.
func (t *trainer) doStep(tt *testing.T, s, batch int64) {
	tt.Helper()
	b, err := t.loader.Batch(batch, firstRows(t.options.Rows*t.options.Passes))
	require.NoError(tt, err)
	p, err := t.dispatch(s, b)
	require.NoError(tt, err)
	require.NoError(tt, t.report(p))
}

// poison sets an element of a parameter on all devices that hold it, and returns
// what takes that back.
func (t *trainer) poison(tt *testing.T, name string, x float32) (back func()) {
	tt.Helper()
	i := t.state.index(name)
	raw, err := t.state.Whole(i)
	require.NoError(tt, err)
	put := func(raw []byte) {
		parts, err := t.exe.Put(i, raw)
		require.NoError(tt, err)
		for p, b := range parts {
			require.NoError(tt, t.state.bufs[p][i].Close())
			t.state.bufs[p][i] = b
		}
	}
	bad := bytes.Clone(raw)
	copy(bad[8:], pjrt.AsBytes([]float32{x}))
	put(bad)
	return func() { put(raw) }
}

// A step with a loss or gradients that are not finite changes nothing but the
// counter, on the device, is told, and training goes on as if it had not been.
func TestNonFiniteSteps(t *testing.T) {
	quickly(t)
	data := dataset(t, documents(1, 40, 5, 60)...)
	r := recipe(t, data)
	tr, log, done := ready(t, r)
	whole := func(tr *trainer, name string) string {
		raw, err := tr.state.Whole(tr.state.index(name))
		require.NoError(t, err)
		return string(raw)
	}
	tr.doStep(t, 0, 0)
	require.NotContains(t, log.String(), "changed nothing")
	moments := whole(tr, "optim.m.embed")
	for i, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), 3e38} {
		back := tr.poison(t, "layers.wq", x)
		before := whole(tr, "layers.wq")
		tr.doStep(t, int64(1+i), 1)
		require.Equal(t, before, whole(tr, "layers.wq"), "%g", x)
		require.Equal(t, moments, whole(tr, "optim.m.embed"))
		require.EqualValues(t, i+1, dtype.Float(dtype.S32, []byte(whole(tr, optim.SkippedName)), 0))
		require.Contains(t, log.String(), "1 of the last 1 steps changed nothing")
		back()
		log.Reset()
	}
	tr.doStep(t, 4, 4)
	require.NotContains(t, log.String(), "changed nothing")
	require.NoError(t, tr.save(ctx))

	// A run that never had those steps.
	clean, _, _ := ready(t, recipe(t, data))
	clean.doStep(t, 0, 0)
	clean.doStep(t, 4, 4)
	for _, v := range clean.state.Vars {
		if v.Name == optim.SkippedName {
			continue
		}
		require.Equal(t, whole(clean, v.Name), whole(tr, v.Name), v.Name)
	}

	tr.recorder.Close()
	recs := records(t, r, "train")
	require.Contains(t, recs[2], loss)
	require.Nil(t, recs[2][loss], "JSON has no NaN")
	require.EqualValues(t, 1, recs[2].number(t, "skipped_steps"))
	require.EqualValues(t, 3, recs[5].number(t, "skipped_steps"))
	require.EqualValues(t, 3, tr.meter.Summary().Skipped)
	done()

	// Those of before a resume are not told again.
	_, after := run(t, r)
	require.Contains(t, after, "resumed from ")
	require.NotContains(t, after, "changed nothing")
	require.EqualValues(t, 0, records(t, r, "train")[6].number(t, "skipped_steps"))
}

// With every step skipped nothing is learnt, but the run ends in order.
func TestNothingButNonFiniteSteps(t *testing.T) {
	quickly(t)
	r := recipe(t, dataset(t, documents(1, 40, 5, 60)...), "metrics.log_freq=2")
	tr, log, _ := ready(t, r)
	tr.poison(t, "norm", float32(math.NaN())) // of every token; a row of the embedding is that of one
	_, err := tr.loop(ctx)
	require.NoError(t, err)
	_, err = tr.finish(ctx, nil)
	require.NoError(t, err)
	require.Contains(t, log.String(), "2 of the last 2 steps changed nothing: the loss or a gradient was not finite (6 since the start)")
	require.Regexp(t, `skipped steps +6`, log.String())
	require.Equal(t, []int{2, 4, 6}, steps(t, r))
}
