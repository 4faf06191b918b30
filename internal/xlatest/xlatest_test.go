package xlatest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/xlatest"
)

const sum = `module @sum {
  sdy.mesh @mesh = <["d"=2]>
  func.func public @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}, %b: tensor<f32>) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}, tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %c = stablehlo.broadcast_in_dim %b, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %r = stablehlo.add %a, %c : tensor<4xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%r init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    return %r, %s : tensor<4xf32>, tensor<f32>
  }
}`

func TestRun(t *testing.T) {
	c := xlatest.CPU(t)
	require.Len(t, c.LocalDevices(), xlatest.Devices)
	for range 2 {
		outs := xlatest.Run(t, c, sum, 2, [][]xlatest.Array{
			{xlatest.F32([]float32{1, 2}), xlatest.Scalar(10)},
			{xlatest.F32([]float32{3, 4}), xlatest.Scalar(10)},
		})
		require.Equal(t, []float32{11, 12}, outs[0][0].Float32s())
		require.Equal(t, []float32{13, 14}, outs[1][0].Float32s())
		for d := range outs {
			require.Equal(t, []float32{50}, outs[d][1].Float32s())
			require.Empty(t, outs[d][1].Dims)
		}
	}
	require.Same(t, xlatest.Compile(t, c, sum, 2), xlatest.Compile(t, c, sum, 2))
}
