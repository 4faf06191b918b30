package sharding

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"titan/mesh"
)

// Reader fills dst with the elements of a region of a global array, dense and
// row-major. It lets a host make its shards without ever holding the array: it
// may read a file, generate numbers, or slice a larger buffer.
type Reader func(r Region, dst []byte) error

// Read makes the shards of the given positions (nil for all), calling read once
// for each distinct one. Entry i belongs to positions[i]. Positions that hold
// the same shard get the same slice, so nobody should write to it.
func (l *Layout) Read(positions []int, elemSize int, read Reader) ([][]byte, error) {
	return l.make(positions, elemSize, 1, read)
}

// Split cuts data, the dense row-major array of elemSize-byte elements, into
// the shards of the given positions (nil for all). Entry i belongs to
// positions[i]. Positions that hold the same shard get the same slice, so
// nobody should write to it. Nothing returned shares memory with data.
func (l *Layout) Split(data []byte, elemSize int, positions []int) ([][]byte, error) {
	if err := l.checkWhole(data, elemSize); err != nil {
		return nil, err
	}
	whole := Whole(l.shape)
	return l.make(positions, elemSize, workers(len(data)), func(r Region, dst []byte) error {
		if len(dst) > 0 {
			copyCommon(dst, r, data, whole, r, elemSize)
		}
		return nil
	})
}

// make is Read with several goroutines.
func (l *Layout) make(positions []int, elemSize, workers int, read Reader) ([][]byte, error) {
	size, err := l.Bytes(elemSize)
	if err != nil {
		return nil, err
	}
	if positions == nil {
		positions = make([]int, l.mesh.Size())
		for p := range positions {
			positions[p] = p
		}
	}
	made := map[int][]byte{} // by shard
	var shards []int
	out := make([][]byte, len(positions))
	for i, p := range positions {
		shard := l.Shard(p)
		if shard < 0 {
			return nil, fmt.Errorf("sharding: there is no position %d in the mesh %v", p, l.mesh)
		}
		buf, ok := made[shard]
		if !ok {
			buf = make([]byte, size)
			made[shard] = buf
			shards = append(shards, shard)
		}
		out[i] = buf
	}
	err = each(len(shards), workers, func(i int) error {
		r := l.ShardRegion(shards[i])
		if err := read(r, made[shards[i]]); err != nil {
			return fmt.Errorf("sharding: reading the region %v of shape %v: %w", r, l.shape, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Join puts shards, one for each position, together to the dense row-major
// array. A nil shard is taken from another position that holds the same one; it
// is an error if there is none. Replicas are not compared: see CheckReplicas.
func (l *Layout) Join(shards [][]byte, elemSize int) ([]byte, error) {
	size, err := l.checkShards(shards, elemSize)
	if err != nil {
		return nil, err
	}
	from := make([]int, l.shards)
	for i := range from {
		from[i] = -1
	}
	for p, s := range shards {
		if n := l.Shard(p); s != nil && from[n] < 0 {
			from[n] = p
		}
	}
	out := make([]byte, size*l.shards)
	if size == 0 {
		return out, nil
	}
	for n, p := range from {
		if p < 0 {
			return nil, fmt.Errorf("sharding: nobody gave the region %v of shape %v; any of the positions %v holds it", l.ShardRegion(n), l.shape, l.Holders(n))
		}
	}
	whole := Whole(l.shape)
	err = each(l.shards, workers(len(out)), func(n int) error {
		r := l.ShardRegion(n)
		copyCommon(out, whole, shards[from[n]], r, r, elemSize)
		return nil
	})
	return out, err
}

// CheckReplicas reports the first two positions that should hold the same shard
// and do not, bit for bit, with the first element that differs. Nil shards are
// not compared.
func (l *Layout) CheckReplicas(shards [][]byte, elemSize int) error {
	if _, err := l.checkShards(shards, elemSize); err != nil {
		return err
	}
	first := make([]int, l.shards)
	for i := range first {
		first[i] = -1
	}
	for p, s := range shards {
		n := l.Shard(p)
		switch q := first[n]; {
		case s == nil:
		case q < 0:
			first[n] = p
		case !bytes.Equal(shards[q], s):
			i := 0
			for shards[q][i] == s[i] {
				i++
			}
			return fmt.Errorf("sharding: positions %d and %d hold the same region %v but differ at element %v: bytes %x and %x", q, p, l.ShardRegion(n),
				l.element(n, i/elemSize), word(shards[q], i, elemSize), word(s, i, elemSize))
		}
	}
	return nil
}

// element returns the global index of an element of a shard.
func (l *Layout) element(shard, i int) []int {
	r := l.ShardRegion(shard)
	at := make([]int, len(r.Size))
	for d := len(at) - 1; d >= 0; d-- {
		at[d] = r.Offset[d] + i%r.Size[d]
		i /= r.Size[d]
	}
	return at
}

// word returns the element that byte i belongs to.
func word(b []byte, i, elemSize int) []byte {
	i -= i % elemSize
	return b[i : i+elemSize]
}

func (l *Layout) checkWhole(data []byte, elemSize int) error {
	size, err := l.Bytes(elemSize)
	if err != nil {
		return err
	}
	if len(data) != size*l.shards {
		return fmt.Errorf("sharding: %d bytes of data for an array of shape %v, which has %d bytes (%d an element)", len(data), l.shape, size*l.shards, elemSize)
	}
	return nil
}

// checkShards returns the size of a shard.
func (l *Layout) checkShards(shards [][]byte, elemSize int) (int, error) {
	size, err := l.Bytes(elemSize)
	if err != nil {
		return 0, err
	}
	if len(shards) != l.mesh.Size() {
		return 0, fmt.Errorf("sharding: %d shards were given for the %d positions of the mesh %v (nil stands for one that is not at hand)", len(shards), l.mesh.Size(), l.mesh)
	}
	for p, s := range shards {
		if s != nil && len(s) != size {
			return 0, fmt.Errorf("sharding: the shard at position %d has %d bytes; one of shape %v has %d (%d an element)", p, len(s), l.local, size, elemSize)
		}
	}
	return size, nil
}

// Split cuts an array into one shard for each position of m; see Layout.Split.
func Split(data []byte, elemSize int, shape []int, spec Spec, m *mesh.Mesh) ([][]byte, error) {
	l, err := NewLayout(m, spec, shape)
	if err != nil {
		return nil, err
	}
	return l.Split(data, elemSize, nil)
}

// Join puts one shard for each position of m together to an array and refuses
// replicas that differ; see Layout.Join and Layout.CheckReplicas.
func Join(shards [][]byte, elemSize int, shape []int, spec Spec, m *mesh.Mesh) ([]byte, error) {
	l, err := NewLayout(m, spec, shape)
	if err != nil {
		return nil, err
	}
	if err := l.CheckReplicas(shards, elemSize); err != nil {
		return nil, err
	}
	return l.Join(shards, elemSize)
}

// workers returns how many goroutines are worth their start for a copy of so
// many bytes.
func workers(size int) int {
	const each = 1 << 20
	return min(runtime.GOMAXPROCS(0), 1+size/each)
}

// each calls f(0), …, f(n-1) on several goroutines and returns an error of
// one of them; after an error no further call starts.
func each(n, workers int, f func(int) error) error {
	if workers <= 1 || n <= 1 {
		for i := range n {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	}
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for range min(workers, n) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}
