package train

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"titan/data"
	"titan/internal/human"
	"titan/internal/plural"
	"titan/pjrt"
)

// openData opens the training data and checks that it has what batches need.
func (t *trainer) openData() error {
	r, o := t.recipe, &t.options
	sources, err := r.Sources()
	if err != nil {
		return err
	}
	hash, err := t.tokenizerHash()
	if err != nil {
		return err
	}
	t.loader, err = data.New(data.Options{
		Sources: sources, SeqLen: o.SeqLen, GlobalBatch: o.Rows * o.Passes, Vocab: o.Model.VocabSize, Seed: r.Debug.Seed,
		TokenizerSHA256: hash, ResetPositions: r.Data.ResetPositions,
		IsolateDocuments: r.Data.IsolateDocuments, MaskBoundaries: r.Data.MaskBoundaries,
	})
	if err != nil {
		return err
	}
	if t.data, err = t.loader.Fingerprint(); err != nil {
		return err
	}
	t.progress = progress{Data: t.data, Seed: r.Debug.Seed, Excluded: r.Checkpoint.ExcludeFromLoading}
	steps := int64(r.Training.Steps)
	t.logf("data: %s, %.2f epochs in %s", human.Counted(t.loader.Tokens(), "token"), float64(steps)/float64(max(1, t.loader.Steps())), plural.Of(steps, "step"))
	return nil
}

// tokenizerDir is the folder of the model's tokenizer, "" if it has none.
func (t *trainer) tokenizerDir() string {
	dir := t.recipe.Model.HFAssetsPath
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); dir == "" || err != nil {
		return ""
	}
	return dir
}

// tokenizerHash is the hash that datasets give of their tokenizer, "" if the
// model has none.
func (t *trainer) tokenizerHash() (string, error) {
	dir := t.tokenizerDir()
	if dir == "" {
		return "", nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return "", fmt.Errorf("model.hf_assets_path: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// rowsHere lists the rows of a batch that this process feeds, nil if it is all.
func (t *trainer) rowsHere(v Var) ([]int, error) {
	if t.machine.local == nil {
		return nil, nil
	}
	return rowsAt(t.machine.Mesh, v, t.machine.local)
}

// orAll lists all of n rows in place of nil.
func orAll(rows []int, n int) []int {
	if rows == nil {
		return firstRows(n)
	}
	return rows
}

func firstRows(n int) []int {
	rows := make([]int, n)
	for i := range rows {
		rows[i] = i
	}
	return rows
}

// arrays lists a batch's arrays as the program takes them.
func arrays(vars []Var, b *data.Batch) ([][]byte, error) {
	var out [][]byte
	for _, v := range vars {
		switch v.Name {
		case BatchTokens:
			out = append(out, pjrt.AsBytes(b.Inputs))
		case BatchLabels:
			out = append(out, pjrt.AsBytes(b.Labels))
		case BatchValid:
			out = append(out, pjrt.AsBytes(b.LossMask))
		case BatchPositions:
			out = append(out, pjrt.AsBytes(b.Positions))
		case BatchSegments:
			out = append(out, pjrt.AsBytes(b.Segments))
		default:
			return nil, fmt.Errorf("train: no batch has %s", v.Name)
		}
	}
	return out, nil
}

// dispatch starts step s (from 0) on a batch.
func (t *trainer) dispatch(s int64, b *data.Batch) (*Pending, error) {
	batch, err := arrays(t.step.Batch, b)
	if err != nil {
		return nil, err
	}
	r := &Running{exe: t.exe, step: t.step, state: t.state, rows: t.rows}
	p, err := r.Dispatch(t.options.Optimizer.Rates(int(s)), batch)
	if err != nil {
		return nil, fmt.Errorf("train: step %d: %w", s+1, err)
	}
	p.number, p.tokens, p.positions = s+1, b.Valid, int64(t.options.Rows*t.options.Passes*t.options.SeqLen)
	return p, nil
}
