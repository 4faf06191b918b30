package mesh

import (
	"fmt"
	"slices"
	"strings"

	"titan/internal/nearest"
)

// Chip holds the published facts of one TPU generation. Rates and sizes are per
// chip unless they say otherwise; a chip can be several devices.
type Chip struct {
	// Kind is the name in topologies: "v5e" in "v5e:4x4".
	Kind string
	// DeviceKinds are the names by which runtimes report its devices.
	DeviceKinds []string
	// PeakBF16 is the dense bf16 matrix rate in FLOP/s.
	PeakBF16 float64
	// PeakFP8 is the dense fp8 matrix rate in FLOP/s, 0 where the chip has none
	// published.
	PeakFP8 float64
	// HBMBytes is the advertised memory; what a program may use is less, and
	// only the runtime knows it.
	HBMBytes int64
	// HBMBandwidth is in bytes/s.
	HBMBandwidth float64
	// ICIBandwidth is the sum over all inter-chip links and both directions, in
	// bytes/s.
	ICIBandwidth float64
	// DCNBandwidth is the chip's share of its host's data-centre network in one
	// direction, in bytes/s.
	DCNBandwidth float64
	// Cores is the number of TensorCores.
	Cores int
	// Devices is the number of devices that a runtime shows for one chip.
	Devices int
	// VMEMBytes is the vector memory of one core.
	VMEMBytes int64
	// Dims is the number of dimensions of the torus: 2 or 3.
	Dims int
	// MaxChips is the largest slice that one job can get.
	MaxChips int
	// HostBytes is a chip's share of the memory of its host.
	HostBytes int64
	// HostChips are the numbers of chips that hosts come with, the usual one of
	// larger slices first.
	HostChips []int
}

const (
	tera = 1e12
	giga = 1e9
	gib  = 1 << 30
	mib  = 1 << 20
)

// chips is the table of all known generations.
//
// Sources: Google Cloud TPU documentation, pages "TPU v4", "TPU v5e", "TPU
// v5p", "TPU v6e" and "TPU7x (Ironwood)": compute, HBM, ICI (bidirectional) and
// DCN per chip, pod sizes, the 6144-chip limit of a v5p job; DCN of v5e is 6.4
// Tb/s of a pod over 256 chips. "How to Scale Your Model"
// (jax-ml.github.io/scaling-book, part 2): ICI of v4, six links of 45 GB/s each
// way, and its DCN. VMEM and device names: JAX 0.10.2 (pallas/mosaic/tpu_info),
// names also as libtpu 0.0.52 reports them. Memory of hosts: the machine types of
// Google Cloud with most chips of slices (ct4p-hightpu-4t 407 GB, ct5lp-hightpu-4t
// 192, ct5p-hightpu-4t 448, ct6e-standard-4t 720, tpu7x-standard-4t 960).
//
// The scaling book counts a tenth less ICI bandwidth for v5e and later (45 and
// 90 GB/s a link and direction) than the documentation advertises.
var chips = []Chip{
	{
		Kind: "v4", DeviceKinds: []string{"TPU v4"},
		PeakBF16: 275 * tera, HBMBytes: 32 * gib, HBMBandwidth: 1200 * giga,
		ICIBandwidth: 6 * 90 * giga, DCNBandwidth: 50.0 / 8 * giga,
		// A v4 chip runs as one device (megacore). Compiling ahead of time
		// libtpu lists two, so count devices by what the runtime says.
		Cores: 2, Devices: 1, VMEMBytes: 16 * mib,
		Dims: 3, MaxChips: 4096, HostChips: []int{4}, HostBytes: 407 / 4.0 * giga,
	},
	{
		Kind: "v5e", DeviceKinds: []string{"TPU v5 lite", "TPU v5e"},
		PeakBF16: 197 * tera, HBMBytes: 16 * gib, HBMBandwidth: 819 * giga,
		ICIBandwidth: 400 * giga, DCNBandwidth: 6400.0 / 256 / 8 * giga,
		Cores: 1, Devices: 1, VMEMBytes: 128 * mib,
		Dims: 2, MaxChips: 256, HostChips: []int{4, 1, 8}, HostBytes: 192 / 4.0 * giga,
	},
	{
		Kind: "v5p", DeviceKinds: []string{"TPU v5", "TPU v5p"},
		PeakBF16: 459 * tera, PeakFP8: 459 * tera, HBMBytes: 95 * gib, HBMBandwidth: 2765 * giga,
		ICIBandwidth: 1200 * giga, DCNBandwidth: 50.0 / 8 * giga,
		Cores: 2, Devices: 1, VMEMBytes: 64 * mib,
		Dims: 3, MaxChips: 6144, HostChips: []int{4}, HostBytes: 448 / 4.0 * giga,
	},
	{
		Kind: "v6e", DeviceKinds: []string{"TPU v6 lite", "TPU v6e"},
		PeakBF16: 918 * tera, PeakFP8: 918 * tera, HBMBytes: 32 * gib, HBMBandwidth: 1638 * giga,
		ICIBandwidth: 800 * giga, DCNBandwidth: 100.0 / 8 * giga,
		Cores: 1, Devices: 1, VMEMBytes: 128 * mib,
		Dims: 2, MaxChips: 256, HostChips: []int{4, 1, 8}, HostBytes: 720 / 4.0 * giga,
	},
	{
		Kind: "tpu7x", DeviceKinds: []string{"TPU7x"},
		PeakBF16: 2307 * tera, PeakFP8: 4614 * tera, HBMBytes: 192 * gib, HBMBandwidth: 7380 * giga,
		ICIBandwidth: 1200 * giga, DCNBandwidth: 100.0 / 8 * giga,
		Cores: 2, Devices: 2, VMEMBytes: 64 * mib,
		Dims: 3, MaxChips: 9216, HostChips: []int{4, 1}, HostBytes: 960 / 4.0 * giga,
	},
}

// otherNames are names in use elsewhere that topologies do not take.
var otherNames = map[string]string{
	"v5litepod": "v5e", "v5lite": "v5e", "trillium": "v6e",
	"v7": "tpu7x", "v7x": "tpu7x", "tpu7": "tpu7x", "tpuv7x": "tpu7x", "ironwood": "tpu7x",
}

// Chips returns the facts of all known generations, oldest first.
func Chips() []Chip {
	all := make([]Chip, len(chips))
	for i, c := range chips {
		all[i] = c.clone()
	}
	return all
}

func (c Chip) clone() Chip {
	c.DeviceKinds = slices.Clone(c.DeviceKinds)
	c.HostChips = slices.Clone(c.HostChips)
	return c
}

// ChipOf returns the facts of a generation by its name in topologies ("v5e") or
// by a device kind that a runtime reports ("TPU v5 lite"). An unknown one is an
// error: a guessed peak would make every figure derived from it wrong.
func ChipOf(kind string) (Chip, error) {
	names := make([]string, len(chips))
	for i, c := range chips {
		if c.Kind == kind || slices.Contains(c.DeviceKinds, kind) {
			return c.clone(), nil
		}
		names[i] = c.Kind
	}
	hint := nearest.Hint(kind, names)
	if n, ok := otherNames[strings.ToLower(kind)]; ok {
		hint = fmt.Sprintf("; did you mean %q?", n)
	} else if nearest.Name(kind, names) != "" {
		hint += " Known are " + strings.Join(names, ", ") + "."
	}
	return Chip{}, fmt.Errorf("mesh: unknown TPU kind %q%s", kind, hint)
}

// PeakBF16PerDevice returns the dense bf16 rate of one device in FLOP/s.
func (c Chip) PeakBF16PerDevice() float64 { return c.PeakBF16 / float64(max(c.Devices, 1)) }

// HBMPerDevice returns the advertised memory of one device in bytes.
func (c Chip) HBMPerDevice() int64 { return c.HBMBytes / int64(max(c.Devices, 1)) }

// ICILinks returns the number of inter-chip links: two for each dimension of
// the torus.
func (c Chip) ICILinks() int { return 2 * c.Dims }

// ICILinkBandwidth returns what one inter-chip link carries in one direction,
// in bytes/s.
func (c Chip) ICILinkBandwidth() float64 {
	return c.ICIBandwidth / float64(2*max(c.ICILinks(), 1))
}

// HBMBandwidthPerDevice returns the memory bandwidth of one device in bytes/s.
func (c Chip) HBMBandwidthPerDevice() float64 { return c.HBMBandwidth / float64(max(c.Devices, 1)) }
