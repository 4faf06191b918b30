package generate

import (
	"fmt"

	"titan/dtype"
	"titan/graph"
	"titan/models/decoder"
)

// BuildExtend traces the program that reads T tokens of one sequence behind what
// caches of the given length hold; see decoder.Model.Extend. Its inputs are the
// parameters of Config.Rows (matrices in the compute type, vectors in f32), then
// every layer's keys and values (donated), tokens s32 [1, T], start and last s32; its
// outputs the layers' keys and values, and logits f32 [1, V].
func BuildExtend(c decoder.Config, compute dtype.DType, T, length int) (*graph.Module, error) {
	return graph.Trace(fmt.Sprintf("extend_%d", T), nil, func(b *graph.Builder) error {
		params := map[string]*graph.Value{}
		for _, r := range c.Rows() {
			params[r.Name] = b.Input(r.Name, r.Type(storedType(r, compute)))
		}
		t := c.CacheType(1, length, compute)
		var caches []decoder.Cache
		for i := range c.Layers {
			caches = append(caches, decoder.Cache{
				Keys: b.Input(fmt.Sprintf("keys.%d", i), t, graph.Donated()), Values: b.Input(fmt.Sprintf("values.%d", i), t, graph.Donated()),
			})
		}
		next := decoder.Next{
			Tokens: b.Input("tokens", graph.T(dtype.S32, 1, T)),
			Start:  b.Input("start", graph.T(dtype.S32)),
			Last:   b.Input("last", graph.T(dtype.S32)),
		}
		m := &decoder.Model{Config: c, Placement: decoder.Single{Compute: compute}}
		logits, extended := m.Extend(b, params, caches, next)
		for i, x := range extended {
			b.Output(fmt.Sprintf("keys.%d", i), x.Keys, graph.Into(caches[i].Keys))
			b.Output(fmt.Sprintf("values.%d", i), x.Values, graph.Into(caches[i].Values))
		}
		b.Output("logits", logits)
		return nil
	})
}

// storedType is the type of a parameter on the device: computing must not convert
// a matrix for every token.
func storedType(r decoder.Row, compute dtype.DType) dtype.DType {
	if len(r.Shape) < 2 {
		return dtype.F32
	}
	return compute
}

// maxChunk is how many tokens of a prompt are read at a time: enough for matrix
// products to be efficient, few enough for scores against a long cache to fit.
const maxChunk = 256

// minChunk is the smallest program but that of a single token.
const minChunk = 16

// chunkFor returns for how many tokens the program is that reads n ≤ most: powers
// of two, so that prompts of all lengths share few programs.
func chunkFor(n, most int) int {
	if n == 1 {
		return 1
	}
	size := min(minChunk, most)
	for size < n {
		size *= 2
	}
	return size
}

// chunksFor returns the programs with which n tokens are read.
func chunksFor(n, most int) (sizes []int) {
	if n > most {
		sizes = append(sizes, most)
	}
	if rest := n % most; rest > 0 {
		return append(sizes, chunkFor(rest, most))
	}
	return append(sizes, chunkFor(most, most))
}

// cacheLength returns the length of a cache for n tokens: a power of two, so that
// programs are used again, and a multiple of the chunks that are read.
func cacheLength(n int) int {
	size := 64
	for size < n {
		size *= 2
	}
	return size
}
