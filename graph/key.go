package graph

import (
	"crypto/sha256"
	"encoding/binary"
)

// Key selects a stream of random bits. Equal keys give equal bits, whatever the
// mesh, the sharding or the rest of the program; keys made differently give
// independent ones. A key is either drawn from (RandomBits and the
// distributions) or made into further keys (Named, Fold, FoldIn), not both, and
// drawn from only once.
//
// Keys and bits are those of JAX: NewKey(s) is jax.random.key(s) with the
// threefry2x32 generator, Fold is jax.random.fold_in.
//
//	init := graph.NewKey(seed, "init")
//	w := b.RandomNormal(init.Named("layers.wq"), graph.T(graph.F32, 32, 512, 512))
//	drop := graph.NewKey(seed, "dropout").FoldIn(step).Fold(uint64(layer))
type Key struct {
	hi, lo uint32
	words  [2]*Value // the key, when it is known only at run time
}

// NewKey makes a key from a seed and names, folded in from left to right.
func NewKey(seed uint64, names ...string) Key {
	k := Key{hi: uint32(seed >> 32), lo: uint32(seed)}
	for _, n := range names {
		k = k.Named(n)
	}
	return k
}

// KeyOf makes a key from its two words, given at run time as u32[2]: the high
// and the low half of a seed. One compiled program then serves every seed.
func KeyOf(words *Value) Key {
	if !words.typ.Equal(T(U32, 2)) {
		words.b().failAt(words.b().position(1), "key", []*Value{words}, "the words of a key are u32[2]")
	}
	return Key{words: [2]*Value{Reshape(SliceDim(words, 0, 0, 1)), Reshape(SliceDim(words, 0, 1, 2))}}
}

// Named makes the key of something with a name, by folding in the first eight
// bytes of the name's SHA-256. The order in which things are made does not
// matter then.
func (k Key) Named(name string) Key {
	h := sha256.Sum256([]byte(name))
	return k.Fold(binary.BigEndian.Uint64(h[:]))
}

// Fold makes the n-th of the keys that follow from k.
func (k Key) Fold(n uint64) Key {
	if b := k.builder(); b != nil {
		return k.fold(b, b.Int(U32, int64(n>>32)), b.Int(U32, int64(uint32(n))))
	}
	hi, lo := threefryWords(k.hi, k.lo, uint32(n>>32), uint32(n))
	return Key{hi: hi, lo: lo}
}

// FoldIn is Fold with a number known at run time, a scalar of any integer type,
// such as the training step or the index of a layer in a scan.
func (k Key) FoldIn(n *Value) Key {
	b := n.b()
	if n.Rank() != 0 || !n.typ.DType.IsInt() {
		b.failAt(b.position(1), "fold_in", []*Value{n}, "needs an integer scalar")
	}
	hi := b.Int(U32, 0)
	if n.typ.DType.Size() == 8 {
		u := Convert(n, U64)
		hi, n = Convert(ShiftRightLogical(u, b.Int(U64, 32)), U32), And(u, b.Int(U64, 1<<32-1))
	}
	return k.fold(b, hi, Convert(n, U32))
}

func (k Key) fold(b *Builder, hi, lo *Value) Key {
	k0, k1 := k.values(b)
	k0, k1 = threefry(k0, k1, hi, lo)
	return Key{words: [2]*Value{k0, k1}}
}

// builder is that of a key known at run time, or nil.
func (k Key) builder() *Builder {
	if k.words[0] == nil {
		return nil
	}
	return k.words[0].b()
}

// values gives the two words as u32 scalars.
func (k Key) values(b *Builder) (*Value, *Value) {
	if k.words[0] != nil {
		return k.words[0], k.words[1]
	}
	return b.Int(U32, int64(k.hi)), b.Int(U32, int64(k.lo))
}
