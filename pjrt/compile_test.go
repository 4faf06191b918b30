package pjrt_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

func TestCompileErrors(t *testing.T) {
	c := xlatest.CPU(t)
	_, err := c.Compile([]byte("not mlir"), pjrt.CompileOptions{})
	var e *pjrt.Error
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, "Client_Compile", e.Op)
	require.NotEqual(t, pjrt.OK, e.Code)
	require.NotEmpty(t, e.Message)

	for want, o := range map[string]pjrt.CompileOptions{
		"need 16 devices, the client has 8": {Partitions: 16},
		"stands at positions 0 and 1":       {Partitions: 2, DeviceIDs: []int{0, 0}},
		"not one of the 8 devices":          {DeviceIDs: []int{11}},
		"2 device ids for":                  {DeviceIDs: []int{0, 1}},
		`flag "x"`:                          {Flags: map[string]any{"x": []byte{}}},
	} {
		_, err := c.Compile([]byte(addModule), o)
		require.ErrorContains(t, err, want)
	}
	_, err = c.Compile([]byte(testdata(t, "shardy")), pjrt.CompileOptions{Partitions: 4, Shardy: true})
	require.ErrorContains(t, err, "mhlo.num_partitions = 8, the options say 4")
	_, err = c.Compile(nil, pjrt.CompileOptions{})
	require.ErrorContains(t, err, "the program is empty")
	_, err = c.Load(nil)
	require.ErrorContains(t, err, "no bytes")
	_, err = c.Load([]byte("nonsense"))
	require.Error(t, err)
}

// TestFlags: a flag reaches the compiler, an unknown one is an error.
func TestFlags(t *testing.T) {
	c := xlatest.CPU(t)
	x, err := c.Compile([]byte(addModule), pjrt.CompileOptions{Flags: map[string]any{"xla_cpu_enable_fast_math": true, "xla_backend_optimization_level": 0}})
	require.NoError(t, err)
	require.NoError(t, x.Close())
	_, err = c.Compile([]byte(addModule), pjrt.CompileOptions{Flags: map[string]any{"xla_no_such_flag": true}})
	require.ErrorContains(t, err, "xla_no_such_flag")
}

// TestFacts reads everything a compiled program tells.
func TestFacts(t *testing.T) {
	c := xlatest.CPU(t)
	x := compile(t, c, testdata(t, "loop"), sharded8)
	require.Equal(t, "loop", x.Name())
	require.Equal(t, 2, x.NumOutputs())
	require.Equal(t, c.LocalDevices(), x.Devices())
	require.Same(t, c, x.Client())
	n, err := x.Partitions()
	require.NoError(t, err)
	require.Equal(t, 8, n)
	n, err = x.Replicas()
	require.NoError(t, err)
	require.Equal(t, 1, n)

	f32 := func(dims ...int) pjrt.ArrayType { return pjrt.ArrayType{DType: dtype.F32, Dims: dims} }
	params, err := x.Parameters()
	require.NoError(t, err)
	require.Equal(t, []pjrt.Parameter{{ArrayType: f32(6, 16, 64), Donated: true}, {ArrayType: f32(8, 64)}, {ArrayType: f32(8, 64), Donated: true}}, params)
	outs, err := x.Outputs()
	require.NoError(t, err)
	require.Equal(t, []pjrt.ArrayType{f32(6, 16, 64), f32(8, 64)}, outs)
	kinds, err := x.OutputMemoryKinds()
	require.NoError(t, err)
	require.Len(t, kinds, 2)

	m, err := x.MemoryStats()
	require.NoError(t, err)
	const w, h = 6 * 16 * 64 * 4, 8 * 64 * 4
	require.EqualValues(t, w+2*h, m.Args)
	require.EqualValues(t, w+h, m.Alias, "donated to the byte")
	require.GreaterOrEqual(t, m.Outputs, int64(w+h))
	require.Positive(t, m.Temp)
	require.Equal(t, m.Args+m.Outputs-m.Alias+m.Temp, m.InUse())

	_, err = x.CostAnalysis()
	require.True(t, err == nil || pjrt.IsUnimplemented(err), "%v", err)

	module, err := x.OptimizedHLO()
	require.NoError(t, err)
	count := map[string]int64{}
	for _, col := range module.Collectives() {
		count[col.Kind()] += col.Times
		if col.Kind() == "all-gather" {
			require.Equal(t, [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}}, col.Op.ReplicaGroups)
			require.Equal(t, "model.go", col.Op.Metadata.SourceFile)
			require.Equal(t, 41, col.Op.Metadata.SourceLine)
		}
	}
	require.Equal(t, map[string]int64{"all-gather": 6, "collective-permute": 6}, count)

	// Equal programs have equal fingerprints, others do not.
	print1, err := x.Fingerprint()
	require.NoError(t, err)
	print2, err := compile(t, c, testdata(t, "loop"), sharded8).Fingerprint()
	require.NoError(t, err)
	print3, err := compile(t, c, testdata(t, "shardy"), sharded8).Fingerprint()
	require.NoError(t, err)
	require.Equal(t, print1, print2)
	require.NotEqual(t, print1, print3)
}

// TestManualCollectives: what a manual region says explicitly stays what it is.
func TestManualCollectives(t *testing.T) {
	m, err := compile(t, xlatest.CPU(t), testdata(t, "manual"), sharded8).OptimizedHLO()
	require.NoError(t, err)
	var kinds []string
	for _, c := range m.Collectives() {
		kinds = append(kinds, c.Kind())
	}
	require.ElementsMatch(t, []string{"all-gather", "reduce-scatter", "all-reduce"}, kinds)
	m, err = compile(t, xlatest.CPU(t), testdata(t, "alltoall"), sharded8).OptimizedHLO()
	require.NoError(t, err)
	kinds = nil
	for _, c := range m.Collectives() {
		kinds = append(kinds, c.Kind())
	}
	require.ElementsMatch(t, []string{"all-to-all", "collective-permute"}, kinds)
}

func TestSerialize(t *testing.T) {
	c := xlatest.CPU(t)
	x, err := c.Compile([]byte(donateModule), sharded8)
	require.NoError(t, err)
	blob, err := x.Serialize()
	require.NoError(t, err)
	require.NoError(t, x.Close())
	x, err = c.Load(blob)
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	args := donateArgs(t, c)
	outs := run(t, x, args)
	require.Equal(t, float32(6), floats(t, outs[5][0])[7])
	_, err = x.Run(args, pjrt.ExecuteOptions{})
	require.ErrorContains(t, err, "was donated to donate", "a loaded program knows its parameters too")
	closeAll(t, args, outs)
}

// TestAssignment runs on a part of the devices, in an order of its own.
func TestAssignment(t *testing.T) {
	c := xlatest.CPU(t)
	const program = `module @ids { sdy.mesh @mesh = <["d"=2]>
func.func public @main(%a: tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> (tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) {
 %r = stablehlo.add %a, %a : tensor<2xf32>
 return %r : tensor<2xf32> } }`
	x := compile(t, c, program, pjrt.CompileOptions{Partitions: 2, Shardy: true, DeviceIDs: []int{6, 3}})
	require.Len(t, x.Devices(), 2)
	var args [][]*pjrt.Buffer
	for _, d := range x.Devices() {
		args = append(args, []*pjrt.Buffer{put(t, c, d.ID, []float32{float32(d.ID)}, 1)})
	}
	outs := run(t, x, args)
	for i, d := range x.Devices() {
		require.Same(t, d, outs[i][0].Device())
		mem, err := outs[i][0].Memory()
		require.NoError(t, err)
		require.Same(t, d, mem.Device(), "the plugin agrees")
		require.Equal(t, []float32{float32(2 * d.ID)}, floats(t, outs[i][0]))
	}
	closeAll(t, args, outs)
}

// TestReplicas: DeviceIDs[replica*Partitions+partition] says which device plays
// which part.
func TestReplicas(t *testing.T) {
	c := xlatest.CPU(t)
	const program = `module @parts { sdy.mesh @mesh = <["d"=2]>
func.func public @main() -> (tensor<2xui32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}, tensor<2xui32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) {
 %x:2 = sdy.manual_computation() in_shardings=[] out_shardings=[<@mesh, [{"d"}]>, <@mesh, [{"d"}]>] manual_axes={"d"} () {
  %r = stablehlo.replica_id : tensor<ui32>
  %p = stablehlo.partition_id : tensor<ui32>
  %r1 = stablehlo.reshape %r : (tensor<ui32>) -> tensor<1xui32>
  %p1 = stablehlo.reshape %p : (tensor<ui32>) -> tensor<1xui32>
  sdy.return %r1, %p1 : tensor<1xui32>, tensor<1xui32> } : () -> (tensor<2xui32>, tensor<2xui32>)
 return %x#0, %x#1 : tensor<2xui32>, tensor<2xui32> } }`
	ids := []int{7, 1, 4, 2}
	x := compile(t, c, program, pjrt.CompileOptions{Replicas: 2, Partitions: 2, Shardy: true, DeviceIDs: ids})
	require.Len(t, x.Devices(), 4)
	outs := run(t, x, make([][]*pjrt.Buffer, 4))
	for i, d := range x.Devices() {
		part := func(k int) int {
			data, err := outs[i][k].Bytes()
			require.NoError(t, err)
			return int(data[0])
		}
		require.Equal(t, d.ID, ids[part(0)*2+part(1)])
	}
	closeAll(t, outs)
}
