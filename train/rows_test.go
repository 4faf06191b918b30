package train

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/graph"
	"titan/launch"
	"titan/mesh"
	"titan/sharding"
)

// The rows that a host reads give its devices what the whole batch gives them,
// however rows, passes and sequences are split, and whichever devices it has.
func TestRowsOfAHost(t *testing.T) {
	m, err := mesh.New([]mesh.Axis{{Name: "a", Size: 2}, {Name: "b", Size: 2}, {Name: "c", Size: 2}}, nil)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		shape []int
		spec  sharding.Spec
	}{
		{[]int{8, 6}, sharding.P("a", "c")},
		{[]int{8, 6}, sharding.P([]string{"a", "b"}, nil)},
		{[]int{8, 6}, sharding.P(nil, "b")},
		{[]int{3, 4, 8}, sharding.P(nil, []string{"a", "c"}, "b")},
		{[]int{3, 4, 8}, sharding.P(nil, "c", nil)},
	} {
		v := Var{"tokens", graph.T(dtype.S32, c.shape...), c.spec}
		l, err := sharding.NewLayout(m, c.spec, c.shape)
		require.NoError(t, err)
		whole := make([]byte, 4*sharding.Whole(c.shape).Elements())
		for i := range whole {
			whole[i] = byte(rng.Uint32())
		}
		want, err := l.Split(whole, 4, nil)
		require.NoError(t, err)
		S := 4 * c.shape[len(c.shape)-1]
		for _, positions := range [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}, {1, 3, 5, 7}, {6}, {0, 1, 2, 3, 4, 5, 6, 7}} {
			rows, err := rowsAt(m, v, positions)
			require.NoError(t, err)
			require.NotEmpty(t, rows)
			var data []byte
			for _, row := range rows {
				data = append(data, whole[row*S:(row+1)*S]...)
			}
			got, err := l.Read(positions, 4, rowReader(c.shape, rows, data, 4))
			require.NoError(t, err)
			for i, p := range positions {
				require.Equal(t, want[p], got[i], "%v of %v at %d", c.spec, c.shape, p)
			}
			if len(positions) == 1 { // no row too many
				require.Len(t, rows, sharding.Region{Size: l.Local()[:len(c.shape)-1]}.Elements())
				_, err = l.Read(positions, 4, rowReader(c.shape, rows[1:], data[S:], 4))
				require.ErrorContains(t, err, "of the batch is not read on this host")
			}
		}
	}
}

func TestAssignDevices(t *testing.T) {
	got, err := assign([]owned{{[]int{0, 1}, 4}, {[]int{100, 101}, 4}}, "tpu")
	require.NoError(t, err)
	require.Equal(t, map[int]int{0: 0, 1: 0, 100: 1, 101: 1}, got)
	for want, all := range map[string][]owned{
		"process 1 knows of 8 devices of tpu, process 0 of 4":                      {{[]int{0, 1}, 4}, {[]int{2, 3}, 8}},
		"processes 0 and 1 both drive device 0 of tpu":                             {{[]int{0, 1}, 2}, {[]int{0, 1}, 2}},
		"process 1 drives no device of tpu":                                        {{[]int{0, 1}, 2}, {nil, 2}},
		"2 processes drive 4 of the 8 devices of tpu: on the other hosts none was": {{[]int{0, 1}, 8}, {[]int{2, 3}, 8}},
	} {
		_, err := assign(all, "tpu")
		require.ErrorContains(t, err, want)
	}
}

// On the CPU what Cloud TPU says of hosts is about devices that are not used.
func TestIdentityOfAPlatform(t *testing.T) {
	t.Setenv(launch.EnvHostnames, "a,b")
	t.Setenv(launch.EnvWorker, "1")
	id, err := Identity(ctx, "cpu")
	require.NoError(t, err)
	require.Equal(t, launch.Single(), id)
	id, err = Identity(ctx, "tpu")
	require.NoError(t, err)
	require.Equal(t, 1, id.Process)
	t.Setenv(launch.EnvWorker, "2")
	_, err = Identity(ctx, "tpu")
	require.ErrorContains(t, err, launch.EnvWorker)
	_, err = Identity(ctx, "cpu")
	require.NoError(t, err)
	t.Setenv(launch.EnvProcesses, "2")
	t.Setenv(launch.EnvProcess, "0")
	t.Setenv(launch.EnvCoordinator, "a:1")
	_, err = Identity(ctx, "cpu")
	require.ErrorContains(t, err, "TITAN_NUM_PROCESSES is 2, but mesh.platform is cpu")
}

// Options that plugins refuse if they are not theirs.
func TestClientOptions(t *testing.T) {
	require.Equal(t, 3, clientOptions("cpu", 3, nil).Devices)
	require.Empty(t, clientOptions("cpu", 3, nil).Extra)
	tpu := clientOptions("tpu", 0, nil)
	require.Equal(t, "titan", tpu.Extra["ml_framework_name"])
	require.Equal(t, 32, tpu.Extra["max_inflight_computations"])
	require.NotEmpty(t, tpu.Extra["ml_framework_version"])
	require.Empty(t, clientOptions("cuda", 0, nil).Extra)
	require.Empty(t, clientOptions("/some/plugin.so", 0, nil).Extra)
}
