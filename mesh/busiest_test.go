package mesh

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBusiest(t *testing.T) {
	busiest := func(topology string, messages ...[2]int) int {
		t.Helper()
		top, err := ParseTopology(topology)
		require.NoError(t, err)
		m, err := ForTopology([]Axis{{Name: "d", Size: top.Devices()}}, top.DeviceInfos())
		require.NoError(t, err)
		n, err := m.Busiest(messages)
		require.NoError(t, err)
		return n
	}
	ring := [][2]int{{0, 1}, {1, 3}, {3, 5}, {5, 7}, {7, 6}, {6, 4}, {4, 2}, {2, 0}}
	back := [][2]int{}
	for _, r := range ring {
		back = append(back, [2]int{r[1], r[0]})
	}
	require.Equal(t, 1, busiest("v6e:2x4", ring...))
	require.Equal(t, 1, busiest("v6e:2x4", append(ring, back...)...), "each direction of a link for itself")
	require.Equal(t, 2, busiest("v6e:2x4", append(ring, ring...)...))
	require.Equal(t, 2, busiest("v6e:2x4", [2]int{0, 4}, [2]int{2, 6}), "both pass from chip 2 to 4")
	require.Equal(t, 0, busiest("v6e:2x4"))

	// Cores of a chip need no link; on a ring of 4 the shorter way is over its end.
	require.Equal(t, 0, busiest("tpu7x:4x4x4", [2]int{0, 1}))
	require.Equal(t, 2, busiest("tpu7x:4x4x4", [2]int{0, 6}, [2]int{1, 7}))
	require.Equal(t, 1, busiest("tpu7x:4x4x4", [2]int{0, 6}, [2]int{2, 4}, [2]int{6, 4}))
	require.Equal(t, 2, busiest("tpu7x:2x2x1", [2]int{0, 6}, [2]int{1, 2}), "x before y")
}

func TestBusiestNeedsPlaces(t *testing.T) {
	top, err := ParseTopology("tpu7x:2x2x1*2")
	require.NoError(t, err)
	m, err := ForTopology([]Axis{{Name: "d", Size: top.Devices()}}, top.DeviceInfos(), "d")
	require.NoError(t, err)
	n, err := m.Busiest([][2]int{{100000, 100006}, {100001, 100002}, {200000, 200002}})
	require.NoError(t, err)
	require.Equal(t, 2, n, "slices have their own links")
	_, err = m.Busiest([][2]int{{100000, 200000}})
	require.ErrorContains(t, err, "in another slice")
	m, err = New([]Axis{{Name: "d", Size: 4}}, nil)
	require.NoError(t, err)
	_, err = m.Busiest(nil)
	require.ErrorContains(t, err, "where the devices sit")
	top.Slices = 1
	m, err = ForTopology([]Axis{{Name: "d", Size: top.Devices()}}, top.DeviceInfos())
	require.NoError(t, err)
	_, err = m.Busiest([][2]int{{0, 99}})
	require.ErrorContains(t, err, "from device 0 to 99")
}
