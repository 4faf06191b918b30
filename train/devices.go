package train

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"titan/launch"
	"titan/mesh"
	"titan/pjrt"
)

// inflightComputations is how many programs libtpu queues for a device.
const inflightComputations = 32

// clientOptions are those of a platform's client; on cpu it has as many devices
// as asked for. Plugins refuse options that they do not know.
func clientOptions(platform string, devices int, group *launch.Group) pjrt.ClientOptions {
	switch {
	case platform == "cpu":
		return pjrt.ClientOptions{Devices: devices}
	case platform == "tpu":
		// Inside a slice and between slices libtpu finds its peers by itself.
		version := "unknown"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			version = info.Main.Version
		}
		return pjrt.ClientOptions{Extra: map[string]any{
			"ml_framework_name": "titan", "ml_framework_version": version, "max_inflight_computations": inflightComputations,
		}}
	case platform == "cuda" && group != nil:
		return pjrt.ClientOptions{KeyValueStore: group, Extra: map[string]any{"node_id": group.Rank(), "num_nodes": group.Size()}}
	}
	return pjrt.ClientOptions{}
}

// owned is what a process tells of its devices.
type owned struct {
	Devices []int `json:"devices"` // ids of those that it drives
	All     int   `json:"all"`     // how many devices its client knows
}

// drivers finds out which process drives which device, by its id. The plugin has
// numbers of processes too; they need not be those of the group.
func drivers(c *pjrt.Client, group *launch.Group) (map[int]int, error) {
	mine := owned{All: len(c.Devices())}
	for _, d := range c.LocalDevices() {
		mine.Devices = append(mine.Devices, d.ID)
	}
	if group == nil {
		if len(mine.Devices) != mine.All {
			return nil, fmt.Errorf("train: this process drives %d of the %d devices of %s, and nothing says which of the hosts it is on: "+
				"set %s, %s and %s on each (titan doctor shows what is set)", len(mine.Devices), mine.All, c.Platform(), launch.EnvProcesses, launch.EnvProcess, launch.EnvCoordinator)
		}
		return assign([]owned{mine}, c.Platform())
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	replies, err := group.Exchange(context.Background(), "train/devices", raw)
	if err != nil {
		return nil, fmt.Errorf("train: comparing devices: %w", err)
	}
	all := make([]owned, len(replies))
	for i, r := range replies {
		if err := json.Unmarshal(r, &all[i]); err != nil {
			return nil, fmt.Errorf("train: the devices of process %d: %w", i, err)
		}
	}
	return assign(all, c.Platform())
}

// assign makes sure that every device is driven by one process, and by which.
func assign(all []owned, platform string) (map[int]int, error) {
	out := map[int]int{}
	for process, o := range all {
		if o.All != all[0].All {
			return nil, fmt.Errorf("train: process %d knows of %d devices of %s, process 0 of %d: they are not on the same machine", process, o.All, platform, all[0].All)
		}
		if len(o.Devices) == 0 {
			return nil, fmt.Errorf("train: process %d drives no device of %s", process, platform)
		}
		for _, id := range o.Devices {
			if other, taken := out[id]; taken {
				return nil, fmt.Errorf("train: processes %d and %d both drive device %d of %s: each knows the devices of its own host alone, so they cannot train together", other, process, id, platform)
			}
			out[id] = process
		}
	}
	if len(out) != all[0].All {
		return nil, fmt.Errorf("train: %d processes drive %d of the %d devices of %s: on the other hosts none was started, or %s is too small", len(all), len(out), all[0].All, platform, launch.EnvProcesses)
	}
	return out, nil
}

// positionsOf lists the positions whose devices a process drives.
func positionsOf(m *mesh.Mesh, process int) ([]int, error) {
	hosts, err := m.Hosts()
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		if h.Process == process {
			return h.Positions, nil
		}
	}
	return nil, fmt.Errorf("train: the mesh %v has no device of process %d", m, process)
}
