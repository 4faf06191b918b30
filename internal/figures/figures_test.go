package figures

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999.4: "999", 999.6: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		require.Equal(t, want, Thousands(v))
	}
	for v, want := range map[float64]string{0: "0", 29.304: "29.30 s", 0.1604: "160 ms", 2e-6: "2 µs", 12345: "12,345 s"} {
		require.Equal(t, want, Seconds(v))
	}
	require.Equal(t, "1.50 GiB", GiB(3<<29))
	require.Equal(t, "1.23s", Duration(1234567*time.Microsecond))
	require.Equal(t, "1 device", Count(1, "device"))
	require.Equal(t, "2,048 devices", Count(2048, "device"))
	require.Equal(t, "1m2s", Duration(62123*time.Millisecond))
}
