package train

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/parallel"
	"titan/pjrt/hlo"
	"titan/sharding"
	"titan/train/traffic"
)

// checkPlacements holds what a compiled program says of its state against the plan:
// shapes on a device, and which devices hold which part. Copies are told from parts.
func checkPlacements(t *testing.T, o StepOptions, s *Step, mod *hlo.Module, exchanged []traffic.Transfer) {
	t.Helper()
	require.GreaterOrEqual(t, len(mod.ParameterShardings), len(s.Vars))
	for i, v := range s.Vars {
		checkPlacement(t, o.Mesh, v, mod.Parameters[i], mod.ParameterShardings[i])
	}
	var stored []string
	for _, a := range o.Mesh.Axes() {
		if a.Size > 1 && a.Name != parallel.AxisReplicate {
			stored = append(stored, a.Name)
		}
	}
	require.ElementsMatch(t, stored, s.Plan.Spec("layers.wq").Axes(), "split over all axes but that of copies")
	copies := slices.ContainsFunc(exchanged, func(x traffic.Transfer) bool {
		return x.Kind == "all-reduce" && slices.Equal(x.Axes, []string{parallel.AxisReplicate}) && x.Bytes >= s.Plan.Use("layers.wq").Stored*4
	})
	require.Equal(t, o.Mesh.AxisSize(parallel.AxisReplicate) > 1, copies, "gradients are summed over copies, after they are scattered")
}

// checkPlacement holds what a program says of a parameter against its variable.
func checkPlacement(t *testing.T, m *mesh.Mesh, v Var, local hlo.Shape, got hlo.Sharding) {
	t.Helper()
	shape := slices.Clone(v.Type.Shape)
	tiles := make([]int, len(shape))
	for d := range shape {
		tiles[d] = 1
		for _, a := range v.Spec.Dims[d] {
			tiles[d] *= m.AxisSize(a)
		}
		shape[d] /= tiles[d]
	}
	require.Equal(t, shape, append([]int{}, local.Dims...), "%s on a device", v.Name)
	for device := range m.Size() {
		want := wantTile(m, v.Spec, device)
		switch got.Kind {
		case hlo.Replicated:
			require.Equal(t, make([]int, len(shape)), want, "%s is whole on all devices, though it should be %v", v.Name, v.Spec)
		case hlo.Tiled:
			at := slices.Index(got.Devices, device)
			require.GreaterOrEqual(t, at, 0, "%s: device %d has none in %v", v.Name, device, got)
			require.Equal(t, want, tileOf(got, at)[:len(shape)], "%s: the part on device %d of %v, which should be %v", v.Name, device, got, v.Spec)
			require.Equal(t, tiles, got.Tiles[:len(shape)], "%s: %v", v.Name, got)
		default:
			require.Fail(t, "neither whole nor in parts", "%s: %v", v.Name, got)
		}
	}
}

// wantTile says which part of each dimension a device has.
func wantTile(m *mesh.Mesh, s sharding.Spec, device int) []int {
	coords, axes := m.Coords(device), m.Axes()
	at := make([]int, len(s.Dims))
	for d, names := range s.Dims {
		for _, name := range names {
			i := slices.IndexFunc(axes, func(a mesh.Axis) bool { return a.Name == name })
			at[d] = at[d]*axes[i].Size + coords[i]
		}
	}
	return at
}

// tileOf returns where the n-th device of a sharding is in its grid.
func tileOf(s hlo.Sharding, n int) []int {
	at := make([]int, len(s.Tiles))
	for d := len(s.Tiles) - 1; d >= 0; d-- {
		at[d] = n % s.Tiles[d]
		n /= s.Tiles[d]
	}
	return at
}
