package kernels

import (
	"errors"

	"titan/dtype"
	"titan/internal/recipekey"
)

// The ways in which attention and experts can be computed.
const (
	Auto  = "auto"
	Tile  = "tile"
	Plain = "plain"
)

// Config is the recipe's section [kernels]: what is computed by tile kernels.
type Config struct {
	Attention      string         `toml:"attention" doc:"auto: tile kernels on TPUs, plain operations elsewhere and for lengths that tiles do not divide; tile: tile kernels, which are interpreted, slowly, where there is no TPU; plain"`
	Experts        string         `toml:"experts" doc:"auto: products of experts by tile kernels on TPUs, by plain operations elsewhere; tile: tile kernels, which are interpreted, slowly, where there is no TPU; plain"`
	AttentionTiles AttentionTiles `toml:"attention_tiles" doc:"sizes of attention's tiles"`
	ExpertTiles    GroupedTiles   `toml:"expert_tiles" doc:"sizes of the tiles of experts' products"`
}

// DefaultConfig returns the values of [kernels] in a recipe that does not set them.
func DefaultConfig() Config { return Config{Attention: Auto, Experts: Auto} }

// Validate returns all mistakes in c, each a *recipekey.Error. Rows of tiles are
// multiples of what bf16's native tile has, columns of its lanes.
func (c Config) Validate() error {
	errs := []error{
		recipekey.OneOf("kernels.attention", c.Attention, Auto, Tile, Plain),
		recipekey.OneOf("kernels.experts", c.Experts, Auto, Tile, Plain),
		aligned("kernels.attention_tiles.queries", c.AttentionTiles.Q, lanes),
		aligned("kernels.attention_tiles.keys", c.AttentionTiles.K, lanes),
	}
	for _, t := range []struct {
		name  string
		tiles MatmulTiles
	}{{"product", c.ExpertTiles.Product}, {"lhs", c.ExpertTiles.LHS}, {"rhs", c.ExpertTiles.RHS}} {
		key := "kernels.expert_tiles." + t.name
		errs = append(errs, aligned(key+".m", t.tiles.M, sublanes(dtype.BF16)), aligned(key+".k", t.tiles.K, lanes), aligned(key+".n", t.tiles.N, lanes))
	}
	return errors.Join(errs...)
}

// aligned refuses a size that is no multiple of m; 0 is chosen by us.
func aligned(key string, size, m int) error {
	if size >= 0 && size%m == 0 {
		return nil
	}
	what := "a multiple"
	if size < 0 {
		what = "a positive multiple"
	}
	return recipekey.Errorf(key, "is %d and must be %s of %d, the native tile's; the nearest that works is %d", size, what, m, max(m, (size+m/2)/m*m))
}

// Unit is what the numbers of queries and of keys that a device meets at a time must
// be multiples of, for attention by tile kernels on a TPU.
const Unit = lanes
