package hfmodel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/sharding"
)

// counting counts the bytes read from a source.
type counting struct {
	*synthetic
	bytes, reads int
}

func (c *counting) ReadRegion(name string, r sharding.Region, dst []byte) error {
	c.bytes += len(dst)
	c.reads++
	return c.synthetic.ReadRegion(name, r, dst)
}

func region(offsetAndSize ...[2]int) sharding.Region {
	var r sharding.Region
	for _, p := range offsetAndSize {
		r.Offset, r.Size = append(r.Offset, p[0]), append(r.Size, p[1])
	}
	return r
}

func TestGrow(t *testing.T) {
	e := safetensors.Entry{DType: dtype.F32, Shape: []int{3, 10, 4, 5}} // 20 elements an expert, 200 a layer
	ask := region([2]int{1, 1}, [2]int{5, 1}, [2]int{0, 4}, [2]int{0, 5})
	for limit, want := range map[int]sharding.Region{
		2400: sharding.Whole(e.Shape),
		2399: region([2]int{0, 2}, [2]int{0, 10}, [2]int{0, 4}, [2]int{0, 5}),
		800:  region([2]int{1, 1}, [2]int{0, 10}, [2]int{0, 4}, [2]int{0, 5}),
		799:  region([2]int{1, 1}, [2]int{0, 9}, [2]int{0, 4}, [2]int{0, 5}),
		320:  region([2]int{1, 1}, [2]int{4, 4}, [2]int{0, 4}, [2]int{0, 5}),
	} {
		got, ok := grow(e, ask, limit)
		require.True(t, ok, limit)
		require.Equal(t, want, got, limit)
	}
	for _, limit := range []int{80, 79, 1} {
		_, ok := grow(e, ask, limit)
		require.False(t, ok, limit)
	}
	_, ok := grow(e, region([2]int{1, 1}, [2]int{3, 2}, [2]int{0, 4}, [2]int{0, 5}), 320)
	require.False(t, ok, "over the border of two blocks")
	_, ok = grow(e, region([2]int{1, 1}), 320)
	require.False(t, ok, "of another rank: the source has the error")
	_, ok = grow(e, region([2]int{1, 1}, [2]int{9, 2}, [2]int{0, 4}, [2]int{0, 5}), 2400)
	require.False(t, ok, "beyond the tensor: the source has the error")
	_, ok = grow(safetensors.Entry{DType: dtype.F32}, sharding.Region{}, 100)
	require.False(t, ok, "a scalar")
}

// An export reads every byte once, however little is kept it is right, and no
// more is kept than allowed.
func TestReadAhead(t *testing.T) {
	c := goldenModels()["qwen3_moe"].config
	src := &counting{synthetic: newSynthetic(c)}
	total := 0
	for _, e := range Entries(c, dtype.F32) {
		total += int(e.Bytes())
	}
	var want map[string][]byte
	for _, limit := range []int{0, 1, 100, 5_000, 70_000, 1 << 20} {
		src.bytes, src.reads = 0, 0
		a := readAhead(src, limit, 2*limit)
		b, err := bind("qwen3_moe", c, dtype.F32)
		require.NoError(t, err)
		theirs, err := b.Export(a, dtype.F32)
		require.NoError(t, err)
		got := readAll(t, theirs)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, limit)
		require.LessOrEqual(t, a.size, 2*limit)
		require.Equal(t, total, src.bytes, limit) // in the order of the table
		if limit == 1<<20 {
			require.Equal(t, len(Entries(c, dtype.F32)), src.reads)
		}
	}
	a := readAhead(src, 100, 200)
	require.Error(t, a.ReadRegion("no", region(), nil))
}
