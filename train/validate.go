package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"titan/configs"
	"titan/data"
	"titan/metrics"
	"titan/parallel"
)

// validation measures the loss on held-out data, which it reads from the start,
// in order, every time.
type validation struct {
	options StepOptions
	loader  *data.Loader
	rows    []int // that this process feeds; nil: all
	steps   int64 // of a pass
	exe     *Compiled
	step    *evalStep
}

// close unloads the program.
func (v *validation) close() {
	if v != nil {
		v.exe.Close()
	}
}

// evalOptions is what the validation of a step's recipe is built from: batches and
// sequences of its own, in one pass.
func evalOptions(r *configs.Recipe, o StepOptions, p Platform) StepOptions {
	local, seqLen := r.ValidationBatch()
	o.Passes, o.Rows, o.SeqLen = 1, local*parallel.BatchDegree(o.Mesh.Axes()), seqLen
	o.Options = modelOptions(r, &o.Model, p, o.Mesh, local, seqLen)
	return o
}

// openValidation opens the data; compile makes the program.
func (t *trainer) openValidation() (*validation, error) {
	r, c := t.recipe, t.recipe.Validation
	o := evalOptions(r, t.options, t.machine.Platform())
	hash, err := t.tokenizerHash()
	if err != nil {
		return nil, err
	}
	loader, err := data.New(data.Options{
		Sources: []data.Source{{Prefix: c.DatasetPath}}, SeqLen: o.SeqLen, GlobalBatch: o.Rows, Vocab: o.Model.VocabSize,
		TokenizerSHA256: hash, Pass: true, ResetPositions: r.Data.ResetPositions,
		IsolateDocuments: r.Data.IsolateDocuments, MaskBoundaries: r.Data.MaskBoundaries,
	})
	if err != nil {
		return nil, fmt.Errorf("validation.dataset_path: %w", err)
	}
	v := &validation{options: o, loader: loader, steps: loader.Steps()}
	if c.Steps > 0 {
		v.steps = min(v.steps, int64(c.Steps))
	}
	return v, nil
}

// validate measures after step s. The loss is the sum over all valid tokens of
// the pass divided once by their number. A run that is asked to end does not
// wait for it.
func (t *trainer) validate(ctx context.Context, s int64) error {
	defer t.meter.Pause(metrics.Validate)()
	began := time.Now()
	batches := t.eval.loader.Iterate(0, orAll(t.eval.rows, t.eval.options.Rows), t.recipe.Data.Prefetch)
	defer batches.Close()
	var sum, tokens float64
	for k := range t.eval.steps {
		if sig, err := t.turn(ctx); err != nil {
			return err
		} else if sig != nil {
			t.logf("%v: the validation after step %d is left out", sig, s)
			return nil
		}
		b, err := batches.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return &dataError{fmt.Sprintf("validation, number %d", k+1), err}
		}
		batch, err := arrays(t.eval.step.batch, b)
		if err != nil {
			return err
		}
		x, err := together(&t.hosts, fmt.Sprintf("validation after step %d", s), func() (x [2]float64, err error) {
			x[0], x[1], err = evaluate(t.eval.exe, t.state, t.eval.rows, batch)
			return x, err
		})
		if err != nil {
			return &dataError{fmt.Sprintf("validation, number %d", k+1), lessMemory(err, "validation")}
		}
		sum, tokens = sum+x[0], tokens+x[1]
	}
	v := t.meter.Validated(s, sum/max(1, tokens), int64(tokens), time.Since(began).Seconds(), t.memory())
	t.logf("%s", v.Line(t.colour))
	t.recorder.Record(v.Event())
	return nil
}
