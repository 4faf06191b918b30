package metrics

import (
	"errors"
	"math"
	"unicode"

	"titan/internal/recipekey"
)

// Cost is the recipe's section [cost]: what chips cost, for comparisons. Nothing
// of a run depends on it.
type Cost struct {
	PricePerChipHour float64 `toml:"price_per_chip_hour" doc:"price of one chip for an hour, for titan compare and report; of the host with virtual devices; 0: unknown"`
	Currency         string  `toml:"currency" doc:"currency of the price; costs in different currencies are not compared"`
}

// DefaultCost returns the values of [cost] in a recipe that does not set them.
func DefaultCost() Cost { return Cost{Currency: "USD"} }

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Cost) Validate() error {
	var errs []error
	if !(c.PricePerChipHour >= 0) || math.IsInf(c.PricePerChipHour, 0) {
		errs = append(errs, recipekey.Errorf("cost.price_per_chip_hour", "is %g and must be positive, or 0 for an unknown price", c.PricePerChipHour))
	}
	letters := 0
	for _, r := range c.Currency {
		if !unicode.IsLetter(r) && !unicode.Is(unicode.Sc, r) {
			letters = -1
			break
		}
		letters++
	}
	if letters < 1 || letters > 8 {
		errs = append(errs, recipekey.Errorf("cost.currency", "is %q and must be the name of a currency, such as \"USD\"", c.Currency))
	}
	return errors.Join(errs...)
}

// Tokens is what so many tokens cost at tps tokens a second and chip.
func (c Cost) Tokens(tokens, tps float64) float64 {
	return c.Hours(tokens / tps / 3600)
}

// Hours is what chips cost for so many chip-hours.
func (c Cost) Hours(chipHours float64) float64 { return c.PricePerChipHour * chipHours }
