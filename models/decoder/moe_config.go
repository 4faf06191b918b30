package decoder

import (
	"errors"
	"math"

	"titan/internal/recipekey"
)

// MoEConfig is the recipe's section [moe]: how tokens reach their experts, and how
// these are kept equally busy.
type MoEConfig struct {
	Dispatch       string  `toml:"dispatch" doc:"dropless: every expert takes all tokens that choose it; capacity: at most capacity_factor times its share of each device's tokens, and those that come later in the batch are dropped"`
	CapacityFactor float64 `toml:"capacity_factor" doc:"room of an expert for a device's tokens, over its share of them; with dispatch = \"capacity\""`
	BufferFactor   float64 `toml:"expert_buffer_factor" doc:"room for tokens that devices send each other's experts, over the mean; more takes memory and time, less takes another exchange when they do not fit; with dispatch = \"dropless\""`
	LoadBalance    string  `toml:"load_balance" doc:"aux_loss: a loss weighted by model.override.aux_loss_coef; bias: a bias on the choice of experts that every step corrects, without a loss; none"`
	BiasUpdateRate float64 `toml:"bias_update_rate" doc:"by how much a step corrects the bias of an expert; with load_balance = \"bias\""`
}

// DefaultMoEConfig returns the values of [moe] in a recipe that does not set them.
// The capacity is that of Switch Transformers, the rate that of DeepSeek-V3.
func DefaultMoEConfig() MoEConfig {
	return MoEConfig{Dispatch: "dropless", CapacityFactor: 1.25, BufferFactor: DefaultExpertBuffer, LoadBalance: "aux_loss", BiasUpdateRate: 0.001}
}

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c MoEConfig) Validate() error {
	errs := []error{
		recipekey.OneOf("moe.dispatch", c.Dispatch, "dropless", "capacity"),
		recipekey.OneOf("moe.load_balance", c.LoadBalance, "aux_loss", "bias", "none"),
	}
	for _, f := range []struct {
		key         string
		value       float64
		least, most float64
	}{
		{"moe.capacity_factor", c.CapacityFactor, 0, 1024},
		{"moe.expert_buffer_factor", c.BufferFactor, 0, 1024},
		{"moe.bias_update_rate", c.BiasUpdateRate, 0, 1},
	} {
		if !(f.value > f.least && f.value <= f.most) || math.IsInf(f.value, 0) {
			errs = append(errs, recipekey.Errorf(f.key, "is %g and must be more than %g and at most %g", f.value, f.least, f.most))
		}
	}
	return errors.Join(errs...)
}

// Apply returns the model with what c says of its experts; a dense one as it is.
func (c MoEConfig) Apply(m Config) Config {
	if m.MoE == nil {
		return m
	}
	moe := *m.MoE
	if c.Dispatch == "capacity" {
		moe.CapacityFactor = c.CapacityFactor
	}
	if c.LoadBalance != "aux_loss" {
		moe.AuxLossCoef = 0
	}
	if c.LoadBalance == "bias" {
		moe.BiasRate = c.BiasUpdateRate
	}
	m.MoE = &moe
	return m
}
