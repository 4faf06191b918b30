package mesh

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTopology(t *testing.T) {
	for _, c := range []struct {
		in                               string
		chips, devices, perHost, hosts   int
		slices, perSlice, devicesPerChip int
	}{
		{"v5e:1x1", 1, 1, 1, 1, 1, 1, 1},
		{"v5e:2x4", 8, 8, 4, 2, 1, 8, 1},
		{"v5e:4x4*2", 32, 32, 4, 8, 2, 16, 1},
		{"v6e:16x16*4", 1024, 1024, 4, 256, 4, 256, 1},
		{"v4:4x4x8", 128, 128, 4, 32, 1, 128, 1},
		{"v5p:16x16x24", 6144, 6144, 4, 1536, 1, 6144, 1},
		{"v5p:2x4x4", 32, 32, 4, 8, 1, 32, 1},
		{"tpu7x:1x1x1", 1, 2, 1, 1, 1, 2, 2},
		{"tpu7x:2x2x1", 4, 8, 4, 1, 1, 8, 2},
		{"tpu7x:8x8x16", 1024, 2048, 4, 256, 1, 2048, 2},
		{"tpu7x:16x24x24", 9216, 18432, 4, 2304, 1, 18432, 2},
		{"tpu7x:8x16x16*4", 8192, 16384, 4, 2048, 4, 4096, 2},
		{"tpu7x:4x4x148", 2368, 4736, 4, 592, 1, 4736, 2},
	} {
		top, err := ParseTopology(c.in)
		require.NoError(t, err, c.in)
		require.Equal(t, c.in, top.String())
		require.Equal(t, c.chips, top.Chips(), c.in)
		require.Equal(t, c.devices, top.Devices(), c.in)
		require.Equal(t, c.perHost, top.ChipsPerHost(), c.in)
		require.Equal(t, c.hosts, top.Hosts(), c.in)
		require.Equal(t, c.slices, top.Slices, c.in)
		require.Equal(t, c.perSlice, top.DevicesPerSlice(), c.in)
		require.Equal(t, c.devicesPerChip, top.DevicesPerChip(), c.in)
		again, err := ParseTopology(top.String())
		require.NoError(t, err)
		require.True(t, top.Equal(again))
	}
	top, err := ParseTopology("v5e:4x4*1")
	require.NoError(t, err)
	require.Equal(t, "v5e:4x4", top.String())
	require.Equal(t, "tpu7x:8x8x16", Topology{"tpu7x", []int{8, 8, 16}, 3}.SliceName())
}

func TestParseTopologyRefuses(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"", []string{"no colon", "kind:AxB"}},
		{"v5e", []string{"no colon"}},
		{"v5e-256", []string{"no colon"}},
		{"v5e:", []string{`"" is not a number of chips`}},
		{"v5e:4x", []string{`"" is not a number`}},
		{"v5e:4xfour", []string{`"four"`}},
		{"v5e:0x4", []string{`"0"`}},
		{"v5e:4x4*", []string{`"" is not a number of slices`}},
		{"v5e:4x4*0", []string{`"0" is not a number of slices`}},
		{"v5e:4x4*2*2", []string{`"2*2"`}},
		{"v5e:16x16*99999999", []string{"more than 2147483647 devices"}},
		{"v7x:4x4x4", []string{`"v7x"`, `"tpu7x"`}},
		{"v5litepod:4x4", []string{`"v5litepod"`, `"v5e"`}},
		{"Trillium:4x4", []string{`"v6e"`}},
		{"v5x:4x4", []string{`"v5x"`, "did you mean", "v4, v5e, v5p, v6e, tpu7x"}},
		{"TPU v5 lite:4x4", []string{`write "v5e"`}},
		{"gpu:8x8", []string{`"gpu"`, `"v4", "v5e", "v5p", "v6e", "tpu7x"`}},
		{"v5e:4x2", []string{"v5e:4x2", "nearest valid shape is v5e:2x4"}},
		{"v5e:32x32", []string{"1024 chips", "largest v5e slice has 256", "nearest valid shape is v5e:16x16", "4 slices of it (v5e:16x16*4)"}},
		{"v5e:4x4x4", []string{"3 dimensions", "has 2", "nearest valid shape is v5e:8x8"}},
		{"v6e:3x4", []string{"nearest valid shape is v6e:4x4"}},
		{"v5p:4x4", []string{"2 dimensions", "has 3", "nearest valid shape is v5p:2x2x4"}},
		{"v5p:8x4x4", []string{"ascending", "nearest valid shape is v5p:4x4x8"}},
		{"v5p:4x4x6", []string{"multiple of 4", "nearest valid shape is v5p:4x4x8"}},
		{"v5p:16x20x28", []string{"8960 chips", "largest v5p slice has 6144", "nearest valid shape is v5p:16x16x24"}},
		{"v4:16x16x20", []string{"5120 chips", "4096", "nearest valid shape is v4:16x16x16"}},
		{"tpu7x:24x24x24", []string{"13824 chips", "9216", "nearest valid shape is tpu7x:16x24x24"}},
		{"v5p:1x1x1", []string{"nearest valid shape is v5p:2x2x1"}},
		{"v5p:4611686018427387904x4611686018427387904x4611686018427387904", []string{"largest v5p slice has 6144"}},
	} {
		_, err := ParseTopology(c.in)
		require.Error(t, err, c.in)
		for _, w := range c.want {
			require.ErrorContains(t, err, w, c.in)
		}
	}
	_, err := ParseTopology("v5e:99999999999x2")
	require.ErrorContains(t, err, "nearest valid shape is v5e:16x16")
	require.NotContains(t, err.Error(), "slices of it", "so many are refused as well")
}

func TestTopologyValidate(t *testing.T) {
	require.ErrorContains(t, Topology{"v5e", []int{4, 4}, 0}.Validate(), "0 slices")
	require.ErrorContains(t, Topology{"v5e", []int{4, -4}, 1}.Validate(), "side of -4 chips")
	require.ErrorContains(t, Topology{"v5e", nil, 1}.Validate(), "0 dimensions")
	require.Error(t, Topology{}.Validate())
	require.Zero(t, Topology{Kind: "none", Shape: []int{2}, Slices: 1}.Devices())
	require.Zero(t, Topology{Kind: "none", Shape: []int{2}, Slices: 1}.Hosts())
}

// The nearest shape of every valid shape is itself, and every shape offered is
// valid.
func TestNearestShapeIsValid(t *testing.T) {
	for _, c := range Chips() {
		for a := range 20 {
			for b := range 20 {
				shapes := [][]int{{a, b}, {a, b, 2}, {a, b, 13}, {a}}
				for _, s := range shapes {
					near := nearestShape(c, s)
					require.True(t, validShape(c, near), "%s %v → %v", c.Kind, s, near)
					if validShape(c, s) {
						require.Equal(t, s, near, c.Kind)
					}
				}
			}
		}
	}
}

func TestChips(t *testing.T) {
	all := Chips()
	require.Len(t, all, 5)
	for _, c := range all {
		for _, name := range append(c.DeviceKinds, c.Kind) {
			got, err := ChipOf(name)
			require.NoError(t, err)
			require.Equal(t, c, got)
		}
		require.Contains(t, []int{1, 2}, c.Cores)
		require.LessOrEqual(t, c.Devices, c.Cores)
		require.Greater(t, c.HBMBytes, c.VMEMBytes*int64(c.Cores))
		require.Greater(t, c.HostBytes, c.HBMBytes, "hosts have more")
		require.Equal(t, 2*c.Dims, c.ICILinks())
		require.Greater(t, c.ICILinkBandwidth(), c.DCNBandwidth)
		require.Greater(t, c.DCNBandwidth, 3e9)
	}
	all[0].DeviceKinds[0] = "changed"
	require.Equal(t, "TPU v4", Chips()[0].DeviceKinds[0])

	// The published per-device figures that other packages build on.
	c, err := ChipOf("TPU7x")
	require.NoError(t, err)
	require.Equal(t, 1153.5e12, c.PeakBF16PerDevice())
	require.Equal(t, int64(96<<30), c.HBMPerDevice())
	require.Equal(t, 3690e9, c.HBMBandwidthPerDevice())
	require.Equal(t, 100e9, c.ICILinkBandwidth())
	c, err = ChipOf("TPU v5 lite")
	require.NoError(t, err)
	require.Equal(t, 197e12, c.PeakBF16PerDevice())
	require.Equal(t, 50e9, c.ICILinkBandwidth())
	c, err = ChipOf("v4")
	require.NoError(t, err)
	require.Equal(t, 45e9, c.ICILinkBandwidth())

	for _, unknown := range []string{"", "cpu", "NVIDIA H100", "TPU v9"} {
		_, err := ChipOf(unknown)
		require.ErrorContains(t, err, "tpu7x", unknown)
	}
}

func TestCheckAxes(t *testing.T) {
	top, err := ParseTopology("tpu7x:4x4x4*2") // 256 devices
	require.NoError(t, err)
	require.NoError(t, top.CheckAxes([]Axis{{"dp_replicate", 2}, {"dp_shard", 64}, {"tp", 2}}))
	require.NoError(t, top.CheckAxes([]Axis{{"pp", 1}, {"dp_replicate", 2}, {"tp", 128}}))
	err = top.CheckAxes([]Axis{{"dp_shard", 128}})
	require.ErrorContains(t, err, "dp_shard=128 is 128 devices")
	require.ErrorContains(t, err, "256 (128 chips of 2 devices)")
	require.NoError(t, top.CheckAxes([]Axis{{"dp_shard", 256}}))
	require.NoError(t, top.CheckAxes([]Axis{{"pp", 4}, {"dp_shard", 64}}, "pp", "dp_replicate"))
	err = top.CheckAxes([]Axis{{"dp_shard", 256}}, "pp", "dp_replicate")
	require.EqualError(t, err, "mesh: 2 slices share only the data-centre network, and only pp and dp_replicate may lie across slices: there is none of them")
	err = top.CheckAxes([]Axis{{"pp", 1}, {"dp_shard", 256}}, "pp", "dp_replicate")
	require.ErrorContains(t, err, "pp=1 is no multiple of 2")
	require.Error(t, top.CheckAxes(nil))
	require.Error(t, Topology{}.CheckAxes([]Axis{{"tp", 2}}))
}

// Every shape is one that can be had, the largest is the largest, and they come by
// size.
func TestShapes(t *testing.T) {
	for _, c := range Chips() {
		shapes := c.Shapes()
		for i, s := range shapes {
			require.NoError(t, Topology{Kind: c.Kind, Shape: s, Slices: 1}.Validate())
			if i > 0 {
				require.GreaterOrEqual(t, product(s), product(shapes[i-1]))
				require.NotEqual(t, s, shapes[i-1])
			}
		}
		require.Equal(t, c.MaxChips, product(shapes[len(shapes)-1]), c.Kind)
	}
}
