package configs

import (
	"fmt"

	"titan/internal/recipekey"
	"titan/kernels"
)

// kernels checks that tiles divide the tokens that attention has at a time.
func (c *checking) kernels() {
	r := c.recipe
	k := r.Kernels
	if !c.clean("kernels", keyContext) || k.Attention == kernels.Plain || k.Attention == kernels.Auto && r.Mesh.Platform != "tpu" {
		return
	}
	for _, l := range r.lengths() {
		if !c.clean(l.key) {
			continue
		}
		n, what := r.attentionPiece(l.n)
		if k.Attention == kernels.Tile && r.Mesh.Platform == "tpu" && n%kernels.Unit != 0 {
			c.add(recipekey.Errorf("kernels.attention", "is %q, and %s is %d: attention has %s %d tokens, which tiles divide only if they are a multiple of %d; set it to %q",
				k.Attention, l.key, l.n, what, n, kernels.Unit, kernels.Auto))
			continue
		}
		for _, t := range []struct {
			key  string
			size int
		}{{"kernels.attention_tiles.queries", k.AttentionTiles.Q}, {"kernels.attention_tiles.keys", k.AttentionTiles.K}} {
			if t.size > 0 && n%t.size != 0 {
				c.add(recipekey.Errorf(t.key, "is %d and must divide the %d tokens that attention has in %s (%s is %d)", t.size, n, what, l.key, l.n))
			}
		}
	}
}

// attentionPiece returns how many tokens of sequences of n attention meets at a
// time, and what they are.
func (r *Recipe) attentionPiece(n int) (int, string) {
	if cp := r.Parallelism.Context; cp > 1 {
		return n / (2 * cp), "chunks of"
	}
	return n, "sequences of"
}

// kernelWarnings returns where kernels are slow, or not used after all.
func (r *Recipe) kernelWarnings() []string {
	var out []string
	k := r.Kernels
	if p := r.Mesh.Platform; p == "cpu" || p == "cuda" {
		for _, use := range []struct{ key, how string }{{"attention", k.Attention}, {"experts", k.Experts}} {
			if use.how == kernels.Tile {
				out = append(out, fmt.Sprintf("kernels.%s is %q: %s has no tile kernels, they are interpreted, which is slow and for tests only", use.key, use.how, p))
			}
		}
	}
	if r.Mesh.Platform != "tpu" || k.Attention != kernels.Auto {
		return out
	}
	for _, l := range r.lengths() {
		if n, what := r.attentionPiece(l.n); n%kernels.Unit != 0 {
			out = append(out, fmt.Sprintf("%s is %d: attention has %s %d tokens, no multiple of %d, and is computed without tile kernels, some times slower", l.key, l.n, what, n, kernels.Unit))
		}
	}
	return out
}
