package tokenizer

import (
	"encoding/binary"
	"strings"
)

// Sizes of an Encoder's cache. Together with the map of long pieces it stays
// below 32 MiB.
const (
	cacheBits    = 16
	inlineBytes  = 15 // the longest piece kept in a slot
	inlineIDs    = 7
	longEntries  = 1 << 14
	longMaxBytes = 256 // longer pieces are not worth keeping
)

// A slot is one cached piece of at most inlineBytes bytes with its ids.
type slot struct {
	lo, hi uint64 // the bytes, zero-filled, with the length in the top byte
	ids    [inlineIDs]int32
	n      int32 // 0: empty
}

// An Encoder encodes text; it keeps a bounded cache of pre-tokens, in which
// most of a text is found. It must not be used by two goroutines at once.
type Encoder struct {
	t     *Tokenizer
	plain bool
	slots []slot
	long  map[string][]int32
	work  workspace
	err   error // of the pre-tokeniser, in the current call
}

// NewEncoder returns an Encoder with an empty cache.
func (t *Tokenizer) NewEncoder() *Encoder {
	return &Encoder{t: t, slots: make([]slot, 1<<cacheBits), long: map[string][]int32{}}
}

// Plain makes the encoder treat special tokens in the text as plain text if
// plain is set, so that no document can forge one.
func (e *Encoder) Plain(plain bool) { e.plain = plain }

// Append encodes text and appends the ids to dst, without the special tokens
// that the post-processor adds around it. The only possible error is a
// pre-tokeniser pattern of the file that gives up on this text.
func (e *Encoder) Append(dst []int32, text string) ([]int32, error) {
	t := e.t
	e.err = nil
	n := len(dst)
	t.raw.split(text, e.plain, func(s string) {
		for _, f := range t.normalizers {
			s = f(s)
		}
		t.normalized.split(s, e.plain, func(s string) {
			dst = e.appendText(dst, s)
		}, func(id int32) { dst = append(dst, id) })
	}, func(id int32) { dst = append(dst, id) })
	if e.err != nil {
		return dst[:n], e.err
	}
	return dst, nil
}

// appendText encodes text that has no added tokens.
func (e *Encoder) appendText(dst []int32, s string) []int32 {
	if scan := e.t.scan; scan != nil {
		for i := 0; i < len(s); {
			end := scan(s, i)
			dst = e.appendPiece(dst, s, i, end)
			i = end
		}
		return dst
	}
	pieces, err := pretokenize(e.t.stages, s)
	if err != nil && e.err == nil {
		e.err = err
	}
	for _, p := range pieces {
		dst = e.appendPiece(dst, p, 0, len(p))
	}
	return dst
}

// appendPiece encodes the pre-token s[i:end].
func (e *Encoder) appendPiece(dst []int32, s string, i, end int) []int32 {
	n := end - i
	if n > inlineBytes {
		return e.appendLong(dst, s[i:end])
	}
	var lo, hi uint64
	if i+16 <= len(s) {
		lo = binary.LittleEndian.Uint64([]byte(s[i : i+8]))
		hi = binary.LittleEndian.Uint64([]byte(s[i+8 : i+16]))
		if n <= 8 {
			lo &= ^uint64(0) >> (64 - 8*n)
			hi = 0
		} else {
			hi &= ^uint64(0) >> (128 - 8*n)
		}
	} else {
		var buf [16]byte
		copy(buf[:], s[i:end])
		lo = binary.LittleEndian.Uint64(buf[:8])
		hi = binary.LittleEndian.Uint64(buf[8:])
	}
	hi |= uint64(n) << 56
	h := lo*fibonacci ^ hi*0xC2B2AE3D27D4EB4F
	h ^= h >> 32
	sl := &e.slots[h*fibonacci>>(64-cacheBits)]
	if sl.lo == lo && sl.hi == hi && sl.n > 0 {
		for _, id := range sl.ids[:sl.n] {
			dst = append(dst, id)
		}
		return dst
	}
	at := len(dst)
	dst = e.t.model.encode(dst, s[i:end], &e.work)
	if k := len(dst) - at; k <= inlineIDs {
		sl.lo, sl.hi, sl.n = lo, hi, int32(k)
		copy(sl.ids[:], dst[at:])
	}
	return dst
}

func (e *Encoder) appendLong(dst []int32, piece string) []int32 {
	if len(piece) > longMaxBytes {
		return e.t.model.encode(dst, piece, &e.work)
	}
	if ids, ok := e.long[piece]; ok {
		return append(dst, ids...)
	}
	at := len(dst)
	dst = e.t.model.encode(dst, piece, &e.work)
	if len(e.long) >= longEntries {
		clear(e.long)
	}
	e.long[strings.Clone(piece)] = append([]int32(nil), dst[at:]...)
	return dst
}
