package kernels

import "slices"

// typicalIntervals are those of one document: query t sees the keys up to its own
// place, or all of them.
func (s attentionShape) typicalIntervals() (lo, hi []int) {
	lo, hi = make([]int, s.Q), make([]int, s.Q)
	for t := range hi {
		hi[t] = s.T
		if s.causal {
			hi[t] = (t*s.T + s.T + s.Q - 1) / s.Q
		}
	}
	return lo, hi
}

// typical are the operands for these intervals.
func (s attentionShape) typical(byKey bool) (bound int, vectors [][]int32) {
	lo, hi := s.typicalIntervals()
	return s.operandsOf(lo, hi, byKey)
}

// operandsOf is what attentionVisits.operands gives for rows of queries that all
// have the same intervals: the number of visits, by key or by query, and the
// prefetched vectors.
func (s attentionShape) operandsOf(lo, hi []int, byKey bool) (bound int, vectors [][]int32) {
	nq, nk := s.queryTiles(), s.keyTiles()
	first, last, sure, until := make([]int, nq), make([]int, nq), make([]int, nq), make([]int, nq)
	for i := range nq {
		from, to := s.T, 0
		sure[i], until[i] = lo[i*s.tiles.Q], hi[i*s.tiles.Q]
		for t := i * s.tiles.Q; t < (i+1)*s.tiles.Q; t++ {
			if hi[t] > lo[t] {
				from, to = min(from, max(lo[t], 0)), max(to, min(hi[t], s.T))
			}
			sure[i], until[i] = max(sure[i], lo[t]), min(until[i], hi[t])
		}
		first[i], last[i] = from/s.tiles.K, (to+s.tiles.K-1)/s.tiles.K-1
	}
	var from, count []int
	if byKey {
		for j := range nk {
			a, b := nq, -1
			for i := range nq {
				if first[i] <= j && j <= last[i] {
					a, b = min(a, i), i
				}
			}
			a = min(a, nq-1)
			from, count = append(from, a), append(count, max(b-a+1, 1))
		}
	} else {
		for i := range nq {
			a := min(first[i], nk-1)
			from, count = append(from, a), append(count, max(last[i]-a+1, 1))
		}
	}
	bound, items, tiles := visitOf(from, count, nq*nk)
	if byKey {
		items, tiles = tiles, items
	}
	vectors = [][]int32{items, tiles}
	for _, x := range [][]int{first, last, sure, until} {
		var row []int32
		for _, v := range x {
			row = append(row, int32(v))
		}
		vectors = append(vectors, slices.Repeat(row, s.B))
	}
	return bound, vectors
}
