package generate

import (
	"fmt"

	"titan/dtype"
	"titan/graph"
	"titan/models/decoder"
)

// inputs of an extension, after the parameters in the order of Config.Params.
const (
	inKeys = iota
	inValues
	inTokens
	inStart
	inLast
)

// BuildExtend traces the program that reads T tokens of one sequence behind what a
// cache of the given length holds; see decoder.Model.Extend. Its inputs are the
// parameters (matrices in the compute type, vectors in f32), the keys and the
// values (donated), tokens s32 [1, T], start and last s32; its outputs the keys,
// the values, and logits f32 [1, V].
func BuildExtend(c decoder.Config, compute dtype.DType, T, length int) (*graph.Module, error) {
	return graph.Trace(fmt.Sprintf("extend_%d", T), nil, func(b *graph.Builder) error {
		params := map[string]*graph.Value{}
		for _, p := range c.Params() {
			params[p.Name] = b.Input(p.Name, p.Type(storedType(p, compute)))
		}
		t := c.CacheType(1, length, compute)
		cache := decoder.Cache{Keys: b.Input("keys", t, graph.Donated()), Values: b.Input("values", t, graph.Donated())}
		next := decoder.Next{
			Tokens: b.Input("tokens", graph.T(dtype.S32, 1, T)),
			Start:  b.Input("start", graph.T(dtype.S32)),
			Last:   b.Input("last", graph.T(dtype.S32)),
		}
		m := &decoder.Model{Config: c, Placement: decoder.Single{Compute: compute}}
		logits, extended := m.Extend(b, params, cache, next)
		b.Output("keys", extended.Keys, graph.Into(cache.Keys))
		b.Output("values", extended.Values, graph.Into(cache.Values))
		b.Output("logits", logits)
		return nil
	})
}

// storedType is the type of a parameter on the device: computing must not convert
// a matrix for every token.
func storedType(p decoder.Param, compute dtype.DType) dtype.DType {
	if vector(p) {
		return dtype.F32
	}
	return compute
}

// vector says whether the parameter, or a layer's row of it, is one.
func vector(p decoder.Param) bool {
	rank := len(p.Shape)
	if p.Axes[0] == decoder.AxisLayer {
		rank--
	}
	return rank < 2
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
