package plan

import (
	"titan/pjrt/hlo"
)

// free are custom calls that take no time.
var free = map[string]bool{
	"AllocateBuffer": true, "Sharding": true, "ConcatBitcast": true, "SliceBitcast": true, "AssumeGatherIndicesInBound": true,
	"Pin": true, "Unpin": true, "MoveToHost": true, "MoveToDevice": true, "AsyncCollectiveStart": true, "AsyncCollectiveDone": true,
}

// maxCycles is more than any real instruction takes: the compiler writes the
// largest integer where it does not know.
const maxCycles = 1 << 60

// time prices an instruction.
func (w *walker) time(i *hlo.Instruction, b *block) float64 {
	m := w.machine
	if i.CustomCallTarget == hlo.TileKernel {
		return w.kernel(b, i)
	}
	if free[i.CustomCallTarget] {
		return 0
	}
	fl, bytes := flops(i, 0), w.traffic.bytes(i)
	w.out.flops[partOf(i)] += fl * b.times
	w.out.memory += bytes * b.times
	if n, ok := i.EstimatedCycles(); ok && n >= 0 && n < maxCycles {
		w.out.cycles += float64(n) * b.times
		if w.basis == Cycles {
			return float64(n) / m.pace()
		}
	}
	if i.FusionKind == "kCustom" && len(w.ends[i]) > 0 {
		return 0 // waits only
	}
	d := bytes / m.hbm / memoryEfficiency
	if fl > 0 {
		d = max(fl/m.peak/matmulEfficiency, bytes/m.hbm)
	}
	w.out.estimated += d * b.times
	return d
}
