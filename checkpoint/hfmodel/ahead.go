package hfmodel

import (
	"slices"
	"sync"

	"titan/checkpoint/safetensors"
	"titan/sharding"
)

// ahead reads more of a source than is asked for and keeps it for a while. A
// checkpoint of many devices has every layer and expert in as many pieces, each
// in a chunk with those of its neighbours, and a chunk is read and verified
// whole; the files of an export ask for one layer, one expert after the other.
type ahead struct {
	safetensors.Source
	entries map[string]safetensors.Entry
	block   int // most bytes read at once
	total   int // most bytes kept

	mu   sync.Mutex
	kept []keptBlock // the one used last at the end
	size int
}

type keptBlock struct {
	name   string
	region sharding.Region
	data   []byte
}

func readAhead(src safetensors.Source, block, total int) *ahead {
	a := &ahead{Source: src, entries: map[string]safetensors.Entry{}, block: block, total: total}
	for _, e := range src.Entries() {
		a.entries[e.Name] = e
	}
	return a
}

// ReadRegion fills dst with a region of a tensor.
func (a *ahead) ReadRegion(name string, r sharding.Region, dst []byte) error {
	e, ok := a.entries[name]
	if !ok {
		return a.Source.ReadRegion(name, r, dst) // has the error
	}
	block, ok := grow(e, r, a.block)
	if !ok {
		return a.Source.ReadRegion(name, r, dst)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.kept, func(k keptBlock) bool { return k.name == name && contains(k.region, r) })
	if i < 0 {
		n := block.Elements() * e.DType.Size()
		for len(a.kept) > 0 && a.size+n > a.total {
			a.size -= len(a.kept[0].data)
			a.kept = slices.Delete(a.kept, 0, 1)
		}
		k := keptBlock{name, block, make([]byte, n)}
		if err := a.Source.ReadRegion(name, block, k.data); err != nil {
			return err
		}
		a.kept, a.size, i = append(a.kept, k), a.size+n, len(a.kept)
	}
	k := a.kept[i]
	a.kept = append(slices.Delete(a.kept, i, i+1), k)
	return sharding.CopyRegion(dst, r, k.data, k.region, e.DType.Size())
}

// grow returns the largest region around r of at most limit bytes that is whole
// in all dimensions after some first ones; those a region asked for later has in
// common. It is false if there is none larger than r.
func grow(e safetensors.Entry, r sharding.Region, limit int) (sharding.Region, bool) {
	if len(r.Offset) != len(e.Shape) || len(r.Size) != len(e.Shape) || r.Elements() == 0 {
		return r, false
	}
	for d, s := range e.Shape {
		if r.Offset[d] < 0 || r.Size[d] < 0 || r.Offset[d] > s-r.Size[d] {
			return r, false
		}
	}
	out := sharding.Region{Offset: slices.Clone(r.Offset), Size: slices.Clone(r.Size)}
	for d := range e.Shape {
		one := e.DType.Size() // bytes of one index of dimension d
		for k := range e.Shape {
			if k < d {
				one *= r.Size[k]
			} else if k > d {
				one *= e.Shape[k]
			}
		}
		n := min(limit/one, e.Shape[d])
		if n == 0 {
			continue // dimension d stays as it is asked for
		}
		lo := r.Offset[d] / n * n
		hi := min(lo+n, e.Shape[d])
		if lo > r.Offset[d] || hi < r.Offset[d]+r.Size[d] {
			return r, false // larger than a block, or over the border of two
		}
		out.Offset[d], out.Size[d] = lo, hi-lo
		for k := d + 1; k < len(e.Shape); k++ {
			out.Offset[k], out.Size[k] = 0, e.Shape[k]
		}
		return out, out.Elements() > r.Elements()
	}
	return r, false
}

// contains reports whether a region lies in another.
func contains(outer, r sharding.Region) bool {
	for d := range r.Offset {
		if r.Offset[d] < outer.Offset[d] || r.Offset[d]+r.Size[d] > outer.Offset[d]+outer.Size[d] {
			return false
		}
	}
	return true
}
