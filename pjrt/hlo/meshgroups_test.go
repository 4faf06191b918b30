package hlo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The bytes are those that XLA's CPU compiler wrote for collectives along axes of a
// mesh of 4 × 2 devices.
func TestMeshGroups(t *testing.T) {
	const mesh = "\n\x18\n\n\n\x06axis_0\x10\x04\n\n\n\x06axis_1\x10\x02"
	for _, c := range []struct {
		name, axes string
		want       [][]int
	}{
		{"axis_1", "\x12\x02\x08\x01", [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
		{"axis_0", "\x12\x00", [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}}},
		{"both", "\x12\x02\x08\x01\x12\x00", [][]int{{0, 2, 4, 6, 1, 3, 5, 7}}},
		{"none", "", [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
		{"outer half of axis_0", "\x12\x06\x08\x00\x12\x02\x10\x02", nil}, // no number of parts before it
		{"outer half of axis_0", "\x12\x06\x12\x04\x08\x01\x10\x02", [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{"inner half of axis_0", "\x12\x06\x12\x04\x08\x02\x10\x02", [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}}},
		{"an axis that there is not", "\x12\x02\x08\x02", nil},
		{"an axis twice", "\x12\x00\x12\x00", nil},
		{"a third", "\x12\x06\x12\x04\x08\x01\x10\x03", nil},
		{"another form", "\x18\x01", nil},
	} {
		groups, err := parseMeshGroups([]byte(mesh + c.axes))
		if c.want == nil {
			require.Error(t, err, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, groups, c.name)
	}
	groups, err := parseMeshGroups([]byte("\n\x08\n\x02\x10\x02\x10\x01\x10\x00" + "\x12\x00"))
	require.NoError(t, err)
	require.Equal(t, [][]int{{1, 0}}, groups, "a mesh that lists its devices")
}
