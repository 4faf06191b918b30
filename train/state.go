package train

import (
	"context"
	"fmt"

	"titan/checkpoint"
	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// localBytes is what one device holds of a variable.
func (v Var) localBytes(m *mesh.Mesh) (int64, error) {
	n, err := sharding.BytesPerDevice(m, v.Type.Shape, v.Spec, v.Type.DType.Size())
	return int64(n), err
}

// State is the arrays of a run on the devices of this process: one buffer for
// each variable and position of the mesh. Those at positions of other processes
// are nil.
type State struct {
	Vars    []Var
	mesh    *mesh.Mesh
	layouts []*sharding.Layout
	bufs    [][]*pjrt.Buffer // by position, then by variable
}

func newState(m *mesh.Mesh, vars []Var) (*State, error) {
	s := &State{Vars: vars, mesh: m, bufs: make([][]*pjrt.Buffer, m.Size())}
	for _, v := range vars {
		l, err := sharding.NewLayout(m, v.Spec, v.Type.Shape)
		if err != nil {
			return nil, fmt.Errorf("train: %s: %w", v.Name, err)
		}
		s.layouts = append(s.layouts, l)
	}
	for p := range s.bufs {
		s.bufs[p] = make([]*pjrt.Buffer, len(vars))
	}
	return s, nil
}

// Close frees the buffers.
func (s *State) Close() {
	if s != nil {
		_ = pjrt.CloseBuffers(s.bufs...)
	}
}

// Tensors describes the variables to checkpoints, in order.
func (s *State) Tensors() []checkpoint.Tensor { return tensorsOf(s.Vars) }

func tensorsOf(vars []Var) []checkpoint.Tensor {
	out := make([]checkpoint.Tensor, len(vars))
	for i, v := range vars {
		out[i] = checkpoint.Tensor{Name: v.Name, DType: v.Type.DType, Shape: v.Type.Shape, Spec: v.Spec}
	}
	return out
}

// Shard copies the part of a variable that a position holds to the host.
func (s *State) Shard(_ context.Context, variable, position int) ([]byte, error) {
	b := s.bufs[position][variable]
	if b == nil {
		return nil, fmt.Errorf("train: %s is not on the devices of this process", s.Vars[variable].Name)
	}
	return b.Bytes()
}

// Whole copies a variable to the host.
func (s *State) Whole(variable int) ([]byte, error) {
	shards := make([][]byte, s.mesh.Size())
	l := s.layouts[variable]
	for k := range l.Shards() {
		p := s.holder(l, k, variable)
		b, err := s.Shard(context.Background(), variable, p)
		if err != nil {
			return nil, err
		}
		shards[p] = b
	}
	return l.Join(shards, s.Vars[variable].Type.DType.Size())
}

// holder returns a position of this process that holds a shard of a variable, or
// else any.
func (s *State) holder(l *sharding.Layout, shard, variable int) int {
	holders := l.Holders(shard)
	for _, p := range holders {
		if s.bufs[p][variable] != nil {
			return p
		}
	}
	return holders[0]
}

// put places the part of a variable at positions, which all hold the same.
func (s *State) put(devices []*pjrt.Device, c *pjrt.Client, variable int, positions []int, data []byte) error {
	v := s.Vars[variable]
	for _, p := range positions {
		b, err := c.Put(data, v.Type.DType, s.layouts[variable].Local(), devices[p])
		if err != nil {
			return fmt.Errorf("train: putting %s on device %d: %w", v.Name, p, err)
		}
		if old := s.bufs[p][variable]; old != nil {
			_ = old.Close()
		}
		s.bufs[p][variable] = b
	}
	return nil
}

// index finds a variable by name, -1 if there is none.
func (s *State) index(name string) int {
	for i, v := range s.Vars {
		if v.Name == name {
			return i
		}
	}
	return -1
}
