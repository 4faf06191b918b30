package configs

import (
	"reflect"

	"titan/internal/recipekey"
	"titan/models/decoder"
)

// experts checks what a recipe says of experts against its model.
func (c *checking) experts() {
	r := c.recipe
	if !c.clean("model", "moe") {
		return
	}
	m, err := r.Model.Decoder()
	if err != nil {
		return // found elsewhere
	}
	if m.MoE == nil {
		set, plain := reflect.ValueOf(r.MoE), reflect.ValueOf(decoder.DefaultMoEConfig())
		for i := range set.NumField() {
			if !set.Field(i).Equal(plain.Field(i)) {
				c.add(recipekey.Errorf("moe."+set.Type().Field(i).Tag.Get("toml"), "is for models with experts, and %s %s has none; leave it out", r.Model.Name, r.Model.Flavor))
			}
		}
		return
	}
	if coef := r.Model.Override.AuxLossCoef; coef != nil && *coef != 0 && r.MoE.LoadBalance != "aux_loss" {
		c.add(recipekey.Errorf("model.override.aux_loss_coef", "is %g, but moe.load_balance = %q has no loss for balance; leave one of them out", *coef, r.MoE.LoadBalance))
	}
}
