package dtype_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
)

func TestNaNIsZeroInEveryInteger(t *testing.T) {
	for _, d := range []dtype.DType{dtype.S8, dtype.S16, dtype.S32, dtype.S64, dtype.U8, dtype.U16, dtype.U32, dtype.U64} {
		require.Equal(t, make([]byte, d.Size()), dtype.AppendFloat(nil, d, math.NaN()), d)
	}
}
