package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"titan/checkpoint/safetensors"
	"titan/mesh"
	"titan/sharding"
)

// Snapshot is what is to be saved, as one process sees it.
type Snapshot struct {
	Step    int // from 0
	Mesh    *mesh.Mesh
	Tensors []Tensor

	// Shard returns the part of a tensor (by its number in Tensors) that the
	// device at a position of the mesh holds: dense, row-major, little-endian.
	// It is called once for each part this process has to write, from several
	// goroutines, and only for positions of this process. The bytes must not
	// change until Release.
	Shard func(ctx context.Context, tensor, position int) ([]byte, error)

	// State is what else is needed to go on, such as the place in the data.
	// Values are encoded as JSON. That of process 0 is saved.
	State map[string]any

	// Release, if not nil, is called once when the save needs nothing more of
	// the snapshot, whether it succeeded or not.
	Release func()
}

// encodeState returns the state as JSON values.
func (s *Snapshot) encodeState() (map[string]json.RawMessage, error) {
	out := make(map[string]json.RawMessage, len(s.State))
	for k, v := range s.State {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: state %q cannot be encoded: %w", k, err)
		}
		out[k] = raw
	}
	return out, nil
}

// digest tells snapshots of different steps, meshes or tensors apart.
func (s *Snapshot) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %v\n", s.Step, s.Mesh.Axes())
	for _, t := range s.Tensors {
		fmt.Fprintf(h, "%q %v %v %v\n", t.Name, t.DType, t.Shape, t.Spec)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// part is a piece of a tensor that this process writes.
type part struct {
	tensor   int
	position int // of a device of this process that holds it
	region   sharding.Region
	bytes    int64
}

// assign returns the parts that a process writes. Every distinct shard of every
// tensor is written by exactly one of the processes that hold it, the one that
// has the least to write so far; all processes come to the same result.
func assign(s *Snapshot, rank, size int) ([]part, error) {
	if s.Mesh == nil {
		return nil, errors.New("checkpoint: the snapshot has no mesh")
	}
	process, err := processes(s.Mesh, size)
	if err != nil {
		return nil, err
	}
	if err := checkNames(s.Tensors); err != nil {
		return nil, err
	}
	load := make([]int64, size)
	var mine []part
	for i, t := range s.Tensors {
		l, err := t.layout(s.Mesh)
		if err != nil {
			return nil, err
		}
		bytes, err := l.Bytes(t.DType.Size())
		if err != nil {
			return nil, fmt.Errorf("checkpoint: tensor %q: %w", t.Name, err)
		}
		shards := l.Shards()
		if bytes == 0 {
			shards = 1 // a tensor without elements has one part, all of it
		}
		for shard := range shards {
			at := -1
			for _, p := range l.Holders(shard) {
				if at < 0 || load[process[p]] < load[process[at]] {
					at = p
				}
			}
			load[process[at]] += int64(bytes)
			if process[at] != rank {
				continue
			}
			r := l.ShardRegion(shard)
			if bytes == 0 {
				r = sharding.Whole(t.Shape)
			}
			mine = append(mine, part{i, at, r, int64(bytes)})
		}
	}
	return mine, nil
}

// Part is the shard of a tensor, by its number, that the device at a position
// holds.
type Part struct{ Tensor, Position int }

// Parts lists the shards that this process writes when it saves a snapshot: those
// for which Save calls its Shard.
func (s *Store) Parts(snap *Snapshot) ([]Part, error) {
	mine, err := assign(snap, s.o.Group.Rank(), s.o.Group.Size())
	if err != nil {
		return nil, err
	}
	out := make([]Part, 0, len(mine))
	for _, p := range mine {
		if p.bytes > 0 {
			out = append(out, Part{p.tensor, p.position})
		}
	}
	return out, nil
}

// processes returns the process of each position.
func processes(m *mesh.Mesh, size int) ([]int, error) {
	out := make([]int, m.Size())
	for p := range out {
		d, ok := m.Device(p)
		switch {
		case !ok && size > 1:
			return nil, fmt.Errorf("checkpoint: there are %d processes, but the mesh %v does not know which devices are whose; make it with WithDevices", size, m)
		case d.Process < 0 || d.Process >= size:
			return nil, fmt.Errorf("checkpoint: position %d of the mesh %v belongs to process %d; there are %d", p, m, d.Process, size)
		}
		out[p] = d.Process
	}
	return out, nil
}

// file is a shard file to be written.
type file struct {
	name    string
	parts   []part
	entries []safetensors.Entry
}

// divide spreads the parts over files of at most limit bytes (one part at
// least), and over as many files as there are workers if they are worth it.
func divide(s *Snapshot, parts []part, rank int, limit int64, workers int) []file {
	var total int64
	for _, p := range parts {
		total += p.bytes
	}
	const worth = 64 << 20
	target := min(limit, max(worth, (total+int64(workers)-1)/int64(workers)))
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b part) int { // wide elements first: all stay aligned
		return s.Tensors[b.tensor].DType.Size() - s.Tensors[a.tensor].DType.Size()
	})
	var out []file
	var used int64
	for _, p := range parts {
		if len(out) == 0 || used > 0 && used+p.bytes > target {
			out = append(out, file{name: shardName(rank, len(out))})
			used = 0
		}
		f := &out[len(out)-1]
		t := s.Tensors[p.tensor]
		f.parts = append(f.parts, p)
		f.entries = append(f.entries, safetensors.Entry{Name: entryName(t, p.region), DType: t.DType, Shape: p.region.Size})
		used += p.bytes
	}
	return out
}

// entryName is the name of a part in its file: that of the tensor, with the
// range of indices if it is not all of it.
func entryName(t Tensor, r sharding.Region) string {
	if r.Equal(sharding.Whole(t.Shape)) {
		return t.Name
	}
	return t.Name + r.String()
}
