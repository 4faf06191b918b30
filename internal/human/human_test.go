package human

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Count(0), "0"}, {Int(int64(math.MaxInt64)), "9,223,372,036,854,775,807"}, {Int(-1000), "-1,000"}, {Count(999.5), "1,000"}, {Count(999), "999"}, {Count(1000), "1,000"}, {Count(-1234567), "-1,234,567"}, {Count(-123), "-123"}, {Count(math.NaN()), Unknown},
		{Fixed(1234.5, 2), "1,234.50"}, {Fixed(-0.5, 1), "-0.5"}, {Fixed(math.Inf(1), 1), Unknown},
		{Short(8.08245), "8.082"}, {Short(0.00015), "0.00015"}, {Short(1234567), "1,234,567"}, {Short(1e9), "1e+09"}, {Short(0), "0"}, {Short(2.5), "2.5"},
		{SI(57914449920), "57.91 G"}, {SI(12), "12"}, {SI(-1500), "-1.5 k"},
		{Counted(1, "step"), "1 step"}, {Counted(int64(2048), "token"), "2,048 tokens"},
		{Memory(1 << 10), "0.0 MiB"}, {Memory(3 << 20), "3.0 MiB"}, {Memory(40 << 30), "40.00 GiB"},
		{Bytes(512), "512 B"}, {Size(2048), "2.0 KiB"}, {Bytes(3 << 20), "3.0 MiB"}, {Bytes(40 << 30), "40.00 GiB"},
		{Seconds(0), "0 s"}, {Seconds(2e-6), "2 µs"}, {Seconds(0.0125), "12.5 ms"}, {Seconds(29.3), "29.30 s"}, {Seconds(150), "2.5 min"}, {Seconds(7200), "2.00 h"}, {Seconds(3.6e6), "1,000 h"},
		{Trim("5.00 s"), "5 s"}, {Trim("0.50 GiB"), "0.5 GiB"}, {Trim("40.0%"), "40%"}, {Trim("1,000"), "1,000"}, {Trim("1.50e+09"), "1.50e+09"}, {Trim(Unknown), Unknown},
		{Percent(28.84), "28.8%"}, {Percent(math.NaN()), Unknown},
	} {
		require.Equal(t, c.want, c.got)
	}
}
