package train

import (
	"fmt"

	"titan/checkpoint"
	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/sharding"
)

// converted returns a checkpoint's tensors in the floating point types that are
// wanted of them: one of the model only may be stored in fewer bits. It is the
// checkpoint itself where no type differs.
func converted(c *checkpoint.Checkpoint, want []checkpoint.Tensor) (safetensors.Source, error) {
	stored := map[string]safetensors.Entry{}
	for _, e := range c.Entries() {
		stored[e.Name] = e
	}
	tensors := append([]checkpoint.Tensor(nil), want...)
	s := &convertedSource{Checkpoint: c, to: map[string]dtype.DType{}, from: map[string]dtype.DType{}}
	for i, t := range tensors {
		if e, ok := stored[t.Name]; ok && e.DType != t.DType && e.DType.IsFloat() && t.DType.IsFloat() {
			s.from[t.Name], s.to[t.Name] = e.DType, t.DType
			tensors[i].DType = e.DType
		}
	}
	if err := c.Check(tensors); err != nil {
		return nil, err
	}
	if len(s.to) == 0 {
		return c, nil
	}
	return s, nil
}

type convertedSource struct {
	*checkpoint.Checkpoint
	from, to map[string]dtype.DType
}

func (s *convertedSource) Entries() []safetensors.Entry {
	list := append([]safetensors.Entry(nil), s.Checkpoint.Entries()...)
	for i := range list {
		if d, ok := s.to[list[i].Name]; ok {
			list[i].DType = d
		}
	}
	return list
}

func (s *convertedSource) ReadRegion(name string, r sharding.Region, dst []byte) error {
	to, ok := s.to[name]
	if !ok {
		return s.Checkpoint.ReadRegion(name, r, dst)
	}
	from := s.from[name]
	raw := make([]byte, r.Elements()*from.Size())
	if len(dst) != r.Elements()*to.Size() {
		return fmt.Errorf("train: %s: %d bytes for %d elements of %v", name, len(dst), r.Elements(), to)
	}
	if err := s.Checkpoint.ReadRegion(name, r, raw); err != nil {
		return err
	}
	xs := make([]float32, r.Elements())
	for i := range xs {
		xs[i] = float32(dtype.Float(from, raw, i))
	}
	out, err := dtype.FromFloat32(to, xs)
	copy(dst, out)
	return err
}
