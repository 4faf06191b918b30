package plan

import (
	"math"
	"strings"

	"titan/pjrt/hlo"
)

// collective prices a collective and notes it.
func (w *walker) collective(c hlo.Collective, times float64) (float64, *Transfer) {
	axes, route := w.routes(c.Op)
	bytes := size(c.Op.Shape)
	if strings.HasSuffix(c.Op.Opcode, "-start") { // the result has the operands, too
		bytes = 0
		for _, e := range c.Op.Shape.Elements {
			bytes = max(bytes, size(e))
		}
	}
	operands := 0.0
	for _, o := range c.Op.Operands {
		operands += size(o.Shape)
	}
	t := collective{c.Kind(), max(bytes, operands), route}
	seconds := w.machine.seconds(t)
	if s, ok := c.Op.Strategy(); ok && w.mesh != nil {
		if by, ok := w.machine.byRings(t, s, w.mesh); ok {
			seconds = by
		}
	}
	kind := t.kind
	if kind == "all-reduce" && strings.HasSuffix(c.Op.Metadata.OpName, "/all_gather") {
		kind = "all-reduce, to gather" // of arrays that are zero elsewhere
	}
	key := kind + " " + strings.Join(axes, ",")
	n := w.out.transfers[key]
	if n == nil {
		n = &Transfer{Kind: kind, Axes: axes, Network: route.Network.String()}
		w.out.transfers[key] = n
		w.out.order = append(w.out.order, key)
	}
	n.Count += int64(math.Round(times))
	n.Bytes += t.bytes * times
	n.Wire += t.wire() * times
	n.Seconds += seconds * times
	return seconds, n
}

// asynchronous is a transfer inside the device or to its host, or work of the
// sparse cores.
func (w *walker) asynchronous(b *block, i *hlo.Instruction) {
	done := doneOf(i)
	l, bytes := laneMemory, moved(i)
	switch {
	case onHost(i.Shape):
		l = laneHost
		w.out.hostBytes += bytes * b.times
	case i.Opcode == "async-start" && !movesOnly(i):
		l = laneSparse
	}
	if l != laneHost {
		w.out.memory += bytes * b.times
	}
	rate := w.machine.hbm
	if l == laneHost {
		rate = hostBandwidth
	}
	at := b.begin(l, bytes/rate)
	if done == nil {
		done = i
	}
	b.open[done] = append(b.open[done], pending{at, l, nil})
}

// moved is what an asynchronous transfer carries: the part where it reads or writes
// one of a larger array, else the smaller of its two ends.
func moved(i *hlo.Instruction) float64 {
	n := 0.0
	for _, c := range i.Called {
		for _, in := range c.Instructions {
			switch {
			case in.Opcode == "dynamic-update-slice" && len(in.Operands) > 1:
				n += size(in.Operands[1].Shape)
			case in.Opcode == "dynamic-slice" || in.Opcode == "slice":
				n += size(in.Shape)
			}
		}
	}
	if n > 0 {
		return n
	}
	var ends []float64
	for _, e := range i.Shape.Elements {
		if s := size(e); s > 1024 { // besides semaphores
			ends = append(ends, s)
		}
	}
	for k, s := range ends {
		if k == 0 || s < n {
			n = s
		}
	}
	return n
}

func onHost(s hlo.Shape) bool {
	const host = 5
	found := false
	s.Leaves(func(a hlo.Shape) { found = found || a.MemorySpace == host })
	return found
}

// movesOnly reports whether what an async-start wraps only moves data.
func movesOnly(i *hlo.Instruction) bool {
	for _, c := range i.Called {
		for _, in := range c.Instructions {
			switch in.Opcode {
			case "parameter", "slice", "dynamic-slice", "dynamic-update-slice", "copy", "bitcast", "tuple", "get-tuple-element", "constant":
			default:
				return false
			}
		}
	}
	return true
}

// doneOf finds what waits for an asynchronous instruction.
func doneOf(start *hlo.Instruction) *hlo.Instruction {
	at := start
	for _, i := range start.Parent.Order() {
		if len(i.Operands) == 0 || i.Operands[0] != at {
			continue
		}
		switch {
		case strings.HasSuffix(i.Opcode, "-done"):
			return i
		case strings.HasSuffix(i.Opcode, "-update"):
			at = i
		}
	}
	return nil
}
