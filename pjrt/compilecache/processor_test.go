package compilecache

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const x86 = `processor	: 0
vendor_id	: GenuineIntel
cpu family	: 6
model		: 207
model name	: Intel(R) Xeon(R) Processor
stepping	: 2
microcode	: 0x1
cpu MHz		: 2100.0
flags		: fpu avx2 avx512f

processor	: 1
flags		: other
`

const arm = `processor	: 0
BogoMIPS	: 50.00
Features	: fp asimd sve
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x1
CPU part	: 0xd0c
CPU revision	: 1
`

func TestProcessor(t *testing.T) {
	require.NotEmpty(t, processor())
	require.Equal(t, processor(), processor())
	base := describeProcessor(x86)
	require.Contains(t, base, "avx512f")
	require.NotContains(t, base, "other")
	require.Equal(t, base, describeProcessor(strings.Replace(x86, "2100.0", "3100.0", 1)), "the clock may change")
	require.NotEqual(t, base, describeProcessor(strings.Replace(x86, " avx512f", "", 1)))
	require.NotEqual(t, base, describeProcessor(strings.Replace(x86, ": 207", ": 143", 1)))
	require.Contains(t, describeProcessor(arm), "Features=fp asimd sve")
	require.Contains(t, describeProcessor(arm), "CPU part=0xd0c")
	require.NotEmpty(t, features())
}
