package hf

import (
	"cmp"
	"slices"
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

// tile is the side of the squares in which a transposition is done, in elements,
// so that the cache lines of both sides are used whole.
const tile = 32

// copyStrided copies elements of size bytes; loops are those of merge.
func copyStrided(dst, src []byte, loops []loop, size int) {
	if len(loops) == 0 {
		copy(dst[:size], src[:size])
		return
	}
	inner := loops[len(loops)-1]
	outer := loops[:len(loops)-1]
	if inner.dst == 1 && inner.src == 1 {
		run := inner.n * size
		walk(outer, size, func(d, s int) { copy(dst[d:d+run], src[s:s+run]) })
		return
	}
	// The loop that walks src in order, if another one does.
	fast := -1
	for i, l := range outer {
		if fast < 0 || l.src < outer[fast].src {
			fast = i
		}
	}
	if fast < 0 || inner.src < outer[fast].src {
		walk(outer, size, func(d, s int) { copyElements(dst[d:], src[s:], inner, size) })
		return
	}
	other := outer[fast]
	rest := slices.Delete(slices.Clone(outer), fast, fast+1)
	walk(rest, size, func(d, s int) {
		for i := 0; i < other.n; i += tile {
			for j := 0; j < inner.n; j += tile {
				part := loop{min(tile, inner.n-j), inner.dst, inner.src}
				for k := i; k < min(i+tile, other.n); k++ {
					copyElements(dst[d+(k*other.dst+j*inner.dst)*size:], src[s+(k*other.src+j*inner.src)*size:], part, size)
				}
			}
		}
	})
}

// walk calls f with the byte offsets of every combination of steps.
func walk(loops []loop, size int, f func(dst, src int)) {
	at := make([]int, len(loops))
	d, s := 0, 0
	for {
		f(d*size, s*size)
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

// copyElements copies one loop of single elements, moved by value.
func copyElements(dst, src []byte, l loop, size int) {
	d, s, dStep, sStep := 0, 0, l.dst*size, l.src*size
	switch size {
	case 1:
		for range l.n {
			dst[d] = src[s]
			d, s = d+dStep, s+sStep
		}
	case 2:
		for range l.n {
			*(*[2]byte)(dst[d:]) = [2]byte(src[s:])
			d, s = d+dStep, s+sStep
		}
	case 4:
		for range l.n {
			*(*[4]byte)(dst[d:]) = [4]byte(src[s:])
			d, s = d+dStep, s+sStep
		}
	case 8:
		for range l.n {
			*(*[8]byte)(dst[d:]) = [8]byte(src[s:])
			d, s = d+dStep, s+sStep
		}
	}
}
