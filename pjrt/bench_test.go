package pjrt

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
)

// manyModule returns a program of n donated arguments, spread over 8 devices.
func manyModule(n int) string {
	var args, types, results, ops []string
	for i := range n {
		args = append(args, fmt.Sprintf(`%%a%d: tensor<32xf32> {tf.aliasing_output = %d : i32, sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}`, i, i))
		types = append(types, "tensor<32xf32>")
		results = append(results, fmt.Sprintf("%%r%d", i))
		ops = append(ops, fmt.Sprintf("%%r%d = stablehlo.add %%a%d, %%a%d : tensor<32xf32>", i, i, i))
	}
	var outs []string
	for range n {
		outs = append(outs, `tensor<32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}`)
	}
	return fmt.Sprintf("module @many { sdy.mesh @mesh = <[\"d\"=8]>\nfunc.func public @main(%s) -> (%s) {\n%s\nreturn %s : %s\n} }",
		strings.Join(args, ", "), strings.Join(outs, ", "), strings.Join(ops, "\n"), strings.Join(results, ", "), strings.Join(types, ", "))
}

// BenchmarkExecute measures the host's share of a step: 8 devices, n donated
// arguments each.
func BenchmarkExecute(b *testing.B) {
	p, err := Open(os.Getenv("TITAN_PLUGIN_CPU"))
	require.NoError(b, err)
	c, err := p.NewClient(ClientOptions{Devices: 8})
	require.NoError(b, err)
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, err := c.Compile([]byte(manyModule(n)), CompileOptions{Partitions: 8, Shardy: true})
			require.NoError(b, err)
			args := make([][]*Buffer, 8)
			for d := range args {
				for range n {
					buf, err := c.Put(make([]byte, 16), dtype.F32, []int{4}, c.LocalDevices()[d])
					require.NoError(b, err)
					args[d] = append(args[d], buf)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				outs, err := x.Run(args, ExecuteOptions{})
				require.NoError(b, err)
				require.NoError(b, CloseBuffers(args...))
				args = outs
			}
			require.NoError(b, CloseBuffers(args...))
			require.NoError(b, x.Close())
		})
	}
	b.Run("one device", func(b *testing.B) {
		x, err := c.Compile([]byte("module @m { func.func public @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> } }"), CompileOptions{})
		require.NoError(b, err)
		in, err := c.Put(make([]byte, 4), dtype.F32, nil, c.LocalDevices()[0])
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			outs, err := x.Run([][]*Buffer{{in}}, ExecuteOptions{})
			require.NoError(b, err)
			require.NoError(b, CloseBuffers(outs...))
		}
		require.NoError(b, CloseBuffers([]*Buffer{in}))
		require.NoError(b, x.Close())
	})
	require.NoError(b, c.Close())
}
