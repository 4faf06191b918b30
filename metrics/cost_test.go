package metrics

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCost(t *testing.T) {
	c := Cost{PricePerChipHour: 2, Currency: "EUR"}
	// 3.6e9 tokens at 1000 tokens a second are 1000 chip-hours.
	require.Equal(t, 2000.0, c.Tokens(3.6e9, 1000))
	require.Equal(t, 5.0, c.Hours(2.5))
	require.NoError(t, c.Validate())
	require.NoError(t, DefaultCost().Validate())
	require.NoError(t, Cost{Currency: "€"}.Validate())
	for _, bad := range []Cost{{Currency: ""}, {Currency: "two words"}, {Currency: "MUCHTOOLONG"}, {math.NaN(), "USD"}, {math.Inf(1), "USD"}, {-1, "USD"}} {
		require.ErrorContains(t, bad.Validate(), "cost.")
	}
}
