package hf

import (
	"cmp"
	"slices"
	"unsafe"
)

// loop is one level of a strided copy: n steps, with the distance between
// neighbours on either side in elements.
type loop struct{ n, dst, src int }

// merge orders loops so that dst is written front to back, drops those of one
// step, and joins those that are contiguous on both sides.
func merge(loops []loop) []loop {
	loops = slices.DeleteFunc(loops, func(l loop) bool { return l.n == 1 })
	slices.SortFunc(loops, func(a, b loop) int { return cmp.Compare(b.dst, a.dst) })
	var out []loop
	for _, l := range loops {
		if k := len(out) - 1; k >= 0 && out[k].dst == l.n*l.dst && out[k].src == l.n*l.src {
			out[k] = loop{out[k].n * l.n, l.dst, l.src}
			continue
		}
		out = append(out, l)
	}
	return out
}

// tile is the side of the squares in which a transposition is done, in elements.
// A square is gathered in memory of its own: rows of large matrices lie so far
// apart that the cache cannot hold a column of them.
const tile = 64

// element is what a strided copy moves, by its size.
type element interface {
	[1]byte | [2]byte | [4]byte | [8]byte
}

// as returns bytes as elements.
func as[T element](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/len(t))
}

// copyStrided copies elements of size bytes (1, 2, 4 or 8); loops are those of
// merge.
func copyStrided(dst, src []byte, loops []loop, size int) {
	switch size {
	case 1:
		copyLoops(as[[1]byte](dst), as[[1]byte](src), loops)
	case 2:
		copyLoops(as[[2]byte](dst), as[[2]byte](src), loops)
	case 4:
		copyLoops(as[[4]byte](dst), as[[4]byte](src), loops)
	case 8:
		copyLoops(as[[8]byte](dst), as[[8]byte](src), loops)
	}
}

func copyLoops[T element](dst, src []T, loops []loop) {
	if len(loops) == 0 {
		dst[0] = src[0]
		return
	}
	inner := loops[len(loops)-1]
	outer := loops[:len(loops)-1]
	if inner.dst == 1 && inner.src == 1 {
		walk(outer, func(d, s int) { copy(dst[d:d+inner.n], src[s:s+inner.n]) })
		return
	}
	fast := slices.IndexFunc(outer, func(l loop) bool { return l.src == 1 })
	if fast < 0 || inner.dst != 1 {
		walk(outer, func(d, s int) {
			for range inner.n {
				dst[d] = src[s]
				d, s = d+inner.dst, s+inner.src
			}
		})
		return
	}
	other := outer[fast]
	var square [tile * tile]T
	walk(slices.Delete(slices.Clone(outer), fast, fast+1), func(d, s int) {
		for i := 0; i < other.n; i += tile {
			rows := min(tile, other.n-i)
			for j := 0; j < inner.n; j += tile {
				columns := min(tile, inner.n-j)
				for k := range columns {
					at := s + i + (j+k)*inner.src
					for r, v := range src[at : at+rows] {
						square[r*tile+k] = v
					}
				}
				for r := range rows {
					at := d + (i+r)*other.dst + j
					copy(dst[at:at+columns], square[r*tile:])
				}
			}
		}
	})
}

// walk calls f with the offsets of every combination of steps.
func walk(loops []loop, f func(dst, src int)) {
	at := make([]int, len(loops))
	d, s := 0, 0
	for {
		f(d, s)
		k := len(loops) - 1
		for ; k >= 0; k-- {
			d += loops[k].dst
			s += loops[k].src
			if at[k]++; at[k] < loops[k].n {
				break
			}
			d -= loops[k].n * loops[k].dst
			s -= loops[k].n * loops[k].src
			at[k] = 0
		}
		if k < 0 {
			return
		}
	}
}
