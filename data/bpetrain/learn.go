package bpetrain

import (
	"container/heap"
	"context"
	"slices"
	"strings"

	"titan/data/tokenizer"
)

// word is a pre-token as symbols, with the number of its occurrences.
type word struct {
	symbols []int32
	count   int64
}

// pair is what is known of two adjacent symbols.
type pair struct {
	count int64
	words []int32 // those with the pair, perhaps some that had it
}

// candidate is a pair with the count it had when it was queued.
type candidate struct {
	count int64
	key   uint64 // left<<32 | right
}

type queue []candidate

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].count > q[j].count || q[i].count == q[j].count && q[i].key < q[j].key
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(candidate)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// learner holds the state between merges.
type learner struct {
	tokens []string // id → token as bytes
	ids    map[string]int32
	words  []word
	pairs  map[uint64]*pair
	queue  queue
	merges [][2]int32
	grown  map[uint64]bool // pairs that the current merge made
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// learn finds merges until there are size tokens or no pair occurs min times.
func learn(ctx context.Context, counts map[string]int64, size int, min int64, progress func(tokens int)) (*learner, error) {
	l := &learner{ids: map[string]int32{}, pairs: map[uint64]*pair{}, grown: map[uint64]bool{}}
	for _, t := range tokenizer.ByteTokens() {
		b, err := tokenizer.Bytes(t)
		if err != nil {
			return nil, err
		}
		l.ids[b] = int32(len(l.tokens))
		l.tokens = append(l.tokens, b)
	}
	texts := make([]string, 0, len(counts))
	for t := range counts {
		texts = append(texts, t)
	}
	slices.Sort(texts)
	for _, t := range texts {
		w := word{symbols: make([]int32, len(t)), count: counts[t]}
		for i := range len(t) {
			w.symbols[i] = l.ids[t[i:i+1]]
		}
		for i := 1; i < len(w.symbols); i++ {
			l.change(pairKey(w.symbols[i-1], w.symbols[i]), w.count, int32(len(l.words)))
		}
		l.words = append(l.words, w)
	}
	l.offerGrown()
	for len(l.tokens) < size && len(l.queue) > 0 {
		if len(l.merges)%256 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			progress(len(l.tokens))
		}
		top := heap.Pop(&l.queue).(candidate)
		p := l.pairs[top.key]
		if p == nil || p.count <= 0 {
			continue
		}
		if p.count != top.count {
			heap.Push(&l.queue, candidate{p.count, top.key})
			continue
		}
		if p.count < min {
			break
		}
		l.merge(top.key, p)
	}
	progress(len(l.tokens))
	return l, nil
}

// merge joins a pair everywhere.
func (l *learner) merge(key uint64, p *pair) {
	a, b := int32(key>>32), int32(uint32(key))
	text := l.tokens[a] + l.tokens[b]
	// Two pairs can spell the same token; it has one id.
	id, ok := l.ids[text]
	if !ok {
		id = int32(len(l.tokens))
		l.tokens = append(l.tokens, text)
		l.ids[text] = id
	}
	l.merges = append(l.merges, [2]int32{a, b})
	for _, w := range p.words {
		l.mergeWord(w, a, b, id)
	}
	delete(l.pairs, key)
	delete(l.grown, key)
	l.offerGrown()
}

func (l *learner) mergeWord(index, a, b, id int32) {
	w := &l.words[index]
	s := w.symbols
	out := s[:0]
	for i := 0; i < len(s); i++ {
		if s[i] != a || i+1 == len(s) || s[i+1] != b {
			out = append(out, s[i])
			continue
		}
		if n := len(out); n > 0 {
			l.change(pairKey(out[n-1], a), -w.count, index)
			l.change(pairKey(out[n-1], id), w.count, index)
		}
		if i+2 < len(s) {
			l.change(pairKey(b, s[i+2]), -w.count, index)
			l.change(pairKey(id, s[i+2]), w.count, index)
		}
		out = append(out, id)
		i++
	}
	w.symbols = out
}

// change adds to the count of a pair, and a word to its words if it grows.
func (l *learner) change(key uint64, by int64, index int32) {
	p := l.pairs[key]
	if p == nil {
		p = &pair{}
		l.pairs[key] = p
	}
	p.count += by
	if by > 0 {
		if n := len(p.words); n == 0 || p.words[n-1] != index {
			p.words = append(p.words, index)
		}
		l.grown[key] = true
	}
}

// offerGrown queues the pairs that have grown.
func (l *learner) offerGrown() {
	for key := range l.grown {
		if p := l.pairs[key]; p != nil && p.count > 0 {
			heap.Push(&l.queue, candidate{p.count, key})
		}
	}
	clear(l.grown)
}

// spec returns the result as a vocabulary.
func (l *learner) spec(s tokenizer.Spec) tokenizer.Spec {
	for _, t := range l.tokens {
		s.Tokens = append(s.Tokens, tokenizer.Spell(t))
	}
	for _, m := range l.merges {
		s.Merges = append(s.Merges, [2]string{s.Tokens[m[0]], s.Tokens[m[1]]})
	}
	return s
}

// count adds the pre-tokens of a text to counts.
func count(counts map[string]int64, split func(string, func(string)), text string) {
	split(text, func(piece string) {
		if _, ok := counts[piece]; ok {
			counts[piece]++
			return
		}
		counts[strings.Clone(piece)] = 1
	})
}
