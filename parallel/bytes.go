package parallel

import "slices"

// KeptBytes returns the bytes that a device holds throughout a pass, in a pipeline
// throughout a step, of parameters that are gathered all at once, in the compute
// type; 0 if they are gathered where they are used (Options.Reshard).
func (p *Plan) KeptBytes() int64 {
	var sum int64
	for _, n := range p.names {
		x := p.params[n]
		if !p.keeps(x) {
			continue
		}
		k := int64(p.options.Compute.Size())
		for _, d := range x.Shape {
			k *= int64(d)
		}
		for _, a := range x.spec.Axes() {
			if !slices.Contains(x.shard, a) {
				k /= int64(p.size(a))
			}
		}
		sum += k
	}
	return sum
}
