package plan

import (
	"fmt"

	"titan/kernels"
	"titan/pjrt/llo"
)

// callTime is what one call of a tile kernel is expected to take, in seconds.
type callTime struct {
	// seconds is all of it, issue what issuing its instructions takes, waits what it
	// waits besides for blocks to be copied.
	seconds, issue, waits float64
}

// callTime prices a call of a kernel by its code and by what is expected to happen
// at the steps of its grid. While a step computes, the blocks of the next one and
// the results of the one before are copied: a step takes the longer of the two. A
// chip whose cores are one device shares the steps along a parallel dimension of
// the grid, and the memory's bandwidth, among them.
func (m machine) callTime(g llo.Grid, e kernels.Expected) (callTime, error) {
	branch, err := match(g.Branches, e.Conditionals)
	if err != nil {
		return callTime{}, err
	}
	cores := 1
	if e.Parallel > 1 {
		cores = max(1, m.chip.Cores/max(1, m.chip.Devices))
	}
	// Of an odd number of steps one core gets one more.
	share := float64((e.Parallel+cores-1)/cores) / float64(e.Parallel)
	bandwidth := m.hbm / float64(cores)
	t := callTime{issue: float64(g.Outside) / m.clock, waits: e.Ends / m.hbm}
	for _, s := range e.Steps {
		taken := make([]bool, len(g.Branches))
		for k, ran := range s.Ran {
			if k < len(branch) && branch[k] >= 0 && ran == '1' {
				taken[branch[k]] = true
			}
		}
		issue := float64(g.Cycles(taken)) / m.clock
		t.issue += s.Count * share * issue
		t.waits += s.Count * share * max(0, s.Bytes/bandwidth-issue)
	}
	t.seconds = t.issue + t.waits
	return t, nil
}

// match finds for each conditional of a kernel the branch of its code, −1 for one
// that the compiler has made without a jump. Both are in the order of the code.
func match(branches []llo.Branch, ifs []kernels.Conditional) ([]int, error) {
	alike := func(b, c int) bool {
		return branches[b].Depth == ifs[c].Depth && (branches[b].Matrix > 0) == ifs[c].Dot
	}
	// most[b][c] is how many branches from b on can be found among conditionals from
	// c on.
	most := make([][]int, len(branches)+1)
	for b := len(branches); b >= 0; b-- {
		most[b] = make([]int, len(ifs)+1)
		for c := len(ifs) - 1; b < len(branches) && c >= 0; c-- {
			most[b][c] = max(most[b+1][c], most[b][c+1])
			if alike(b, c) {
				most[b][c] = max(most[b][c], 1+most[b+1][c+1])
			}
		}
	}
	if most[0][0] < len(branches) {
		return nil, fmt.Errorf("its code has %d branches of which %d are not found among the %d conditionals of the kernel", len(branches), len(branches)-most[0][0], len(ifs))
	}
	out := make([]int, len(ifs))
	b := 0
	for c := range ifs {
		out[c] = -1
		if b < len(branches) && alike(b, c) && 1+most[b+1][c+1] == most[b][c] {
			out[c] = b
			b++
		}
	}
	for c, at := range out {
		if at < 0 && ifs[c].Dot {
			return nil, fmt.Errorf("conditional %d of the kernel, which multiplies tiles, is no branch of its code", c)
		}
	}
	return out, nil
}
