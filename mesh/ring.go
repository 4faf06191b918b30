package mesh

import (
	"iter"
	"slices"
)

// ring returns the order in which an axis lies along its share of the torus, as
// digits 0 ≤ d[i] < share[i]. The devices of a chip follow one another, and every
// device is followed by a neighbour: one digit changes by one, or goes around a
// whole direction that closes.
//
// A compiler may send the parts of an array around a ring in this order, both ways at
// once and in all groups along the axis at the same time. Of some such orders it is
// the first whose rings load the busiest link least, and of those the first whose last
// device is nearest to the first device. Where the share has a closed cycle and no
// other group's devices lie in between, that is one.
func (t *torus) ring(share, taken []int) [][]int {
	closes := make([]bool, len(share)) // a neighbour of the last digit is 0
	// Other groups between neighbours, and on the same chips, send the same way.
	leastFar := 0
	for i, n := range share {
		closes[i] = n == 2 || t.wraps[i] && n*taken[i] == t.extent[i]
		if i > 0 && n > 1 {
			leastFar = max(leastFar, taken[i])
		}
	}
	least := leastFar * t.extent[0] / share[0]
	var best [][]int
	bestLoad, bestFar := 0, 0
	for chips := range chipOrders(share, closes) {
		order := backAndForth(chips, line(share, 0))
		most, far := t.ringLoad(order, share, taken)
		if best == nil || most < bestLoad || most == bestLoad && far < bestFar {
			best, bestLoad, bestFar = order, most, far
		}
		if bestLoad <= least && bestFar <= leastFar {
			break
		}
	}
	return best
}

// chipOrders yields orders of a share's chips: back and forth along direction after
// direction, which may be a cycle, and what else is one. Either one direction is the
// slowest, which has two digits or closes to a ring of an even number; or rows along it
// go back and forth over all but their first chips, along which the way leads back.
//
// A share of at least two directions has a cycle if a side is even or if a side closes.
// If the number of rows is even, the last ends beside the way back. If rows are rings
// themselves, it does so at either end.
func chipOrders(share []int, closes []bool) iter.Seq[[][]int] {
	all := slices.Clone(share)
	all[0] = 1
	return func(yield func([][]int) bool) {
		if !yield(reflected(all)) {
			return
		}
		for i, n := range slices.Backward(all) {
			if n == 1 || n == product(all) {
				continue
			}
			others := slices.Clone(all)
			others[i] = 1
			side, rest := line(share, i), reflected(others)
			if n%2 == 0 && closes[i] && !yield(backAndForth(side, rest)) ||
				n%2 == 0 && !yield(thereAndBack(side, rest)) ||
				closes[i] && !yield(thereAndBack(rest, side)) {
				return
			}
		}
	}
}

// ringLoad returns how many messages the busiest link carries in one direction when
// every device on an axis sends one to the next and one to the one before, and how many
// links are between neighbours, the last and the first among them, at most.
func (t *torus) ringLoad(order [][]int, share, taken []int) (most, far int) {
	number := func(digits []int) int {
		n := 0
		for i, d := range slices.Backward(digits) {
			n = n*share[i] + d
		}
		return n
	}
	next := make([][]int, len(order))
	for k, digits := range order {
		next[number(digits)] = order[(k+1)%len(order)]
	}
	l := newLoad(t)
	at, digits := make([]int, len(share)), make([]int, len(share))
	to := make([]int, len(share))
	for range product(t.extent) {
		for i, c := range at {
			digits[i] = c / taken[i] % share[i]
		}
		for i, d := range next[number(digits)] {
			to[i] = at[i] + (d-digits[i])*taken[i]
		}
		l.send(at[1:], to[1:])
		l.send(to[1:], at[1:])
		far = max(far, t.hops(at[1:], to[1:]))
		for i := range at { // the next place in the box
			if at[i]++; at[i] < t.extent[i] {
				break
			}
			at[i] = 0
		}
	}
	return l.most, far
}

// line counts through digit i, while the others are 0.
func line(radix []int, i int) [][]int {
	out := make([][]int, radix[i])
	for d := range out {
		out[d] = make([]int, len(radix))
		out[d][i] = d
	}
	return out
}

// reflected counts through all digits 0 ≤ d[i] < radix[i], the first fastest,
// changing one digit by one at every step.
func reflected(radix []int) [][]int {
	codes := [][]int{make([]int, len(radix))}
	for i := range radix {
		codes = backAndForth(line(radix, i), codes)
	}
	return codes
}

// backAndForth goes through fast for each of slow, every second time in reverse. They
// set different digits.
func backAndForth(slow, fast [][]int) [][]int {
	out := make([][]int, 0, len(slow)*len(fast))
	for k, s := range slow {
		for j := range fast {
			if k%2 == 1 {
				j = len(fast) - 1 - j
			}
			out = append(out, sum(s, fast[j]))
		}
	}
	return out
}

// thereAndBack is the cycle that goes back and forth through all but the first of fast
// for each of slow, and back through slow at the first of fast. It takes an even number
// of slow, or a fast whose last is next to its first.
func thereAndBack(slow, fast [][]int) [][]int {
	out := append([][]int{sum(slow[0], fast[0])}, backAndForth(slow, fast[1:])...)
	for _, s := range slices.Backward(slow[1:]) {
		out = append(out, sum(s, fast[0]))
	}
	return out
}

func sum(a, b []int) []int {
	out := slices.Clone(a)
	for i, x := range b {
		out[i] += x
	}
	return out
}
