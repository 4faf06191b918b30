package llo

// Core says how long a chip's instructions take, in cycles, where others have to
// wait for them: bundles are issued in order, one a cycle, and one that needs a unit
// or a value that is not ready waits, and all behind it.
type Core struct {
	// Interval is how long a matrix unit takes for an instruction, Latency how long
	// its result takes.
	Interval, Latency int
}

// latencies of the other classes, the same on all chips known here.
var latencies = [numClass]int{other: 1, pops: 1, loadsScalar: 6, adds: 2, decides: 2}

// cycles is how long the bundles that spans cover take, begun with all units idle.
func (c *Code) cycles(core Core, spans ...span) int {
	ready := map[int]int{}
	free := map[int]int{}
	// Results of the matrix units: by address, or taken in the order in which they
	// were begun, several of each.
	type result struct{ unit, entry int }
	done, queue := map[result]int{}, map[int][]int{}
	popped, several := map[int]int{}, c.resultsOfEach(spans)
	now := -1
	for _, s := range spans {
		for _, b := range c.Bundles[s.from:s.to] {
			at := now + 1
			for _, o := range b.ops {
				for _, v := range o.sources {
					at = max(at, ready[v])
				}
				switch o.class {
				case multiplies:
					at = max(at, free[o.unit])
				case pops:
					if o.entry >= 0 {
						at = max(at, done[result{o.unit, o.entry}])
					} else if k := popped[o.unit] / several; k < len(queue[o.unit]) {
						at = max(at, queue[o.unit][k])
						popped[o.unit]++
					}
				}
			}
			for _, o := range b.ops {
				if o.class == multiplies {
					free[o.unit] = at + core.Interval
					if o.entry < 0 {
						queue[o.unit] = append(queue[o.unit], at+core.Latency)
					}
					for k := range entries {
						done[result{o.unit, o.entry + k}] = at + core.Latency
					}
				}
				if l := latencies[o.class]; l > 1 {
					ready[o.result] = at + l
				}
			}
			now = at
		}
	}
	return now + 1
}

// entries is how many results with addresses an instruction of a matrix unit has.
const entries = 4

// resultsOfEach is how many results a matrix unit has of one instruction.
func (c *Code) resultsOfEach(spans []span) int {
	begun, taken := 0, 0
	for _, s := range spans {
		for _, b := range c.Bundles[s.from:s.to] {
			for _, o := range b.ops {
				switch o.class {
				case multiplies:
					begun++
				case pops:
					taken++
				}
			}
		}
	}
	return max(1, (taken+begun-1)/max(1, begun))
}
