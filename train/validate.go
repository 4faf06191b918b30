package train

import (
	"errors"
	"fmt"
	"time"

	"titan/data"
	"titan/metrics"
)

// validation measures the loss on held-out data, which it reads from the start,
// in order, every time.
type validation struct {
	loader *data.Loader
	exe    *Compiled
	step   *evalStep
	rows   []int
	steps  int64 // of a pass
}

func (v *validation) close() {
	if v != nil {
		_ = v.loader.Close()
		v.exe.Close()
	}
}

func (t *trainer) openValidation() (*validation, error) {
	r, c := t.recipe, t.recipe.Validation
	o := t.options
	o.Passes = 1
	if c.LocalBatchSize > 0 {
		o.Rows = c.LocalBatchSize * t.machine.Mesh.Size()
	}
	if c.SeqLen > 0 {
		o.SeqLen = c.SeqLen
	}
	o.Options = modelOptions(r, &o.Model, Platform{CPU: t.machine.OnCPU}, o.Rows/t.machine.Mesh.Size(), o.SeqLen)
	loader, err := data.New(data.Options{
		Sources: []data.Source{{Prefix: c.DatasetPath}}, SeqLen: o.SeqLen, GlobalBatch: o.Rows, Vocab: o.Model.VocabSize,
		TokenizerSHA256: t.tokenizerHash(), Pass: true, ResetPositions: r.Data.ResetPositions,
		IsolateDocuments: r.Data.IsolateDocuments, MaskBoundaries: r.Data.MaskBoundaries,
	})
	if err != nil {
		return nil, fmt.Errorf("validation.dataset_path: %w", err)
	}
	v := &validation{loader: loader, rows: firstRows(o.Rows), steps: loader.Steps()}
	if c.Steps > 0 {
		v.steps = min(v.steps, int64(c.Steps))
	}
	if v.step, err = buildEval(t.step.Plan, o); err == nil {
		resume := t.meter.Pause(metrics.Compile)
		began := time.Now()
		v.exe, err = t.machine.Compile(v.step.module)
		resume()
		if err == nil {
			t.logf("%s", compileNote(v.exe, time.Since(began)))
		}
	}
	if err != nil {
		return nil, errors.Join(err, loader.Close())
	}
	return v, nil
}

// validate measures after step s. The loss is the sum over all valid tokens of
// the pass divided once by their number.
func (t *trainer) validate(s int64) error {
	defer t.meter.Pause(metrics.Validate)()
	began := time.Now()
	var sum, tokens float64
	for k := range t.eval.steps {
		b, err := t.eval.loader.Batch(k, t.eval.rows)
		if err != nil {
			return fmt.Errorf("train: validation batch %d: %w", k, err)
		}
		batch, err := arrays(t.eval.step.batch, b)
		if err != nil {
			return err
		}
		l, n, err := evaluate(t.eval.exe, t.state, batch)
		if err != nil {
			return err
		}
		sum, tokens = sum+l, tokens+n
	}
	v := t.meter.Validated(s, sum/max(1, tokens), int64(tokens), time.Since(began).Seconds(), t.memory())
	t.logf("%s", v.Line(t.colour))
	t.recorder.Record(v.Event())
	return nil
}
