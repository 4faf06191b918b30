package compare

import (
	"fmt"
	"strconv"
	"strings"

	"titan/metrics"
	"titan/models"
)

// fromRecipe takes the aspects that the recipe tells.
func (r *Result) fromRecipe() {
	get := func(key string) string { return text(r.Recipe, key) }
	if name := get("model.name"); name != "" {
		r.Basis[Model] = modelName(name+" "+get("model.flavor"), r.Recipe, 0)
	}
	if s := get("training.seq_len"); s != "" {
		r.Basis[SeqLen] = s
	}
	if p := get("mesh.platform"); p != "" {
		r.Basis[Platform] = p
	}
	if p := get("training.mixed_precision_param"); p != "" {
		r.Basis[Precision] = precision(p, get("quantize.linear.float8.enable") == "true")
	}
	if r.Recipe == nil {
		return
	}
	r.Basis[Peak] = "that of the device"
	if p := get("metrics.peak_tflops"); p != "" && p != "0" {
		r.Basis[Peak] = p + " TFLOP/s, by the recipe"
	}
	r.Basis[Routing] = "by the router"
	if get("debug.moe_force_load_balance") == "true" {
		r.Basis[Routing] = "forced balance"
	}
	var packing []string
	for _, k := range []struct{ key, means string }{
		{"data.isolate_documents", "attention keeps to documents"}, {"data.reset_positions", "positions begin anew with documents"},
		{"data.mask_boundaries", "first tokens of documents are not predicted"},
	} {
		if get(k.key) == "true" {
			packing = append(packing, k.means)
		}
	}
	r.Basis[Packing] = strings.Join(packing, ", ")
	if len(packing) == 0 {
		r.Basis[Packing] = "whole rows"
	}
	if d := datasets(r.Recipe); d != "" {
		r.Basis[Data] = d
	}
}

// datasets names what is trained on, "" if the recipe has none.
func datasets(recipe map[string]any) string {
	if d := text(recipe, "training.dataset_path"); d != "" {
		return d
	}
	var out []string
	for i := 0; ; i++ {
		path := text(recipe, fmt.Sprintf("data.sources[%d].path", i))
		if path == "" {
			return strings.Join(out, ", ")
		}
		if w := text(recipe, fmt.Sprintf("data.sources[%d].weight", i)); w != "" && w != "0" {
			path += " × " + w
		}
		out = append(out, path)
	}
}

// precision names the element type of products as sweeps do.
func precision(dtype string, float8 bool) string {
	if float8 {
		return "float8"
	}
	return dtype
}

// modelName says what is trained: a family and flavor, and what the recipe changes
// of its dimensions; without a recipe the number of parameters if it is not that of
// the flavor.
func modelName(name string, recipe map[string]any, params int64) string {
	var changed []string
	for _, key := range keys(recipe) {
		if k, ok := strings.CutPrefix(key, "model.override."); ok {
			changed = append(changed, k+"="+text(recipe, key))
		}
	}
	if len(changed) > 0 {
		return name + " with " + strings.Join(changed, ", ")
	}
	family, flavor, _ := strings.Cut(name, " ")
	if c, err := models.Lookup(family, flavor); err == nil && recipe == nil && params > 0 {
		if n, _, _ := c.Count(); n != params {
			return fmt.Sprintf("%s with %d parameters", name, params)
		}
	}
	return name
}

// priced takes the price of a chip from the recipe.
func (r *Result) priced() {
	if p, err := strconv.ParseFloat(text(r.Recipe, "cost.price_per_chip_hour"), 64); err == nil && p > 0 && finite(p) {
		r.SetPrice(p, text(r.Recipe, "cost.currency"))
	}
}

// SetPrice sets what a chip costs for an hour, and the costs that follow from it.
func (r *Result) SetPrice(perChipHour float64, currency string) {
	r.Price, r.Currency = perChipHour, currency
	delete(r.Basis, Currency)
	if currency != "" {
		r.Basis[Currency] = currency
	}
	delete(r.Figures, CostToken)
	if tps := r.Figures[TPSChip]; tps > 0 {
		r.set(CostToken, metrics.Cost{PricePerChipHour: perChipHour}.Tokens(1e9, tps))
	}
}
