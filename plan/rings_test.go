package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/pjrt/hlo"
)

// through is a strategy of two rings, one for each direction, each through the lists of
// devices.
func through(devices int, rings ...[]int) hlo.Strategy {
	s := hlo.Strategy{Next: make([]int, devices), Previous: make([]int, devices)}
	for _, backward := range []bool{false, true} {
		s.Colors = append(s.Colors, []hlo.Ring{{Side: -1, Devices: len(rings[0]), Backward: backward}})
	}
	for _, r := range rings {
		for k, d := range r {
			next := r[(k+1)%len(r)]
			s.Next[d], s.Previous[next] = next, d
		}
	}
	return s
}

// rotated is a strategy of two colors for each side, one in each direction, that begin
// along different sides.
func rotated(sides []int, torus bool) hlo.Strategy {
	var s hlo.Strategy
	for k := range sides {
		for _, backward := range []bool{false, true} {
			var phases []hlo.Ring
			for _, side := range slices.Concat(sides[k:], sides[:k]) {
				phases = append(phases, hlo.Ring{Side: side, Torus: torus, Backward: backward})
			}
			s.Colors = append(s.Colors, phases)
		}
	}
	return s
}

func TestTimesByRings(t *testing.T) {
	const bytes = 1 << 30
	all := func(n int) mesh.Axis { return mesh.Axis{Name: "dp_shard", Size: n} }
	around := []int{0, 1, 3, 5, 7, 6, 4, 2} // both columns of v6e:2x4, next to next
	for _, c := range []struct {
		name, topology string
		axes           []mesh.Axis
		kind           string
		strategy       hlo.Strategy
		steps, load    float64 // of the array, over the busiest link
	}{
		{"one ring, both ways", "v6e:2x4", []mesh.Axis{all(8)}, "all-gather", through(8, around), 7, 7.0 / 8 / 2},
		{"all-reduce is twice", "v6e:2x4", []mesh.Axis{all(8)}, "all-reduce", through(8, around), 14, 7.0 / 8},
		{"a ring that steps over chips", "v6e:2x4", []mesh.Axis{all(8)}, "reduce-scatter", through(8, []int{0, 4, 1, 5, 2, 6, 3, 7}), 7, 4 * 7.0 / 8 / 2},
		// Cores 0 have a ring and cores 1 another, each with half of the array.
		{"a ring of each core", "tpu7x:2x2x1", []mesh.Axis{all(8)}, "all-gather", through(8, []int{0, 2, 6, 4}, []int{1, 3, 7, 5}), 3, 2 * 3.0 / 8 / 2},
		{"through both cores of a chip", "tpu7x:2x2x1", []mesh.Axis{all(8)}, "all-gather", through(8, []int{0, 1, 2, 3, 6, 7, 4, 5}), 7, 7.0 / 8 / 2},
		{"all sides of a torus", "v6e:16x16", []mesh.Axis{all(256)}, "all-gather", rotated([]int{0, 1}, true), 30, 255.0 / 256 / 4},
		{"and all-reduced", "v6e:16x16", []mesh.Axis{all(256)}, "all-reduce", rotated([]int{0, 1}, true), 60, 2 * 255.0 / 256 / 4},
		{"lines carry both ways at once", "v6e:4x4", []mesh.Axis{all(16)}, "all-gather", rotated([]int{0, 1}, false), 6, 15.0 / 16 / 2},
		// In each of the three phases the longest rings of the three that go on at the
		// same time have most to pass on.
		{"sides of different length", "tpu7x:4x4x8", []mesh.Axis{all(256)}, "reduce-scatter", rotated([]int{0, 1, 2}, true), 7 * 3, (7.0/128 + 7*4.0/128 + 7*16.0/128) / 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			mc, m := onTopology(t, c.topology, c.axes...)
			r, err := m.RouteOver("dp_shard")
			require.NoError(t, err)
			link := mc.chip.ICILinkBandwidth() * iciEfficiency
			got, ok := mc.byRings(collective{c.kind, bytes, r}, c.strategy, m)
			require.True(t, ok)
			require.InEpsilon(t, startSeconds+c.steps*hopSeconds+c.load*bytes/link, got, 1e-9)
		})
	}
}

// Where the compiler's note does not fit what is known, the model of links holds.
func TestRingsThatDoNotFit(t *testing.T) {
	mc, m := onTopology(t, "v6e:2x4", mesh.Axis{Name: "dp_shard", Size: 8})
	r, err := m.RouteOver("dp_shard")
	require.NoError(t, err)
	fits := through(8, []int{0, 1, 3, 5, 7, 6, 4, 2})
	for name, c := range map[string]struct {
		collective collective
		strategy   func(s hlo.Strategy) hlo.Strategy
	}{
		"kind":        {collective{"all-to-all", 1 << 30, r}, nil},
		"nothing":     {collective{"all-gather", 0, r}, nil},
		"slices":      {collective{"all-gather", 1 << 30, mesh.Route{Axis: r.Axis, Slices: 2}}, nil},
		"devices":     {collective{"all-gather", 1 << 30, r}, func(s hlo.Strategy) hlo.Strategy { s.Next = s.Next[:4]; return s }},
		"long ring":   {collective{"all-gather", 1 << 30, r}, func(s hlo.Strategy) hlo.Strategy { s.Colors[0][0].Devices = 9; return s }},
		"long phases": {collective{"all-gather", 1 << 30, r}, func(hlo.Strategy) hlo.Strategy { return hlo.Strategy{Colors: [][]hlo.Ring{{{Side: 1, Devices: 8}}}} }},
	} {
		s := through(8, []int{0, 1, 3, 5, 7, 6, 4, 2})
		if c.strategy != nil {
			s = c.strategy(s)
		}
		_, ok := mc.byRings(c.collective, s, m)
		require.False(t, ok, name)
	}
	_, ok := mc.byRings(collective{"all-gather", 1 << 30, r}, fits, m)
	require.True(t, ok)
}
