package decoder

import (
	"errors"
	"slices"
	"strings"

	"titan/internal/nearest"
	"titan/internal/recipekey"
)

// Quantize is the recipe's section [quantize]: which products are computed in
// narrower types.
type Quantize struct {
	Linear QuantizeLinear `toml:"linear" doc:"dense projections"`
}

// QuantizeLinear is the section [quantize.linear].
type QuantizeLinear struct {
	Float8 Float8 `toml:"float8" doc:"products in 8-bit floats"`
}

// Names of the ways to scale operands to 8-bit floats, as in TorchAO.
const (
	// RecipeTensorwise has one scale for a tensor, and e5m2 for gradients.
	RecipeTensorwise = "tensorwise"
	// RecipeRowwise has a scale, a power of two, for every row that is summed over.
	RecipeRowwise = "rowwise"
	// RecipeRowwiseGradHP is RecipeRowwise with the matrices' gradients computed in
	// the compute type.
	RecipeRowwiseGradHP = "rowwise_with_gw_hp"
)

// Float8 is the section [quantize.linear.float8]: it says which of a model's dense
// projections multiply in 8-bit floats, and how operands are scaled.
type Float8 struct {
	Enable bool     `toml:"enable" doc:"multiply the dense projections of attention and feed-forward layers in 8-bit floats, forward and backward; docs/float8.md"`
	Recipe string   `toml:"recipe_name" doc:"tensorwise: one scale for a tensor, gradients in e5m2; rowwise: a scale for each row that is summed over; rowwise_with_gw_hp: so, but gradients of parameters in mixed_precision_param"`
	Filter []string `toml:"filter_fqns" doc:"parameters that are not quantized: names, or parts of names; output and router, which never are, must be in it"`
	// AllGather is TorchTitan's key; see Validate.
	AllGather bool `toml:"enable_fsdp_float8_all_gather" doc:"with tensorwise: parameters are gathered in 8-bit floats, half the bytes of bfloat16"`
}

// DefaultQuantize quantizes nothing.
func DefaultQuantize() Quantize {
	return Quantize{QuantizeLinear{Float8{Recipe: RecipeTensorwise, Filter: []string{"output", "router"}}}}
}

const (
	float8Key       = "quantize.linear.float8"
	float8FilterKey = float8Key + ".filter_fqns"
)

// Validate returns mistakes that do not depend on the model, each a
// *recipekey.Error.
func (q Quantize) Validate() error {
	f := q.Linear.Float8
	errs := []error{recipekey.OneOf(float8Key+".recipe_name", f.Recipe, RecipeTensorwise, RecipeRowwise, RecipeRowwiseGradHP)}
	if slices.Contains(f.Filter, "") {
		errs = append(errs, recipekey.Errorf(float8FilterKey, "has an empty name, which is part of every name; leave it out, or set enable to false"))
	}
	if f.AllGather && f.Recipe != RecipeTensorwise {
		errs = append(errs, recipekey.Errorf(float8Key+".enable_fsdp_float8_all_gather", "is true, which needs recipe_name %q: rows of a parameter that is split over devices do not have their scales yet", RecipeTensorwise))
	}
	return errors.Join(errs...)
}

// Has reports whether products with a parameter are in 8-bit floats.
func (f Float8) Has(name string) bool {
	return f.Enable && isProjection(name) && !f.filters(name)
}

func (f Float8) filters(name string) bool {
	return slices.ContainsFunc(f.Filter, func(part string) bool { return strings.Contains(name, part) })
}

// projections are the matrices that project multiplies by.
var projections = []string{"layers.wq", "layers.wk", "layers.wv", "layers.wo", "layers.w_gate", "layers.w_up", "layers.w_down"}

func isProjection(name string) bool { return slices.Contains(projections, name) }

// multiple is what the dimensions of 8-bit products must be multiples of: fewer
// elements do not fill what matrix units read at once.
const multiple = 16

// TokenMultiple is what the tokens that a device works on at a time must be a
// multiple of: gradients of parameters are summed over them.
func (f Float8) TokenMultiple(c Config) int {
	if f.Recipe == RecipeRowwiseGradHP || !slices.ContainsFunc(c.Params(), func(p Param) bool { return f.Has(p.Name) }) {
		return 1
	}
	return multiple
}

// Fits returns, as *recipekey.Error, what cannot be quantized as f says of a model
// whose matrices tensor devices share.
func (f Float8) Fits(c Config, tensor int) error {
	if !f.Enable {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, recipekey.Errorf(float8FilterKey, format, args...))
	}
	var names []string
	quantized := false
	for _, p := range c.Params() {
		names = append(names, p.Name)
		if p.Name == "output" || p.Name == "layers.router" {
			if !f.filters(p.Name) {
				bad("lacks %q: the output layer and routers are always multiplied in mixed_precision_param; put it back", strings.TrimPrefix(p.Name, "layers."))
			}
			continue
		}
		if !f.Has(p.Name) {
			continue
		}
		quantized = true
		in, out := c.matrix(p, tensor)
		if in%multiple != 0 || out%multiple != 0 {
			bad("does not have %q, a matrix of %d × %d on each device: both must be multiples of %d for products in 8-bit floats; add it, or change the model's dimensions or parallelism.tensor_parallel_degree", p.Name, in, out, multiple)
		}
	}
	for _, part := range f.Filter {
		always := part == "output" || part == "router"
		if !always && !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, part) }) {
			bad("has %q, which is in no parameter's name%s", part, nearest.Hint(part, projections))
		}
	}
	if !quantized && len(errs) == 0 {
		bad("leaves no dense projection to quantize; shorten it, or set %s.enable to false", float8Key)
	}
	return errors.Join(errs...)
}

// matrix returns what one of tensor devices has of a projection's rows, which are
// summed over, and columns.
func (c *Config) matrix(p Param, tensor int) (in, out int) {
	in, out = 1, 1
	for i, axis := range p.Axes {
		n := p.Shape[i]
		switch axis {
		case AxisLayer:
			continue
		case AxisHeads, AxisMLP, AxisKVHeads:
			n = max(1, n/tensor)
		}
		first := i == 1 || p.Name == "layers.wo" && i == 2
		if first {
			in *= n
		} else {
			out *= n
		}
	}
	return in, out
}
