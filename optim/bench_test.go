package optim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/optim"
	"titan/pjrt"
)

// BenchmarkUpdate is one update of 6 million parameters on one CPU device, in
// place, written for the CPU and as for other platforms.
func BenchmarkUpdate(b *testing.B) {
	for name, fused := range map[string]bool{"moments first": false, "as for TPU": true} {
		b.Run(name, func(b *testing.B) {
			s := newSetup(optim.Param{Name: "embed", Shape: []int{2048, 256}}, optim.Param{Name: "layers.w", Shape: []int{28, 256, 768}}, optim.Param{Name: "norm", Shape: []int{256}})
			s.fused = fused
			o := s.optimizer(b)
			prog, err := s.trace(b, o)
			require.NoError(b, err)
			c := xlatest.CPU(b)
			x := xlatest.Compile(b, c, prog.StableHLO(), 1)
			var args []*pjrt.Buffer
			var donated []int // positions of arguments that outputs replace, in order
			put := func(d dtype.DType, shape []int, replaced bool) {
				if replaced {
					donated = append(donated, len(args))
				}
				v, err := c.Put(make([]byte, d.Size()*elements(shape)), d, shape, x.Devices()[0])
				require.NoError(b, err)
				args = append(args, v)
			}
			put(dtype.F32, []int{1}, false)
			for _, p := range s.params {
				put(dtype.F32, p.Shape, true)
			}
			for _, p := range s.params {
				put(dtype.F32, p.Shape, false)
			}
			for _, v := range o.State() {
				put(v.DType, v.Shape, true)
			}
			for b.Loop() {
				outs, err := x.Run([][]*pjrt.Buffer{args}, pjrt.ExecuteOptions{})
				require.NoError(b, err)
				for i, v := range outs[0] {
					if i >= len(donated) {
						_, err := v.Bytes() // waits
						require.NoError(b, err)
						require.NoError(b, v.Close())
						continue
					}
					require.NoError(b, args[donated[i]].Close())
					args[donated[i]] = v
				}
			}
			require.NoError(b, pjrt.CloseBuffers(args))
		})
	}
}
