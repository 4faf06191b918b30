package plan

import (
	"titan/mesh"
)

// link returns what a device gets of one link between chips in one direction, in
// bytes/s: devices of a chip share its links.
func (m machine) link() float64 {
	return m.chip.ICILinkBandwidth() * iciEfficiency / float64(max(1, m.chip.Devices))
}

// dcn returns a device's share of the network between slices in one direction, in
// bytes/s.
func (m machine) dcn() float64 {
	return m.chip.DCNBandwidth * dcnEfficiency / float64(max(1, m.chip.Devices))
}

// collective is a transfer between the devices of a group.
type collective struct {
	kind string // as pjrt/hlo names it
	// bytes is the larger of operand and result on one device.
	bytes float64
	route mesh.Route
}

// wire is what one device sends when the devices work in a ring.
func (c collective) wire() float64 {
	n := float64(max(1, c.route.Axis.Size))
	switch c.kind {
	case "all-reduce":
		return 2 * (n - 1) / n * c.bytes
	case "collective-permute", "collective-broadcast":
		return c.bytes
	}
	return (n - 1) / n * c.bytes
}

// seconds is how long a collective takes on links that nothing else uses. On a
// torus all-gathers, reduce-scatters and all-reduces use the links of all sides
// that the group spans at once, in both directions where a side is a ring. What an
// all-to-all may take is what has to pass the middle of a side: bytes times a
// quarter of the side's chips, over the links that cross it there.
func (m machine) seconds(c collective) float64 {
	n := c.route.Axis.Size
	if n <= 1 || c.bytes == 0 {
		return 0
	}
	slices := max(1, c.route.Slices)
	inner := max(1, n/slices)
	local := c
	local.route.Axis.Size, local.route.Slices = inner, 1
	t := startSeconds
	switch {
	case slices == 1:
		return t + m.inSlice(c)
	case c.kind == "collective-permute":
		return t + c.bytes/m.dcn()
	case c.kind == "all-to-all" || c.kind == "ragged-all-to-all":
		return t + max(m.inSlice(local), c.bytes*float64(slices-1)/float64(slices)/m.dcn())
	}
	// Inside the slices first (or last): only a part of the array crosses.
	across := c
	across.bytes, across.route.Axis.Size = c.bytes/float64(inner), slices
	return t + m.inSlice(local) + across.wire()/m.dcn()
}

func (m machine) inSlice(c collective) float64 {
	if c.route.Axis.Size <= 1 {
		return 0
	}
	link, r := m.link(), c.route
	if len(r.Sides) == 0 { // the devices of a chip
		return c.wire() / (coreLinks * link)
	}
	bandwidth, hops, slowest := 0.0, 0.0, 0.0
	for _, s := range r.Sides {
		// The groups of the devices in between share the links.
		w, far := link/float64(max(1, s.Apart)), float64(s.Chips-1)
		if s.Ring && s.Chips > 2 {
			w, far = 2*w, float64(s.Chips)/2
		}
		bandwidth, hops = bandwidth+w, hops+far
		slowest = max(slowest, c.bytes*float64(s.Chips)/4/w)
	}
	t := hops * hopSeconds
	switch c.kind {
	case "collective-permute":
		apart := float64(max(1, r.Links))
		return apart*hopSeconds + c.bytes*apart/link
	case "all-to-all", "ragged-all-to-all":
		return t + slowest
	}
	return t + c.wire()/bandwidth
}
