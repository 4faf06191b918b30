package plan

import (
	"fmt"

	"titan/mesh"
	"titan/pjrt/llo"
)

// The constants of the model of time. They are the same for all recipes and all
// chips; docs/plan.md says how each was found.
const (
	// iciEfficiency is what collectives reach of the advertised bandwidth of links:
	// 0.9, the rate that "How to Scale Your Model" (jax-ml.github.io/scaling-book,
	// part 2) counts with, times 0.85, fitted on one published step (Llama 3.1 70B on
	// 64 chips of v7x).
	iciEfficiency = 0.9 * 0.85
	// dcnEfficiency is the same for the network between slices; a guess.
	dcnEfficiency = 0.8
	// hopSeconds is what a message takes from chip to chip, about a microsecond by
	// the scaling book, part 3.
	hopSeconds = 1e-6
	// startSeconds is what starting a collective and waiting for the others takes; a
	// guess.
	startSeconds = 5e-6
	// coreLinks is how many links between chips the connection of the two devices of
	// a chip is worth; a guess, no figure is published.
	coreLinks = 8
	// hostBandwidth is what a device moves to or from its host's memory in bytes/s: a
	// PCIe 4.0 x16 slot of a chip, which is what hosts of v5p and later have.
	hostBandwidth = 32e9

	// kernelAttention and kernelOther are what tile kernels reach of the peak matrix
	// rate, for attention fitted on one published step (as iciEfficiency).
	kernelAttention, kernelOther = 0.37, 0.75

	// paceReached is how many of the compiler's cycles a chip gets done in a cycle of
	// its own: it waits for memory, for its host and for other chips where the compiler
	// reckons with none of that. Fitted on the published steps of docs/results/accuracy.md,
	// so that the logarithms of their errors add up to nothing.
	paceReached = 0.93

	// matmulEfficiency and memoryEfficiency are what contractions reach of the peak
	// matrix rate and other operations of the memory's bandwidth, where the compiler's
	// own cycles are not used. The first is the mean of what the compiler estimates
	// for large contractions, at the pace reached; the second is fitted (as
	// iciEfficiency).
	matmulEfficiency, memoryEfficiency = 0.91 * paceReached, 0.5
)

// cores are how long an instruction of a matrix unit and its result take on each
// chip, in cycles, as the compiler's own simulation of its code has it (libtpu
// 0.0.52, flag xla_jf_dump_static_llo_profile_to); v4 as v5p.
var cores = map[string]llo.Core{
	"v4": {Interval: 16, Latency: 100}, "v5e": {Interval: 16, Latency: 100}, "v5p": {Interval: 16, Latency: 100},
	"v6e": {Interval: 8, Latency: 187}, "tpu7x": {Interval: 8, Latency: 200},
}

// matrixFlops are the operations of a device's matrix units in a cycle: of each
// 128×128 unit (v6e and later 256×256) two for each cell.
var matrixFlops = map[string]float64{
	"v4": 2 * 4 * 2 * 128 * 128, "v5e": 4 * 2 * 128 * 128, "v5p": 2 * 4 * 2 * 128 * 128,
	"v6e": 4 * 2 * 256 * 256, "tpu7x": 4 * 2 * 256 * 256,
}

// machine is what the model of time knows of a device.
type machine struct {
	chip  mesh.Chip
	clock float64 // cycles/s
	peak  float64 // bf16 FLOP/s of a device
	hbm   float64 // bytes/s of a device
}

func newMachine(kind string) (machine, error) {
	c, err := mesh.ChipOf(kind)
	if err != nil {
		return machine{}, err
	}
	flops, ok := matrixFlops[c.Kind]
	if !ok {
		return machine{}, fmt.Errorf("plan: the matrix units of %s are not known", c.Kind)
	}
	return machine{chip: c, clock: c.PeakBF16PerDevice() / flops, peak: c.PeakBF16PerDevice(), hbm: c.HBMBandwidthPerDevice()}, nil
}

// pace is how many of the compiler's cycles are done in a second.
func (m machine) pace() float64 { return m.clock * paceReached }
