package metrics

import (
	"fmt"
	"strings"

	"titan/internal/nearest"
	"titan/mesh"
)

// gpuPeaks are dense bf16 rates in FLOP/s per device, from the vendors' data
// sheets as TorchTitan lists them.
var gpuPeaks = []struct {
	name string
	peak float64
}{
	{"A100", 312e12}, {"H200", 989e12}, {"H100", 989e12}, {"GB200", 2500e12}, {"B200", 2250e12},
	{"MI300X", 1300e12}, {"MI355X", 2500e12},
}

// PeakBF16 is the dense bf16 rate in FLOP/s of one device of the kind that the
// runtime reports ("TPU v5 lite", "NVIDIA H100 80GB HBM3") or that a topology
// names ("tpu7x"). An unknown kind is an error: a guess would make every
// utilisation wrong.
func PeakBF16(deviceKind string) (float64, error) {
	if c, err := mesh.ChipOf(deviceKind); err == nil {
		return c.PeakBF16 / float64(c.Devices), nil
	}
	var known []string
	for _, g := range gpuPeaks {
		if strings.Contains(strings.ToUpper(deviceKind), g.name) {
			return g.peak, nil
		}
		known = append(known, g.name)
	}
	for _, c := range mesh.Chips() {
		known = append(known, c.Kind)
	}
	return 0, fmt.Errorf("no peak FLOP rate is known for device kind %q%s; give it in the recipe", deviceKind, nearest.Hint(deviceKind, known))
}
