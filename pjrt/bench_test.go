package pjrt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
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
	c := xlatest.CPU(b)
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, err := c.Compile([]byte(manyModule(n)), sharded8)
			require.NoError(b, err)
			args := make([][]*pjrt.Buffer, 8)
			for d := range args {
				for range n {
					buf, err := c.Put(make([]byte, 16), dtype.F32, []int{4}, c.LocalDevices()[d])
					require.NoError(b, err)
					args[d] = append(args[d], buf)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				outs, err := x.Run(args, pjrt.ExecuteOptions{})
				require.NoError(b, err)
				require.NoError(b, pjrt.CloseBuffers(args...))
				args = outs
			}
			require.NoError(b, pjrt.CloseBuffers(args...))
			require.NoError(b, x.Close())
		})
	}
	b.Run("one device", func(b *testing.B) {
		x, err := c.Compile([]byte("module @m { func.func public @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> } }"), pjrt.CompileOptions{})
		require.NoError(b, err)
		in, err := c.Put(make([]byte, 4), dtype.F32, nil, c.LocalDevices()[0])
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			outs, err := x.Run([][]*pjrt.Buffer{{in}}, pjrt.ExecuteOptions{})
			require.NoError(b, err)
			require.NoError(b, pjrt.CloseBuffers(outs...))
		}
		require.NoError(b, pjrt.CloseBuffers([]*pjrt.Buffer{in}))
		require.NoError(b, x.Close())
	})
}

// BenchmarkTransfer measures copies of 64 MiB against a plain copy.
func BenchmarkTransfer(b *testing.B) {
	c := xlatest.CPU(b)
	const n = 64 << 20
	data, dst := aligned(n), aligned(n)
	for name, sem := range map[string]pjrt.Semantics{"DuringCall": pjrt.DuringCall, "ZeroCopy": pjrt.ZeroCopy} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				buf, done, err := c.FromHost(data, dtype.U8, []int{n}, c.LocalDevices()[0], sem)
				require.NoError(b, err)
				require.NoError(b, buf.Close())
				require.NoError(b, done.Await())
			}
		})
	}
	b.Run("ToHost", func(b *testing.B) {
		buf, err := c.Put(data, dtype.U8, []int{n}, c.LocalDevices()[0])
		require.NoError(b, err)
		b.SetBytes(n)
		for b.Loop() {
			done, err := buf.ToHost(dst)
			require.NoError(b, err)
			require.NoError(b, done.Await())
		}
		require.NoError(b, buf.Close())
	})
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(n)
		for b.Loop() {
			copy(dst, data)
		}
	})
}
