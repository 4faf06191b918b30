package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/pjrt/hlo"
)

func onTopology(t *testing.T, topology string, axes ...mesh.Axis) (machine, *mesh.Mesh) {
	t.Helper()
	top, err := mesh.ParseTopology(topology)
	require.NoError(t, err)
	m, err := mesh.ForTopology(axes, top.DeviceInfos(), "dp_replicate")
	require.NoError(t, err)
	mc, err := newMachine(top.Kind)
	require.NoError(t, err)
	return mc, m
}

// The clocks that follow from peak rate and matrix units are the known ones.
func TestClocks(t *testing.T) {
	for kind, ghz := range map[string]float64{"v4": 1.05, "v5e": 1.5, "v5p": 1.75, "v6e": 1.75, "tpu7x": 2.2} {
		m, err := newMachine(kind)
		require.NoError(t, err)
		require.InEpsilon(t, ghz*1e9, m.clock, 0.003, kind)
	}
	_, err := newMachine("v9")
	require.ErrorContains(t, err, `unknown TPU kind "v9"`)
}

func TestCollectiveTimes(t *testing.T) {
	const bytes = 1 << 30
	sum := func(x ...float64) (s float64) {
		for _, v := range x {
			s += v
		}
		return s
	}
	ring16 := func(link float64) float64 { return 15.0 / 16 * bytes / (2 * link) }
	for _, c := range []struct {
		name, topology string
		axes           []mesh.Axis
		over           []string
		kind           string
		want           func(m machine) float64
	}{
		{"ring of 16", "v6e:16x16", []mesh.Axis{{Name: "dp_shard", Size: 16}, {Name: "tp", Size: 16}}, []string{"tp"}, "all-gather",
			func(m machine) float64 { return sum(startSeconds, 8*hopSeconds, ring16(m.link())) }},
		{"all-reduce is twice", "v6e:16x16", []mesh.Axis{{Name: "dp_shard", Size: 16}, {Name: "tp", Size: 16}}, []string{"tp"}, "all-reduce",
			func(m machine) float64 { return sum(startSeconds, 8*hopSeconds, 2*ring16(m.link())) }},
		{"both rings", "v6e:16x16", []mesh.Axis{{Name: "dp_shard", Size: 256}}, []string{"dp_shard"}, "reduce-scatter",
			func(m machine) float64 { return sum(startSeconds, 16*hopSeconds, 255.0/256*bytes/(4*m.link())) }},
		{"lines, not rings", "v5e:4x4", []mesh.Axis{{Name: "dp_shard", Size: 16}}, []string{"dp_shard"}, "all-gather",
			func(m machine) float64 { return sum(startSeconds, 6*hopSeconds, 15.0/16*bytes/(2*m.link())) }},
		{"all-to-all passes the middle", "v6e:16x16", []mesh.Axis{{Name: "dp_shard", Size: 16}, {Name: "tp", Size: 16}}, []string{"tp"}, "all-to-all",
			func(m machine) float64 { return sum(startSeconds, 8*hopSeconds, bytes*16.0/4/(2*m.link())) }},
		{"to the neighbour", "v6e:16x16", []mesh.Axis{{Name: "dp_shard", Size: 16}, {Name: "tp", Size: 16}}, []string{"tp"}, "collective-permute",
			func(m machine) float64 { return sum(startSeconds, hopSeconds, bytes/m.link()) }},
		{"on a chip", "tpu7x:4x4x4", []mesh.Axis{{Name: "dp_shard", Size: 64}, {Name: "tp", Size: 2}}, []string{"tp"}, "all-gather",
			func(m machine) float64 { return sum(startSeconds, 0.5*bytes/(coreLinks*m.link())) }},
		{"across slices", "v5e:4x4*2", []mesh.Axis{{Name: "dp_replicate", Size: 2}, {Name: "dp_shard", Size: 16}}, []string{"dp_replicate"}, "all-reduce",
			func(m machine) float64 { return sum(startSeconds, bytes/m.dcn()) }},
		{"inside slices first", "v5e:4x4*2", []mesh.Axis{{Name: "dp_replicate", Size: 2}, {Name: "dp_shard", Size: 16}}, []string{"dp_replicate", "dp_shard"}, "all-reduce",
			func(m machine) float64 {
				return sum(startSeconds, 6*hopSeconds, 2*15.0/16*bytes/(2*m.link()), bytes/16.0/m.dcn())
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mc, m := onTopology(t, c.topology, c.axes...)
			r, err := m.RouteOver(c.over...)
			require.NoError(t, err)
			require.InEpsilon(t, c.want(mc), mc.seconds(collective{c.kind, bytes, r}), 1e-9, "%+v", r)
			r.Axis.Size = 1
			require.Zero(t, mc.seconds(collective{c.kind, bytes, r}), "alone")
		})
	}
}

// Groups of which other groups lie between the members share links.
func TestSharedLinks(t *testing.T) {
	mc, m := onTopology(t, "v6e:16x16", mesh.Axis{Name: "dp_shard", Size: 32}, mesh.Axis{Name: "tp", Size: 8})
	near, err := m.RouteOver("tp")
	require.NoError(t, err)
	far, err := m.RouteOver("dp_shard")
	require.NoError(t, err)
	apart := 1
	for _, s := range far.Sides {
		apart = max(apart, s.Apart)
	}
	require.Greater(t, apart, 1, "%+v", far)
	c := collective{"all-gather", 1 << 30, near}
	alone := mc.seconds(c)
	for i := range c.route.Sides {
		c.route.Sides[i].Apart = 2
	}
	require.InEpsilon(t, 2*alone, mc.seconds(c), 0.01)
}

func TestAxesOfGroups(t *testing.T) {
	_, m := onTopology(t, "v5e:4x4", mesh.Axis{Name: "dp_shard", Size: 4}, mesh.Axis{Name: "tp", Size: 4})
	g := newGroups(m)
	for name, c := range map[string]struct {
		op   hlo.Instruction
		axes []string
		n    int
	}{
		"rows":    {hlo.Instruction{ReplicaGroups: [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}}, []string{"tp"}, 4},
		"columns": {hlo.Instruction{ReplicaGroups: [][]int{{1, 5, 9, 13}}}, []string{"dp_shard"}, 4},
		"part":    {hlo.Instruction{ReplicaGroups: [][]int{{0, 4}}}, []string{"dp_shard"}, 2},
		"all":     {hlo.Instruction{}, []string{"dp_shard", "tp"}, 16},
		"pairs":   {hlo.Instruction{SourceTargetPairs: [][2]int{{0, 0}, {0, 1}}}, []string{"tp"}, 2},
		"alone":   {hlo.Instruction{ReplicaGroups: [][]int{{3}}}, nil, 1},
		"unknown": {hlo.Instruction{ReplicaGroups: [][]int{{0, 99}}}, nil, 2},
	} {
		axes, r := g.of(&c.op)
		require.Equal(t, c.axes, axes, name)
		require.Equal(t, c.n, r.Axis.Size, name)
	}
}
