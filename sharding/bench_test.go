package sharding

import (
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
)

// Splitting 64 MiB of f32: by rows (one memmove a shard), by columns (runs of
// 2 KiB), and along a last dimension of single elements.
func BenchmarkSplit(b *testing.B) {
	m := newMesh(b, mesh.Axis{Name: "dp", Size: 8})
	for _, c := range []struct {
		name  string
		shape []int
		spec  Spec
	}{
		{"rows", []int{4096, 4096}, P("dp")},
		{"columns", []int{4096, 4096}, P(nil, "dp")},
		{"elements", []int{2 << 20, 8}, P(nil, "dp")},
		{"whole", []int{4096, 4096}, P()},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, err := NewLayout(m, c.spec, c.shape)
			require.NoError(b, err)
			data := make([]byte, 4*product(c.shape))
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := l.Split(data, 4, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Layouts of a large model on a pod: one for each parameter, at every start.
func BenchmarkLayout(b *testing.B) {
	m := newMesh(b, mesh.Axis{Name: "dp_replicate", Size: 4}, mesh.Axis{Name: "dp_shard", Size: 2048}, mesh.Axis{Name: "tp", Size: 2})
	for b.Loop() {
		l, err := NewLayout(m, P("dp_shard", "tp"), []int{8192, 28672})
		if err != nil {
			b.Fatal(err)
		}
		for p := range 8 {
			l.Region(p)
		}
	}
}
