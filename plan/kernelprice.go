package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"titan/kernels"
	"titan/pjrt/hlo"
	"titan/pjrt/llo"
)

// KernelCalls are the calls of a tile kernel with operands of the same shapes.
type KernelCalls struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	// Seconds is what a call takes, of which it waits Waits for blocks to be copied.
	Seconds float64 `json:"seconds"`
	Waits   float64 `json:"waiting_seconds"`
	// Flops is the arithmetic of a call, Peak the part of its time that this takes at
	// the peak of the matrix units.
	Flops float64 `json:"flops"`
	Peak  float64 `json:"of_peak"`
	// Bundles is the size of its code; 0 where that is not known and the time is a
	// roofline.
	Bundles int `json:"bundles,omitempty"`
}

// kernel prices a tile kernel: by its code, else by what its author says it computes
// and moves.
func (w *walker) kernel(b *block, i *hlo.Instruction) float64 {
	name := i.KernelName()
	cost, _ := i.KernelCost()
	bytes := cost.Bytes
	if bytes == 0 {
		bytes = w.traffic.bytes(i)
	}
	w.out.flops[kernelPart(name)] += cost.Flops * b.times
	w.out.memory += bytes * b.times
	t, bundles := w.byCode(i)
	if bundles == 0 {
		efficiency := kernelOther
		if kernelPart(name) == Attention {
			efficiency = kernelAttention
		}
		t.seconds = max(cost.Flops/w.machine.peak/efficiency, bytes/w.machine.hbm)
	} else {
		w.out.byCode += t.seconds * b.times
	}
	w.out.kernels += t.seconds * b.times
	key := fmt.Sprintf("%s %g %g", name, t.seconds, cost.Flops)
	n := w.out.calls[key]
	if n == nil {
		n = &KernelCalls{Name: name, Seconds: t.seconds, Waits: t.waits, Flops: cost.Flops, Bundles: bundles}
		if t.seconds > 0 {
			n.Peak = cost.Flops / w.machine.peak / t.seconds
		}
		w.out.calls[key] = n
	}
	n.Count += int64(math.Round(b.times))
	return t.seconds
}

// byCode prices a kernel by its code; that has no bundles where it is not known.
func (w *walker) byCode(i *hlo.Instruction) (callTime, int) {
	g, ok := w.code[i]
	if !ok {
		return callTime{}, 0
	}
	e, ok, err := kernels.ExpectedOf(i.KernelCode())
	if err == nil && !ok {
		err = errors.New("its author does not say how often its code runs")
	}
	var t callTime
	if err == nil {
		t, err = w.machine.callTime(g, e)
	}
	if err != nil {
		w.out.unpriced[i.KernelName()+": "+err.Error()] = true
		return callTime{}, 0
	}
	return t, g.Bundles
}

// kernelCalls lists them, those that take longest together first.
func (t *timing) kernelCalls() []KernelCalls {
	var out []KernelCalls
	for _, key := range slices.Sorted(maps.Keys(t.calls)) {
		out = append(out, *t.calls[key])
	}
	slices.SortStableFunc(out, func(a, b KernelCalls) int {
		return cmp.Compare(float64(b.Count)*b.Seconds, float64(a.Count)*a.Seconds)
	})
	return out
}

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
	t := callTime{issue: float64(g.Outside) / m.pace(), waits: e.Ends / m.hbm}
	for _, s := range e.Steps {
		taken := make([]bool, len(g.Branches))
		for k, ran := range s.Ran {
			if k < len(branch) && branch[k] >= 0 && ran == '1' {
				taken[branch[k]] = true
			}
		}
		issue := float64(g.Cycles(taken)) / m.pace()
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
		return branches[b].Depth == ifs[c].Depth && branches[b].Dot == ifs[c].Dot
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
