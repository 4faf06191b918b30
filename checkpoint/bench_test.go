package checkpoint

import (
	"context"
	"crypto/sha256"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
	"titan/dtype"
	"titan/mesh"
	"titan/sharding"
)

// benchState is 256 MiB over eight devices.
func benchState(b *testing.B) (*mesh.Mesh, []Tensor, int64) {
	m, err := mesh.New([]mesh.Axis{{Name: "fsdp", Size: 4}, {Name: "tp", Size: 2}}, nil)
	require.NoError(b, err)
	var tensors []Tensor
	for _, name := range []string{"a", "b", "c", "d"} {
		tensors = append(tensors, Tensor{name, dtype.F32, []int{4096, 4096}, sharding.P("fsdp", "tp")})
	}
	return m, tensors, 4 * 4096 * 4096 * 4
}

func benchSnapshot(step int, m *mesh.Mesh, tensors []Tensor) Snapshot {
	data := make([]byte, 4096*4096*4/8)
	for i := range data {
		data[i] = byte(i * 7)
	}
	return Snapshot{Step: step, Mesh: m, Tensors: tensors, Shard: func(context.Context, int, int) ([]byte, error) { return data, nil }}
}

func BenchmarkSave(b *testing.B) {
	m, tensors, size := benchState(b)
	fs, err := storage.Local(b.TempDir())
	require.NoError(b, err)
	s, err := NewStore(fs, Options{KeepLatest: 1})
	require.NoError(b, err)
	defer s.Close()
	b.SetBytes(size)
	step := 0
	for b.Loop() {
		step++
		_, err := s.Save(ctx, benchSnapshot(step, m, tensors))
		require.NoError(b, err)
	}
}

func BenchmarkRestore(b *testing.B) {
	m, tensors, size := benchState(b)
	fs, err := storage.Local(b.TempDir())
	require.NoError(b, err)
	s, err := NewStore(fs, Options{})
	require.NoError(b, err)
	defer s.Close()
	_, err = s.Save(ctx, benchSnapshot(1, m, tensors))
	require.NoError(b, err)
	for name, spec := range map[string]sharding.Spec{"same": sharding.P("fsdp", "tp"), "transposed": sharding.P("tp", "fsdp"), "rows": sharding.P([]string{"fsdp", "tp"})} {
		b.Run(name, func(b *testing.B) {
			wanted := append([]Tensor{}, tensors...)
			for i := range wanted {
				wanted[i].Spec = spec
			}
			b.SetBytes(size)
			for b.Loop() {
				c, err := s.Open(1)
				require.NoError(b, err)
				require.NoError(b, c.Restore(ctx, Target{Mesh: m, Tensors: wanted}, func(int, []int, []byte) error { return nil }))
				require.NoError(b, c.Close())
			}
		})
	}
	b.Run("verify", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			_, err := s.Verify(ctx, 1)
			require.NoError(b, err)
		}
	})
}

// Why CRC-32C: compare with a hash that also resists an adversary.
func BenchmarkChecksum(b *testing.B) {
	data := make([]byte, defaultChunk)
	b.Run("crc32c", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			crc32.Checksum(data, castagnoli)
		}
	})
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			sha256.Sum256(data)
		}
	})
}
