package mesh

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"titan/internal/nearest"
	"titan/internal/recipekey"
)

// Config is the recipe's section [mesh]: the devices there are. How they are
// used is in [parallelism].
type Config struct {
	Platform string `toml:"platform" doc:"plugin that runs the program: cpu, tpu, cuda, or the path of a PJRT plugin"`
	Devices  int    `toml:"devices" doc:"number of devices, on cpu of virtual ones; 0: as many as the topology has or, without one, as [parallelism] asks for"`
	Topology string `toml:"topology" doc:"TPU machines, such as \"v5e:4x4\" or, two slices of them, \"tpu7x:8x8x16*2\"; empty: what there is at run time"`
}

var platforms = []string{"cpu", "tpu", "cuda"}

// MaxVirtualDevices is the most virtual devices a recipe can ask for on cpu:
// each has threads and memory of its own.
const MaxVirtualDevices = 1024

// maxDevices is far beyond any machine, and small enough to list.
const maxDevices = 1 << 20

// DefaultConfig returns the values of [mesh] in a recipe that does not set them.
func DefaultConfig() Config { return Config{Platform: "cpu"} }

// Validate returns all mistakes in c, each a *recipekey.Error.
func (c Config) Validate() error {
	var errs []error
	add := func(key, format string, args ...any) {
		errs = append(errs, recipekey.Errorf("mesh."+key, format, args...))
	}
	if !slices.Contains(platforms, c.Platform) && !strings.ContainsAny(c.Platform, `/\`) {
		hint := nearest.Hint(c.Platform, platforms)
		if strings.EqualFold(c.Platform, "gpu") {
			hint = `; did you mean "cuda"?`
		}
		add("platform", "is %q, which is neither a plugin nor a path%s", c.Platform, hint)
	}
	switch {
	case c.Devices < 0:
		add("devices", "is %d and must be positive, or 0 for as many as are needed", c.Devices)
	case c.Devices > maxDevices:
		add("devices", "is %d and must be at most %d", c.Devices, maxDevices)
	case c.Platform == "cpu" && c.Devices > MaxVirtualDevices:
		add("devices", "is %d; more than %d virtual devices on one machine are refused", c.Devices, MaxVirtualDevices)
	}
	if c.Topology == "" {
		return errors.Join(errs...)
	}
	t, err := ParseTopology(c.Topology)
	switch {
	case err != nil:
		add("topology", "%s", strings.TrimPrefix(err.Error(), "mesh: "))
	case t.Devices() > maxDevices:
		add("topology", "%v has %d devices, more than %d", t, t.Devices(), maxDevices)
	case c.Platform == "cpu" || c.Platform == "cuda":
		add("topology", "is %q, but platform is %q: topologies are those of TPUs; set platform = \"tpu\" or leave it out", c.Topology, c.Platform)
	case c.Devices > 0 && c.Devices != t.Devices():
		add("devices", "is %d, but the topology %v has %s; leave it out", c.Devices, t, countDevices(t))
	}
	return errors.Join(errs...)
}

// Count returns the number of devices that c fixes: those of the topology, or
// devices; 0 if it leaves that open.
func (c Config) Count() int {
	if t, err := ParseTopology(c.Topology); c.Topology != "" && err == nil {
		return t.Devices()
	}
	return c.Devices
}

// countDevices returns "32 devices (16 chips of 2)".
func countDevices(t Topology) string {
	return fmt.Sprintf("%d devices (%d chips of %d)", t.Devices(), t.Chips(), t.DevicesPerChip())
}
