package data

import (
	"fmt"
	"math"
	"math/bits"
)

// A mixture deals the samples of a run to sources by weight. Sample numbers are
// taken in blocks; of the first k blocks, a source of share w gets k*block*w
// samples, rounded, and a keyed permutation spreads them over the block. So the
// shares are exact to one sample at every block's end, however long the run, and
// the n-th sample's source and its number there are computed directly.
type mixture struct {
	seed  uint64
	block int64
	// edges are the sources' cumulative shares as 63-bit fractions: source d has
	// [edges[d], edges[d+1]).
	edges []uint64
}

const one = uint64(1) << 63

func newMixture(weights []float64, seed uint64) (*mixture, error) {
	total := 0.0
	for i, w := range weights {
		if !(w > 0) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("source %d has weight %g; weights are positive numbers", i, w)
		}
		total += w
	}
	if math.IsInf(total, 0) {
		return nil, fmt.Errorf("the weights add up to more than a float64 holds")
	}
	m := &mixture{seed: seed, block: 1024, edges: make([]uint64, len(weights)+1)}
	sum, least := 0.0, 1.0
	for i, w := range weights {
		sum += w
		m.edges[i+1] = uint64(min(sum/total, 1) * float64(one))
		least = min(least, w/total)
	}
	m.edges[len(weights)] = one
	if least < 1e-9 {
		return nil, fmt.Errorf("the smallest weight is %.3g of all; below 1e-9 a source is as good as absent: leave it out", least)
	}
	// With at least four samples a block, rounding never takes one back.
	for float64(m.block)*least < 4 {
		m.block *= 2
	}
	return m, nil
}

// dealt returns how many samples the sources before d got in k blocks.
func (m *mixture) dealt(d int, k int64) int64 {
	hi, lo := bits.Mul64(uint64(k*m.block), m.edges[d])
	return int64(hi<<1 | lo>>63)
}

// at returns the source of sample n and its number among that source's samples.
func (m *mixture) at(n int64) (source int, number int64) {
	if len(m.edges) == 2 {
		return 0, n
	}
	k := n / m.block
	p := NewPermutation(m.block, key(m.seed, 'm', uint64(k)))
	slot := p.At(n % m.block)
	for d := 0; ; d++ {
		before := m.dealt(d+1, k) - m.dealt(d, k)
		here := m.dealt(d+1, k+1) - m.dealt(d, k+1) - before
		if slot < here {
			return d, before + slot
		}
		slot -= here
	}
}
