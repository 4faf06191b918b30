package hlo

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func noted(t *testing.T, name string) *Instruction {
	t.Helper()
	config, err := os.ReadFile("testdata/rings/" + name + ".json")
	require.NoError(t, err)
	return &Instruction{BackendConfig: config}
}

// What libtpu 0.0.52 noted for steps of Llama 3 8B.
func TestStrategy(t *testing.T) {
	s, ok := noted(t, "all_gather_v6e_2x4").Strategy()
	require.True(t, ok)
	require.Equal(t, Strategy{
		Colors: [][]Ring{{{Side: -1, Devices: 8}}, {{Side: -1, Devices: 8, Backward: true}}},
		Next:   []int{1, 3, 0, 5, 2, 7, 4, 6}, Previous: []int{2, 0, 4, 1, 6, 3, 7, 5},
	}, s)

	s, ok = noted(t, "all_reduce_v6e_16x16").Strategy()
	require.True(t, ok)
	x, y := Ring{Side: 0, Torus: true}, Ring{Side: 1, Torus: true}
	back := func(r Ring) Ring { r.Backward = true; return r }
	require.Equal(t, Strategy{Colors: [][]Ring{{x, y}, {back(x), back(y)}, {y, x}, {back(y), back(x)}}}, s)
}

// Notes that are not understood are none.
func TestUnknownStrategy(t *testing.T) {
	config := string(noted(t, "all_gather_v6e_2x4").BackendConfig)
	for old, to := range map[string]string{
		"UNIDIR_CW":           "BIDIR",
		`"core_count":"8"`:    `"core_count":"-8"`,
		`"core_count":"8",`:   "",
		`"constant_literals"`: `"others"`,
		"0,1,2,32,":           "0,1,2,31,",
		"1,3,0,32,":           "1,300,0,32,",
		"color_strategies":    "colour_strategies",
		"{":                   "",
	} {
		require.Contains(t, config, old)
		_, ok := (&Instruction{BackendConfig: []byte(strings.Replace(config, old, to, 1))}).Strategy()
		require.False(t, ok, old)
	}
	_, ok := (&Instruction{}).Strategy()
	require.False(t, ok)
	config = string(noted(t, "all_reduce_v6e_16x16").BackendConfig)
	_, ok = (&Instruction{BackendConfig: []byte(strings.Replace(config, "DIM_X_TORUS", "DIM_Q_TORUS", 1))}).Strategy()
	require.False(t, ok)
}
