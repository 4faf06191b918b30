package data

import (
	"fmt"
	"math"
)

// Batch holds rows of one step. All arrays but Sources are row-major
// [Rows, SeqLen].
type Batch struct {
	Step         int64
	Rows, SeqLen int
	Inputs       []int32
	// Labels[i] is the token behind Inputs[i]. A masked label is a valid id too.
	Labels []int32
	// Positions count from 0 in the row, or in the document (ResetPositions).
	Positions []int32
	// Segments are 1 or, with IsolateDocuments, 1, 2, ... for the documents of
	// the row. Padding is 0.
	Segments []int32
	// LossMask is 1 where the label counts and 0 elsewhere.
	LossMask []float32
	// Valid is the number of labels that count. Tokens is that of the positions
	// that are no padding: with MaskBoundaries, more.
	Valid, Tokens int64
	// Sources has, for each row, where it is from.
	Sources []Origin
}

// Origin tells where a row is from.
type Origin struct {
	Source int   // index in Options.Sources; -1 for a row of padding
	Epoch  int64 // of that source, from 0
	Sample int64 // number of the sample in the source's stream
}

// Batch returns the given rows, each 0 <= row < GlobalBatch, of the step's
// global batch. An id outside the vocabulary is an error that names its place.
func (l *Loader) Batch(step int64, rows []int) (*Batch, error) {
	o := &l.o
	if step < 0 || step > math.MaxInt64/int64(o.GlobalBatch)-1 {
		return nil, fmt.Errorf("data: step %d is out of range", step)
	}
	if o.Pass && step >= l.Steps() {
		return nil, ErrEnd
	}
	n := len(rows) * o.SeqLen
	b := &Batch{
		Step: step, Rows: len(rows), SeqLen: o.SeqLen,
		Inputs: make([]int32, n), Labels: make([]int32, n), Positions: make([]int32, n), Segments: make([]int32, n),
		LossMask: make([]float32, n), Sources: make([]Origin, len(rows)),
	}
	buf := make([]int32, o.SeqLen+1)
	var starts []int64
	for i, row := range rows {
		if row < 0 || row >= o.GlobalBatch {
			return nil, fmt.Errorf("data: row %d is outside the global batch of %d", row, o.GlobalBatch)
		}
		from := l.origin(step*int64(o.GlobalBatch) + int64(row))
		b.Sources[i] = from
		var err error
		if starts, err = l.fill(b, i, from, buf, starts[:0]); err != nil {
			return nil, fmt.Errorf("data: step %d, row %d: %w", step, row, err)
		}
	}
	return b, nil
}

// origin returns where the n-th row of a run is from.
func (l *Loader) origin(n int64) Origin {
	if l.o.Pass {
		for i, s := range l.sets {
			if n < s.samples {
				return Origin{Source: i, Sample: n}
			}
			n -= s.samples
		}
		return Origin{Source: -1}
	}
	source, number := l.mix.at(n)
	s := l.sets[source]
	from := Origin{Source: source, Epoch: number / s.samples, Sample: number % s.samples}
	if !l.o.Sequential {
		p := NewPermutation(s.samples, key(l.o.Seed, 's', uint64(source), uint64(from.Epoch)))
		from.Sample = p.At(from.Sample)
	}
	return from
}

// fill writes row i of the batch. buf has SeqLen+1 tokens; starts is scratch.
func (l *Loader) fill(b *Batch, i int, from Origin, buf []int32, starts []int64) ([]int64, error) {
	o := &l.o
	lo, hi := i*o.SeqLen, (i+1)*o.SeqLen
	inputs, labels, mask := b.Inputs[lo:hi], b.Labels[lo:hi], b.LossMask[lo:hi]
	positions, segments := b.Positions[lo:hi], b.Segments[lo:hi]
	n := 0 // tokens of the row that predict something
	if from.Source >= 0 {
		s := l.sets[from.Source]
		at := from.Sample * int64(o.SeqLen)
		buf = buf[:min(int64(len(buf)), s.Tokens()-at)]
		if err := s.Read(buf, at); err != nil {
			return starts, err
		}
		if err := l.checkIDs(s, at, buf); err != nil {
			return starts, err
		}
		n = len(buf) - 1
		b.Tokens += int64(n)
		var err error
		if starts, err = s.Starts(starts, at+1, at+int64(len(buf))); err != nil {
			return starts, err
		}
		copy(inputs, buf[:n])
		copy(labels, buf[1:])
		segment, first, next := int32(1), 0, 0
		for j := range n {
			if next < len(starts) && starts[next]-at == int64(j) {
				next++
				if o.IsolateDocuments {
					segment++
				}
				if o.ResetPositions {
					first = j
				}
			}
			positions[j], segments[j], mask[j] = int32(j-first), segment, 1
			if o.MaskBoundaries && next < len(starts) && starts[next]-at == int64(j+1) {
				mask[j] = 0
				continue
			}
			b.Valid++
		}
	}
	for j := n; j < o.SeqLen; j++ {
		inputs[j], labels[j] = o.Pad, o.Pad
	}
	return starts, nil
}

// checkIDs refuses ids outside the vocabulary: on the device they would read or
// write beside the embedding, or be clamped silently.
func (l *Loader) checkIDs(s *set, at int64, ids []int32) error {
	for i, id := range ids {
		if uint32(id) < uint32(l.o.Vocab) {
			continue
		}
		p := at + int64(i)
		doc, err := s.DocumentAt(p)
		if err != nil {
			return err
		}
		start, _, err := s.Document(doc)
		if err != nil {
			return err
		}
		return fmt.Errorf("dataset %s: document %d, token %d has id %d, outside the vocabulary of %d; the dataset was made with another tokenizer",
			s.Prefix(), doc, p-start, id, l.o.Vocab)
	}
	return nil
}
