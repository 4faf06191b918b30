package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
)

func TestMatmulTilesFit(t *testing.T) {
	on := func(kind string) Target {
		target, err := For(kind)
		require.NoError(t, err)
		return target
	}
	qwen := groupedShape{E: 128, M: 131072, K: 4096, N: 1536, in: dtype.BF16, out: dtype.BF16}
	require.Equal(t, MatmulTiles{256, 4096, 1536}, MatmulTiles{}.fit(on("tpu7x"), qwen, false, false), "the table's")
	require.Equal(t, MatmulTiles{64, 4096, 384}, MatmulTiles{M: 64, N: 384}.fit(on("tpu7x"), qwen, false, false), "what is asked for, as it is")
	small := groupedShape{E: 2, M: 40, K: 96, N: 640, in: dtype.BF16, out: dtype.BF16}
	require.Equal(t, MatmulTiles{48, 96, 640}, MatmulTiles{}.fit(on("v6e"), small, false, false), "no larger than the shape, rows padded to whole native tiles")
	odd := groupedShape{E: 2, M: 4096, K: 7 * 128, N: 13 * 128, in: dtype.BF16, out: dtype.BF16}
	require.Equal(t, MatmulTiles{1024, 128, 128}, MatmulTiles{}.fit(on("v5e"), odd, false, false), "divisors: 512 and 1024 divide neither")

	// f32 operands need twice the memory; columns shrink first.
	wide := groupedShape{E: 8, M: 8192, K: 8192, N: 8192, in: dtype.F32, out: dtype.F32}
	for _, kind := range []string{"v4", "v5e", "v5p", "v6e", "tpu7x"} {
		target := on(kind)
		for _, s := range []groupedShape{qwen, small, odd, wide} {
			for i := range 3 {
				got := MatmulTiles{}.fit(target, s, i == 1, i == 2)
				require.LessOrEqual(t, s.need(got, i == 2), VMEMLimit(*target.Chip), "%s %+v %+v", kind, s, got)
				require.Zero(t, s.K%got.K)
				require.Zero(t, s.N%got.N)
			}
		}
	}
	require.Equal(t, MatmulTiles{256, 4096, 768}, MatmulTiles{}.fit(on("tpu7x"), groupedShape{E: 8, M: 8192, K: 4096, N: 1536, in: dtype.F32, out: dtype.F32}, false, false), "columns first")
}

func TestAttentionTilesFit(t *testing.T) {
	target, err := For("tpu7x")
	require.NoError(t, err)
	require.Equal(t, AttentionTiles{1024, 1024}, AttentionTiles{}.fit(target, attentionShape{Q: 8192, T: 8192}))
	require.Equal(t, AttentionTiles{640, 96}, AttentionTiles{}.fit(target, attentionShape{Q: 1280, T: 96}))
	require.Equal(t, AttentionTiles{256, 512}, AttentionTiles{Q: 256, K: 512}.fit(target, attentionShape{Q: 8192, T: 8192}))
}
