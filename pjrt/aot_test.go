package pjrt_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
	"titan/pjrt"
)

// quick compiles with the least effort.
func quick(o pjrt.CompileOptions) pjrt.CompileOptions {
	o.OptLevel, o.MemoryFittingLevel = pjrt.LevelO0, pjrt.LevelO0
	return o
}

func topology(t *testing.T, name string, opts map[string]any) *pjrt.Topology {
	t.Helper()
	topo, err := xlatest.TPU(t).NewTopology(name, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, topo.Close()) })
	return topo
}

// TestTPU compiles sharded programs for TPUs that are not there, in the process
// that also runs the CPU plugin.
func TestTPU(t *testing.T) {
	c := xlatest.CPU(t)
	for name, devices := range map[string]int{"v5e:2x4": 8, "tpu7x:2x2x1": 8} {
		t.Run(name, func(t *testing.T) {
			topo := topology(t, name, nil)
			require.Equal(t, name, topo.Name())
			require.Equal(t, "tpu", topo.Platform())
			require.Len(t, topo.Devices(), devices)
			attrs, err := topo.Devices()[1].Attributes()
			require.NoError(t, err)
			require.Contains(t, attrs, "coords")
			require.Greater(t, attrs["device_memory_bytes_limit"], int64(8<<30))
			require.Contains(t, topo.Devices()[0].Kind, "TPU")

			x, err := topo.Compile([]byte(testdata(t, "loop")), quick(sharded8))
			require.NoError(t, err)
			defer func() { require.NoError(t, x.Close()) }()
			require.ErrorContains(t, topo.Close(), "still has 1 executable")
			m, err := x.MemoryStats()
			require.NoError(t, err)
			const w, h = 6 * 16 * 64 * 4, 8 * 64 * 4
			require.GreaterOrEqual(t, m.Args, int64(w+2*h))
			require.GreaterOrEqual(t, m.Alias, int64(w))
			require.Positive(t, m.Temp+m.Code)
			params, err := x.Parameters()
			require.NoError(t, err)
			require.Equal(t, "f32[6 16 64]", params[0].String())
			require.True(t, params[0].Donated)
			module, err := x.OptimizedHLO()
			require.NoError(t, err)
			require.True(t, module.Scheduled)
			require.Equal(t, 8, module.Partitions)
			count := map[string]int64{}
			for _, col := range module.Collectives() {
				count[col.Kind()] += col.Times
			}
			require.Equal(t, map[string]int64{"all-gather": 6, "collective-permute": 6}, count)
			blob, err := x.Serialize()
			require.NoError(t, err)
			require.NotEmpty(t, blob)
			print1, err := x.Fingerprint()
			require.NoError(t, err)
			require.NotEmpty(t, print1)
		})
	}
	b := put(t, c, 0, []float32{1})
	require.Equal(t, []float32{1}, floats(t, b), "the CPU plugin still works")
	require.NoError(t, b.Close())
}

// TestTPUSlices: with several slices device ids are not consecutive, and the
// default assignment takes them as they are.
func TestTPUSlices(t *testing.T) {
	topo := topology(t, "v5e:2x2", map[string]any{"num_slices": 2})
	require.Len(t, topo.Devices(), 8)
	require.Greater(t, topo.Devices()[4].ID, 8)
	x, err := topo.Compile([]byte(testdata(t, "manual")), quick(sharded8))
	require.NoError(t, err)
	require.NoError(t, x.Close())
	o := quick(sharded8)
	o.DeviceIDs = []int{0, 1, 2, 3, 4, 5, 6, 7}
	_, err = topo.Compile([]byte(testdata(t, "manual")), o)
	require.ErrorContains(t, err, "is not one of the 8 devices of topology v5e:2x2")
}

func TestTPURefuses(t *testing.T) {
	topo := topology(t, "v5e:2x4", nil)
	_, err := topo.Compile([]byte("junk"), quick(pjrt.CompileOptions{}))
	var e *pjrt.Error
	require.True(t, errors.As(err, &e), "%v", err)
	_, err = topo.Compile([]byte(addModule), quick(pjrt.CompileOptions{Partitions: 16}))
	require.ErrorContains(t, err, "need 16 devices, topology v5e:2x4 has 8")
	_, err = xlatest.TPU(t).NewTopology("v99:1x1", nil)
	require.ErrorContains(t, err, `topology "v99:1x1"`)
	_, err = xlatest.TPU(t).NewTopology("v5e:2x4", map[string]any{"x": t})
	require.ErrorContains(t, err, "unsupported type")
}

// TestTPUOutOfMemory decodes what does not fit.
func TestTPUOutOfMemory(t *testing.T) {
	topo := topology(t, "v5e:2x4", nil)
	_, err := topo.Compile([]byte(`module @big { func.func public @main(%a: tensor<65536x65536xf32>, %b: tensor<65536x65536xf32>) -> tensor<f32> {
 %c = stablehlo.constant dense<0.0> : tensor<f32>
 %s = stablehlo.add %a, %b : tensor<65536x65536xf32>
 %r = stablehlo.reduce(%s init: %c) applies stablehlo.add across dimensions = [0, 1] : (tensor<65536x65536xf32>, tensor<f32>) -> tensor<f32>
 return %r : tensor<f32> } }`), quick(pjrt.CompileOptions{}))
	var oom *pjrt.OutOfMemory
	require.True(t, errors.As(err, &oom), "%v", err)
	require.GreaterOrEqual(t, oom.Needed, int64(32<<30))
	require.InDelta(t, float64(16<<30), float64(oom.Available), float64(1<<30))
	require.Equal(t, "hbm", oom.Memory)
}

// TestCPUOutOfMemory asks the CPU for more than any machine has.
func TestCPUOutOfMemory(t *testing.T) {
	c := xlatest.CPU(t)
	x := compile(t, c, `module @big { func.func public @main() -> tensor<1099511627776xf32> {
 %c = stablehlo.constant dense<1.0> : tensor<f32>
 %r = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<1099511627776xf32>
 return %r : tensor<1099511627776xf32> } }`, pjrt.CompileOptions{})
	_, err := x.Run([][]*pjrt.Buffer{{}}, pjrt.ExecuteOptions{})
	var oom *pjrt.OutOfMemory
	require.True(t, errors.As(err, &oom), "%v", err)
	require.EqualValues(t, 4<<40, oom.Needed)
}

// The attributes of a topology can be read.
func TestTopologyAttributes(t *testing.T) {
	topo := topology(t, "v5e:2x4", nil)
	attrs, err := topo.Attributes()
	require.NoError(t, err)
	t.Log(attrs)
	require.Less(t, len(attrs), 1000)
}
