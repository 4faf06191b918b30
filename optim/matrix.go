package optim

import (
	"math"
	"slices"
)

// Logical axes with a meaning for the optimizer: the leading ones that count
// matrices, the one that belongs to the axis before it (heads × their width are
// one side of a matrix), and the one that marks embeddings and output layers.
const (
	axisLayer   = "layer"
	axisExpert  = "expert"
	axisHeadDim = "head_dim"
	axisVocab   = "vocab"
)

// Values of muon_adjust_lr.
const (
	MatchRMSAdamW = "match_rms_adamw"
	Original      = "original"
)

// matrices is a parameter seen as a stack of matrices, stored [in, out]: its
// first stack dimensions count them, the next rows dimensions are a matrix's
// rows, the rest its columns.
type matrices struct {
	stack, rows int
	count       int // of matrices
	in, out     int // rows and columns of one
}

// matrices reads a parameter's axes. ok is false where what is left after the
// leading layer and expert axes has not two sides: norms, biases, scalars.
func (p Param) matrices() (m matrices, ok bool) {
	for m.stack < len(p.Axes) && (p.Axes[m.stack] == axisLayer || p.Axes[m.stack] == axisExpert) {
		m.stack++
	}
	var sides []int // at which dimension each begins
	for i := m.stack; i < len(p.Axes); i++ {
		if i == m.stack || p.Axes[i] != axisHeadDim {
			sides = append(sides, i)
		}
	}
	if len(sides) != 2 {
		return m, false
	}
	m.rows = sides[1] - m.stack
	m.count = product(p.Shape[:m.stack])
	m.in, m.out = product(p.Shape[m.stack:sides[1]]), product(p.Shape[sides[1]:])
	return m, true
}

// hidden tells the layers' matrices from those of embeddings and output layers.
func (p Param) hidden() bool { return !slices.Contains(p.Axes, axisVocab) }

// adjust is the factor on the learning rate for matrices of this shape. The
// singular values of an update are near 1, so the mean square of its elements is
// about 1/max(in, out). match_rms_adamw brings the root to 0.2, which is usual of
// AdamW (Liu et al., 2025, section 2.2); original keeps the spectral norm of what
// a layer adds to its output independent of its width (Jordan et al., 2024).
func (m matrices) adjust(rule string) float64 {
	if rule == Original {
		return math.Sqrt(max(1, float64(m.out)/float64(m.in)))
	}
	return 0.2 * math.Sqrt(float64(max(m.in, m.out)))
}

func product(xs []int) int {
	n := 1
	for _, x := range xs {
		n *= x
	}
	return n
}
