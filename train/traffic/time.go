package traffic

import (
	"slices"

	"titan/mesh"
	"titan/parallel"
)

// Sent is how many bytes a device sends for a transfer among n devices, by algorithms
// that send least: a gather or scatter of B bytes (n-1)/n·B, a sum twice that, since
// it is scattered and gathered, an all-to-all all but what stays.
func (t Transfer) Sent(n int) float64 {
	share := float64(n-1) / float64(n)
	switch t.Kind {
	case allReduce:
		return 2 * share * float64(t.Bytes)
	case permute:
		return float64(t.Bytes)
	}
	return share * float64(t.Bytes)
}

// Seconds estimates how long a transfer takes on a mesh laid out on chips
// ([mesh.ForTopology]) if nothing else is sent: what a device sends, over the links
// of the directions of the torus along which its axes lie, both ways where they close
// to rings; over its share of the host's network where axes lie across slices. It is
// 0 for devices of one chip. A lower bound: latencies are not counted.
func (t Transfer) Seconds(m *mesh.Mesh, c mesh.Chip) (float64, error) {
	n, sides := 1, map[string]float64{}
	for _, a := range t.Axes {
		n *= m.AxisSize(a)
		r, err := m.Route(a)
		if err != nil {
			return 0, err
		}
		if r.Slices > 1 {
			return t.Sent(m.AxisSize(a)) / c.DCNBandwidth * float64(c.Devices), nil
		}
		for _, s := range r.Sides {
			links := 1.0
			if s.Ring {
				links = 2
			}
			sides[s.Name] = max(sides[s.Name], links)
		}
	}
	links := 0.0
	for _, l := range sides {
		links += l
	}
	if links == 0 {
		return 0, nil
	}
	if t.Kind == permute {
		links = 1 // to one neighbour
	}
	return t.Sent(n) / (links * c.ICILinkBandwidth()) * float64(c.Devices), nil
}

// Axis names the axis that a transfer is counted for: the innermost but for cp, tp
// and ep of those along which parameters are shared out, else the outermost.
func (t Transfer) Axis() string {
	if slices.Contains(t.Axes, parallel.AxisShard) {
		return parallel.AxisShard
	}
	return t.Axes[0]
}
