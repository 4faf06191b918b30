package train

import (
	"fmt"
	"os"
	"time"

	"titan/configs"
	"titan/mesh"
	"titan/pjrt"
	"titan/pjrt/compilecache"
	"titan/pjrt/plugins"
)

// Machine is the devices that a run has, with the compile cache in front of
// their compiler.
type Machine struct {
	Client *pjrt.Client
	Mesh   *mesh.Mesh
	Cache  *compilecache.Cache // nil: always compile
	// OnCPU: the devices are virtual, in this process.
	OnCPU bool
}

// OpenMachine opens the plugin that the recipe names and arranges its devices.
func OpenMachine(r *configs.Recipe) (*Machine, error) {
	path, err := pluginPath(r.Mesh.Platform)
	if err != nil {
		return nil, err
	}
	// Plugins log to the terminal otherwise; what matters comes back as errors.
	if os.Getenv("TF_CPP_MIN_LOG_LEVEL") == "" {
		_ = os.Setenv("TF_CPP_MIN_LOG_LEVEL", "3")
	}
	plugin, err := pjrt.OpenWith(path, pjrt.OpenOptions{})
	if err != nil {
		return nil, err
	}
	o := pjrt.ClientOptions{}
	if r.Mesh.Platform == "cpu" {
		axes, err := r.MeshAxes()
		if err != nil {
			return nil, err
		}
		o.Devices = 1
		for _, a := range axes {
			o.Devices *= a.Size
		}
	}
	client, err := plugin.NewClient(o)
	if err != nil {
		return nil, fmt.Errorf("train: starting the devices of %s: %w", r.Mesh.Platform, err)
	}
	m := &Machine{Client: client, Cache: compilecache.OpenDefault(), OnCPU: client.Platform() == "cpu"}
	if m.Mesh, err = arrange(client, r); err != nil {
		_ = client.Close()
		return nil, err
	}
	return m, nil
}

// Close ends the client. Programs and buffers must be closed before.
func (m *Machine) Close() { _ = m.Client.Close() }

func pluginPath(platform string) (string, error) {
	for _, known := range plugins.Names() {
		if platform == known {
			return plugins.Find(platform)
		}
	}
	return plugins.Override(platform, "mesh.platform")
}

// arrange lays the recipe's axes over the devices.
func arrange(c *pjrt.Client, r *configs.Recipe) (*mesh.Mesh, error) {
	devices := c.Devices()
	if n := r.Mesh.Count(); n > 0 && n != len(devices) {
		return nil, fmt.Errorf("train: the recipe is for %d devices, %s has %d: change mesh.devices, mesh.topology or the machine", n, c.Platform(), len(devices))
	}
	if local := len(c.LocalDevices()); local != len(devices) {
		return nil, fmt.Errorf("train: this process drives %d of %d devices; training over several hosts is not supported yet", local, len(devices))
	}
	axes, err := r.MeshAxesOn(len(devices))
	if err != nil {
		return nil, err
	}
	var infos []mesh.DeviceInfo
	placed := true
	for _, d := range devices {
		info := mesh.DeviceInfo{ID: d.ID, Process: d.Process}
		attributes, err := d.Attributes()
		if err != nil {
			return nil, err
		}
		info.Coords = ints64(attributes["coords"])
		info.Core = int(int64Of(attributes["core_on_chip"]))
		info.Slice = int(int64Of(attributes["slice_index"]))
		placed = placed && info.Coords != nil
		infos = append(infos, info)
	}
	if placed {
		return mesh.ForTopology(axes, infos)
	}
	ids := make([]int, len(devices))
	for i, d := range devices {
		ids[i] = d.ID
	}
	m, err := mesh.New(axes, ids)
	if err != nil {
		return nil, err
	}
	return m.WithDevices(infos)
}

func ints64(v any) []int {
	list, ok := v.([]int64)
	if !ok {
		return nil
	}
	out := make([]int, len(list))
	for i, x := range list {
		out[i] = int(x)
	}
	return out
}

func int64Of(v any) int64 {
	x, _ := v.(int64)
	return x
}

// compileNote is a line about how a program came to be there.
func compileNote(c *Compiled, took time.Duration) string {
	return fmt.Sprintf("%s: %v (%.2fs in all)", c.Module.Name(), c.Outcome, took.Seconds())
}
