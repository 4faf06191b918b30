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
	return 0, fmt.Errorf("no peak FLOP rate is known for device kind %q%s; give it as metrics.peak_tflops", deviceKind, nearest.Hint(deviceKind, known))
}

// Peak is the bf16 rate in FLOP/s of one device: what the recipe says
// (metrics.peak_tflops), else what is known of its kind. For the CPU it is 0,
// unknown: its rate depends on the machine and is not worth a comparison. For
// any other kind that is not known it is an error.
func (c Config) Peak(deviceKind string) (float64, error) {
	if c.PeakTFLOPs > 0 {
		return c.PeakTFLOPs * 1e12, nil
	}
	if strings.EqualFold(deviceKind, "cpu") {
		return 0, nil
	}
	return PeakBF16(deviceKind)
}
