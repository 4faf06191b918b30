package tokenizer

import "math"

// noMerge is the rank of a pair that has no merge.
const noMerge = math.MaxUint32

// longPiece is the number of symbols from which a heap finds the next merge;
// below, looking at all of them is faster.
const longPiece = 48

// bpe holds the merges of a byte-level vocabulary. Merging repeats one step:
// of all adjacent pairs take the one of lowest rank, the leftmost if there are
// several, and join it; until no pair has a merge (Sennrich et al., 2016).
type bpe struct {
	byteID [256]int32
	vocab  map[string]int32 // bytes → id, for ignore_merges
	whole  bool             // ignore_merges: a piece that is a token is not taken apart
	merged []int32          // rank → id of the joined token
	pairs  pairTable
}

// pairTable maps pairs of ids to ranks: open addressing, at most half full.
type pairTable struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	key  uint64 // left<<32 | right
	rank uint32 // noMerge: empty
}

func newPairTable(n int) pairTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	t := pairTable{slots: make([]pairSlot, 1<<bits), shift: 64 - bits}
	for i := range t.slots {
		t.slots[i].rank = noMerge
	}
	return t
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func (t *pairTable) set(key uint64, rank uint32) {
	mask := uint64(len(t.slots) - 1)
	for h := key * fibonacci >> t.shift; ; h = (h + 1) & mask {
		if s := &t.slots[h]; s.rank == noMerge || s.key == key {
			*s = pairSlot{key, rank}
			return
		}
	}
}

func (t *pairTable) rank(left, right int32) uint32 {
	key := pairKey(left, right)
	mask := uint64(len(t.slots) - 1)
	for h := key * fibonacci >> t.shift; ; h = (h + 1) & mask {
		if s := &t.slots[h]; s.rank == noMerge || s.key == key {
			return s.rank
		}
	}
}

// fibonacci is 2^64 over the golden ratio: multiplying by it spreads keys over
// the high bits.
const fibonacci = 0x9E3779B97F4A7C15

// workspace is scratch memory for merging.
type workspace struct {
	ids   []int32
	ranks []uint32
	prev  []int32
	next  []int32
	heap  []uint64
}

// encode appends the ids of one pre-token.
func (m *bpe) encode(dst []int32, piece string, w *workspace) []int32 {
	if m.whole {
		if id, ok := m.vocab[piece]; ok {
			return append(dst, id)
		}
	}
	w.ids = w.ids[:0]
	for i := range len(piece) {
		w.ids = append(w.ids, m.byteID[piece[i]])
	}
	if len(w.ids) < longPiece {
		return m.mergeShort(dst, w)
	}
	return m.mergeLong(dst, w)
}

// mergeShort merges w.ids by scanning the ranks for each merge.
func (m *bpe) mergeShort(dst []int32, w *workspace) []int32 {
	ids, ranks := w.ids, w.ranks[:0]
	for i := 0; i+1 < len(ids); i++ {
		ranks = append(ranks, m.pairs.rank(ids[i], ids[i+1]))
	}
	w.ranks = ranks
	for len(ranks) > 0 {
		best, at := uint32(noMerge), 0
		for i, r := range ranks {
			if r < best {
				best, at = r, i
			}
		}
		if best == noMerge {
			break
		}
		ids[at] = m.merged[best]
		ids = append(ids[:at+1], ids[at+2:]...)
		ranks = append(ranks[:at], ranks[at+1:]...)
		if at > 0 {
			ranks[at-1] = m.pairs.rank(ids[at-1], ids[at])
		}
		if at < len(ranks) {
			ranks[at] = m.pairs.rank(ids[at], ids[at+1])
		}
	}
	return append(dst, ids...)
}

// mergeLong merges w.ids with a heap of candidate merges, rank<<32 | position,
// over a linked list of symbols: n log n for n symbols.
func (m *bpe) mergeLong(dst []int32, w *workspace) []int32 {
	n := len(w.ids)
	ids := w.ids
	w.prev, w.next, w.heap = w.prev[:0], w.next[:0], w.heap[:0]
	for i := range n {
		w.prev = append(w.prev, int32(i-1))
		w.next = append(w.next, int32(i+1))
	}
	prev, next := w.prev, w.next
	offer := func(i int32) {
		if i < 0 || int(next[i]) >= n {
			return
		}
		if r := m.pairs.rank(ids[i], ids[next[i]]); r != noMerge {
			w.push(uint64(r)<<32 | uint64(i))
		}
	}
	for i := range n {
		offer(int32(i))
	}
	const dead = -1
	for len(w.heap) > 0 {
		top := w.pop()
		rank, i := uint32(top>>32), int32(uint32(top))
		// Skip candidates whose symbols have changed since.
		if ids[i] == dead || int(next[i]) >= n || m.pairs.rank(ids[i], ids[next[i]]) != rank {
			continue
		}
		right := next[i]
		ids[i], ids[right] = m.merged[rank], dead
		next[i] = next[right]
		if int(next[i]) < n {
			prev[next[i]] = i
		}
		offer(prev[i])
		offer(i)
	}
	for i := int32(0); int(i) < n; i = next[i] {
		dst = append(dst, ids[i])
	}
	return dst
}

func (w *workspace) push(v uint64) {
	h := append(w.heap, v)
	i := len(h) - 1
	for i > 0 && h[(i-1)/2] > v {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = v
	w.heap = h
}

func (w *workspace) pop() uint64 {
	h := w.heap
	top, v := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	w.heap = h
	i := 0
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[c] >= v {
			break
		}
		h[i] = h[c]
		i = c
	}
	if len(h) > 0 {
		h[i] = v
	}
	return top
}
