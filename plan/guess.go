package plan

import (
	"slices"
	"strings"

	"titan/graph"
	"titan/mesh"
	"titan/parallel"
)

// guess is what a step takes by the program's own counts, before it is compiled. It
// puts steps of one recipe in order; it is no prediction.
type guess struct {
	// seconds is the time of the step: computing, and what it waits for the links
	// between devices and to the host.
	seconds, waits float64
	// memory is what the device needs besides arguments, host what it keeps in its
	// host's memory, by the program's own count.
	memory, host int64
}

// unfused is the part of the memory traffic of operations other than contractions
// that is left when the compiler has fused them, open the part of communication that
// schedules leave open at least. Both are guesses, near what came out for the
// recipes in docs/results.
const unfused, open = 0.1, 0.2

// guess prices the operations of a step by rooflines, and its communication by the
// links. What FSDP and HSDP exchange goes on beside the computation, and so do
// rings; for what tp, ep and pp exchange devices wait.
func (s *traced) guess(mc machine) (guess, error) {
	c, f := s.step.Module.Cost(), s.step.Module.Footprint()
	var computes, beside, waits float64
	routes := map[string]mesh.Route{}
	for _, op := range c.Ops {
		flops, moved := op.Device.Flops/mc.peak, op.Device.Bytes/mc.hbm
		switch op.Class {
		case graph.CostContraction:
			computes += max(flops/matmulEfficiency, moved)
		case graph.CostCustomCall:
			efficiency := kernelOther
			if kernelPart(op.Kernel) == Attention {
				efficiency = kernelAttention
			}
			computes += max(flops/efficiency, moved)
		case graph.CostCollective:
		default:
			computes += unfused * moved
		}
		for _, x := range op.Collectives {
			if x.Count <= 0 || len(x.Axes) == 0 {
				continue
			}
			axes := strings.Join(x.Axes, ",")
			r, ok := routes[axes]
			if !ok {
				var err error
				if r, err = s.mesh.RouteOver(x.Axes...); err != nil {
					return guess{}, err
				}
				routes[axes] = r
			}
			t := x.Count * mc.seconds(collective{kind: strings.ReplaceAll(x.Kind, "_", "-"), bytes: x.Bytes / x.Count, route: r})
			if hides(x) {
				beside += t
			} else {
				waits += t
			}
		}
	}
	toHost := 2 * float64(f.Host) * float64(max(1, s.options.Passes)) / hostBandwidth
	waits += max(open*beside, beside-computes, toHost-computes)
	return guess{seconds: computes + waits, waits: waits, memory: f.InUse() - f.Arguments, host: f.Host}, nil
}

// hides tells whether a collective goes on beside the computation: those of FSDP, over
// whatever axes parameters are shared out, and rings. Of one over cp alone it cannot be
// told whether it gathers parameters or keys and values, for which devices wait.
func hides(c graph.CollectiveCost) bool {
	if slices.Contains(c.Axes, parallel.AxisTensor) || slices.Contains(c.Axes, parallel.AxisPipeline) || c.Kind == "all_to_all" {
		return false
	}
	return c.Kind == "collective_permute" || !slices.Equal(c.Axes, []string{parallel.AxisContext})
}
