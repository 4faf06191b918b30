package graph

import (
	"strconv"
	"strings"
)

func writeInt(sb *strings.Builder, i int) {
	var buf [20]byte
	sb.Write(strconv.AppendInt(buf[:0], int64(i), 10))
}

func joinInts(xs []int, sep string) string {
	var sb strings.Builder
	for i, x := range xs {
		if i > 0 {
			sb.WriteString(sep)
		}
		writeInt(&sb, x)
	}
	return sb.String()
}

// seq returns lo, lo+1, …, hi-1.
func seq(lo, hi int) []int {
	out := make([]int, 0, max(0, hi-lo))
	for i := lo; i < hi; i++ {
		out = append(out, i)
	}
	return out
}

func without(xs []int, drop ...int) []int {
	out := make([]int, 0, len(xs))
outer:
	for _, x := range xs {
		for _, d := range drop {
			if x == d {
				continue outer
			}
		}
		out = append(out, x)
	}
	return out
}

// pick returns the elements of xs at the given positions.
func pick[E any](xs []E, at []int) []E {
	out := make([]E, len(at))
	for i, a := range at {
		out[i] = xs[a]
	}
	return out
}

func inversePerm(p []int) []int {
	out := make([]int, len(p))
	for i, x := range p {
		out[x] = i
	}
	return out
}

func isIota(p []int) bool {
	for i, x := range p {
		if i != x {
			return false
		}
	}
	return true
}
