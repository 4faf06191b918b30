package plan

import (
	"fmt"
	"maps"
	"os"

	"titan/mesh"
	"titan/pjrt"
	"titan/pjrt/plugins"
)

// topology is the devices to compile for, as the compiler describes them.
type topology struct {
	*pjrt.Topology
	topology *pjrt.Topology
	memory   int64 // bytes of a device that programs can use
}

// openTopology opens the compiler at path for a topology, and checks that it knows
// the same devices as we do.
func openTopology(path string, t mesh.Topology) (*topology, error) {
	return openTopologyWith(path, t, nil)
}

// openTopologyWith sets further variables in the environment of the compiler, if
// this process has not loaded it before.
func openTopologyWith(path string, t mesh.Topology, more map[string]string) (*topology, error) {
	env := maps.Clone(plugins.CompileOnlyEnv("tpu"))
	maps.Copy(env, more)
	// The compiler logs to the terminal otherwise; what matters comes back as errors.
	if os.Getenv("TF_CPP_MIN_LOG_LEVEL") == "" {
		_ = os.Setenv("TF_CPP_MIN_LOG_LEVEL", "3")
	}
	plugin, err := pjrt.OpenWith(path, pjrt.OpenOptions{Env: env})
	if err != nil {
		return nil, err
	}
	top, err := plugin.NewTopology(t.SliceName(), topologyOptions(t))
	if err != nil {
		return nil, err
	}
	out := &topology{Topology: top, topology: top}
	if err := out.check(t); err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

// topologyOptions tells the compiler what the name of a topology does not: how many
// slices, and which sides are rings. Without being told it takes none for one, and
// makes other collectives than for a pod.
func topologyOptions(t mesh.Topology) map[string]any {
	wrap := make([]int64, 3)
	for k, w := range t.Wraps() {
		if w {
			wrap[k] = 1
		}
	}
	options := map[string]any{"wrap": wrap}
	if t.Slices > 1 {
		options["num_slices"] = int64(t.Slices)
	}
	if t.Kind == "v4" {
		options["chip_config_name"] = "megacore" // a chip is one device, as on pods
	}
	return options
}

func (t *topology) close() { _ = t.topology.Close() }

func (t *topology) check(want mesh.Topology) error {
	devices := t.topology.Devices()
	if len(devices) != want.Devices() {
		return fmt.Errorf("plan: the compiler lists %d devices for %v, where programs see %d: it cannot be planned for", len(devices), want, want.Devices())
	}
	known := map[int]bool{}
	for _, d := range devices {
		known[d.ID] = true
	}
	for _, d := range want.DeviceInfos() {
		if !known[d.ID] {
			return fmt.Errorf("plan: the compiler has no device %d in %v, which is the one at %v: this version of it numbers devices in another way", d.ID, want, d.Coords)
		}
	}
	attributes, err := devices[0].Attributes()
	if err != nil {
		return err
	}
	n, ok := attributes["device_memory_bytes_limit"].(int64)
	if !ok || n <= 0 {
		return fmt.Errorf("plan: the compiler does not say how much memory a device of %v has", want)
	}
	t.memory = n
	return nil
}
