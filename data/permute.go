package data

import "math/bits"

// mix64 is a bijection on 64-bit words in which every input bit reaches every
// output bit: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// key derives a key from a seed and numbers, the order of which counts.
func key(seed uint64, parts ...uint64) uint64 {
	k := mix64(seed + golden)
	for _, p := range parts {
		k = mix64(k^mix64(p+golden)) + golden
	}
	return k
}

const golden = 0x9E3779B97F4A7C15

const rounds = 8

// Permutation is a keyed bijection of 0..n-1 in constant memory: a Feistel
// network over the smallest fitting power of two, walked until it lands below n
// (cycle walking; Black and Rogaway, 2002).
type Permutation struct {
	n           uint64
	low         uint // bits of the low half
	maskL, mask uint64
	keys        [rounds]uint64
}

// NewPermutation returns the permutation of 0..n-1 that belongs to the key; n
// must be positive.
func NewPermutation(n int64, key uint64) Permutation {
	// A few bits more than tiny n need, or the halves would be too small to mix.
	width := uint(max(bits.Len64(uint64(n-1)), 8))
	p := Permutation{n: uint64(n), low: width / 2, mask: 1<<(width-width/2) - 1}
	p.maskL = 1<<p.low - 1
	for i := range p.keys {
		key += golden
		p.keys[i] = mix64(key)
	}
	return p
}

// At returns the image of i, 0 <= i < n.
func (p *Permutation) At(i int64) int64 {
	x := uint64(i)
	for {
		lo, hi := x&p.maskL, x>>p.low
		for r := 0; r < rounds; r += 2 {
			hi ^= mix64(lo^p.keys[r]) & p.mask
			lo ^= mix64(hi^p.keys[r+1]) & p.maskL
		}
		if x = hi<<p.low | lo; x < p.n {
			return int64(x)
		}
	}
}
