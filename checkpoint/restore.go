package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"titan/checkpoint/safetensors"
	"titan/mesh"
	"titan/sharding"
)

// Target says onto which mesh, and how split, tensors are to be restored.
type Target struct {
	Mesh    *mesh.Mesh
	Tensors []Tensor // what to restore; it may be less than there is
	// Positions are those whose shards are wanted, usually those of this
	// process; nil for all of the mesh.
	Positions []int
	// Memory bounds the bytes in flight, if no single shard is larger; 0 for 1 GiB.
	Memory int64
}

// Deliver takes a shard of a tensor (by its number in Target.Tensors), which all
// of the given positions hold. The bytes are its own. It is called from one
// goroutine.
type Deliver func(tensor int, positions []int, data []byte) error

const defaultMemory = 1 << 30

// shardWant is a distinct shard that the target's positions hold.
type shardWant struct {
	tensor    int
	region    sharding.Region
	positions []int
	bytes     int64
	order     int64 // place in the checkpoint, to read front to back
}

// wants returns the distinct shards of the target.
func (t *Target) wants() ([]shardWant, error) {
	if t.Mesh == nil {
		return nil, errors.New("checkpoint: the target of a restore has no mesh")
	}
	if err := checkNames(t.Tensors); err != nil {
		return nil, err
	}
	positions := t.Positions
	if positions == nil {
		for p := range t.Mesh.Size() {
			positions = append(positions, p)
		}
	}
	var out []shardWant
	for i, x := range t.Tensors {
		l, err := x.layout(t.Mesh)
		if err != nil {
			return nil, err
		}
		bytes, err := l.Bytes(x.DType.Size())
		if err != nil {
			return nil, fmt.Errorf("checkpoint: tensor %q: %w", x.Name, err)
		}
		at := map[int]int{}
		for _, p := range positions {
			shard := l.Shard(p)
			if shard < 0 {
				return nil, fmt.Errorf("checkpoint: the mesh %v has no position %d", t.Mesh, p)
			}
			k, ok := at[shard]
			if !ok {
				k = len(out)
				at[shard] = k
				out = append(out, shardWant{tensor: i, region: l.ShardRegion(shard), bytes: int64(bytes)})
			}
			out[k].positions = append(out[k].positions, p)
		}
	}
	return out, nil
}

// batches calls f with consecutive shards of at most the target's memory.
func (t *Target) batches(wants []shardWant, f func([]shardWant) error) error {
	limit := t.Memory
	if limit <= 0 {
		limit = defaultMemory
	}
	for len(wants) > 0 {
		n, used := 0, int64(0)
		for n < len(wants) && (n == 0 || used+wants[n].bytes <= limit) {
			used += wants[n].bytes
			n++
		}
		if err := f(wants[:n]); err != nil {
			return err
		}
		wants = wants[n:]
	}
	return nil
}

// Check reports all tensors that the checkpoint does not have, or has with
// another shape or element type.
func (c *Checkpoint) Check(tensors []Tensor) error { return check(c.path, c.Entries(), tensors) }

// mostFaults bounds what check lists: beyond a few tensors more of them say nothing.
const mostFaults = 4

// check compares tensors with what a source has.
func check(where string, entries []safetensors.Entry, tensors []Tensor) error {
	has := make(map[string]int, len(entries))
	for i, e := range entries {
		has[e.Name] = i
	}
	var faults []string
	for _, t := range tensors {
		i, ok := has[t.Name]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%q is missing%s", t.Name, nearestHint(t.Name, has)))
		case !slices.Equal(entries[i].Shape, t.Shape):
			faults = append(faults, fmt.Sprintf("%q has shape %v, the model wants %v", t.Name, entries[i].Shape, t.Shape))
		case entries[i].DType != t.DType:
			faults = append(faults, fmt.Sprintf("%q is %v, the model wants %v", t.Name, entries[i].DType, t.DType))
		}
	}
	switch n := len(faults); {
	case n == 0:
		return nil
	case n > mostFaults:
		faults = append(faults[:mostFaults-1], fmt.Sprintf("and %d more", n-mostFaults+1))
	}
	return fmt.Errorf("checkpoint: %s does not fit the model: %s", where, strings.Join(faults, "; "))
}

// Restore reads the shards that the target's positions hold, whatever mesh and
// specs they were saved under, and delivers each distinct one once. Only what
// is wanted is read (in whole chunks), in parallel, and verified before it is
// delivered.
//
// It fails before reading if a tensor is missing or of another shape or type.
func (c *Checkpoint) Restore(ctx context.Context, t Target, deliver Deliver) error {
	if err := c.Check(t.Tensors); err != nil {
		return err
	}
	wants, err := t.wants()
	if err != nil {
		return err
	}
	for i := range wants {
		w := &wants[i]
		info := &c.m.Tensors[c.byName[t.Tensors[w.tensor].Name]]
		info.overlapping(w.region, func(p Piece) {
			if at := int64(p.File)<<40 | p.Offset>>16; w.order == 0 || at < w.order {
				w.order = at
			}
		})
	}
	slices.SortStableFunc(wants, func(a, b shardWant) int { return cmp.Compare(a.order, b.order) })
	return t.batches(wants, func(batch []shardWant) error {
		reads := make([]Want, len(batch))
		for i, w := range batch {
			reads[i] = Want{t.Tensors[w.tensor].Name, w.region, make([]byte, w.bytes)}
		}
		if err := c.Read(ctx, reads); err != nil {
			return err
		}
		for i, w := range batch {
			if err := deliver(w.tensor, w.positions, reads[i].Dst); err != nil {
				return fmt.Errorf("checkpoint: delivering %v of %q: %w", w.region, reads[i].Tensor, err)
			}
		}
		return nil
	})
}

// RestoreFrom is Restore from any source of tensors, such as the weights of a
// Hugging Face model seen through a mapping. where names the source in errors.
func RestoreFrom(ctx context.Context, where string, src safetensors.Source, t Target, deliver Deliver) error {
	if err := check(where, src.Entries(), t.Tensors); err != nil {
		return err
	}
	wants, err := t.wants()
	if err != nil {
		return err
	}
	return t.batches(wants, func(batch []shardWant) error {
		data := make([][]byte, len(batch))
		err := parallel(ctx, len(batch), defaultWorkers, func(ctx context.Context, i int) error {
			w := batch[i]
			data[i] = make([]byte, w.bytes)
			return src.ReadRegion(t.Tensors[w.tensor].Name, w.region, data[i])
		})
		if err != nil {
			return err
		}
		for i, w := range batch {
			if err := deliver(w.tensor, w.positions, data[i]); err != nil {
				return fmt.Errorf("checkpoint: delivering %v of %q: %w", w.region, t.Tensors[w.tensor].Name, err)
			}
		}
		return nil
	})
}
