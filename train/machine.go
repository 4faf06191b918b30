package train

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"titan/configs"
	"titan/launch"
	"titan/mesh"
	"titan/parallel"
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

	xla      []string // the recipe's debug.xla_options
	local    []int    // positions of this process's devices; nil: all
	launches int      // of programs, by which runtimes of several hosts tell launches apart
	// together, if not nil, executes programs instead of the client: for tests, in
	// which one client's devices belong to several hosts.
	together func(c *Compiled, args [][]*pjrt.Buffer) ([][]*pjrt.Buffer, *pjrt.Event, error)
}

// positions lists those of this process's devices, in ascending order.
func (m *Machine) positions() []int {
	if m.local != nil {
		return m.local
	}
	return firstRows(m.Mesh.Size())
}

// OpenMachine opens the plugin that the recipe names and arranges its devices,
// which are all those of this host.
func OpenMachine(r *configs.Recipe) (*Machine, error) { return openMachine(r, nil) }

// openMachine is OpenMachine for a process of a group.
func openMachine(r *configs.Recipe, group *launch.Group) (*Machine, error) {
	devices := 0
	if r.Mesh.Platform == "cpu" {
		axes, err := r.MeshAxes()
		if err != nil {
			return nil, err
		}
		devices = 1
		for _, a := range axes {
			devices *= a.Size
		}
	}
	m, err := open(r.Mesh.Platform, "mesh.platform", devices, group)
	if err != nil {
		return nil, err
	}
	m.xla = r.Debug.XLAOptions
	if err = m.arrange(r, group); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// OpenDevice opens a plugin, by its name or its path, for programs on one of its
// devices. setting is where the user gave it, for errors.
func OpenDevice(platform, setting string) (*Machine, error) {
	m, err := open(platform, setting, 1, nil)
	if err != nil {
		return nil, err
	}
	local := m.Client.LocalDevices()
	if len(local) == 0 {
		m.Close()
		return nil, fmt.Errorf("train: %s has no device here", platform)
	}
	m.Mesh, err = mesh.New([]mesh.Axis{{Name: "device", Size: 1}}, []int{local[0].ID})
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// open starts a platform's devices; on cpu there are as many as asked for.
func open(platform, setting string, devices int, group *launch.Group) (*Machine, error) {
	path, err := pluginPath(platform, setting)
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
	client, err := plugin.NewClient(clientOptions(platform, devices, group))
	if err != nil {
		return nil, fmt.Errorf("train: starting the devices of %s: %w", platform, err)
	}
	return &Machine{Client: client, Cache: compilecache.OpenDefault(), OnCPU: client.Platform() == "cpu"}, nil
}

// noTPU says why starting a platform's devices may take long: without a TPU
// libtpu asks for one over the network, for minutes. "" if there is no reason.
func noTPU(platform, dev string) string {
	if platform != "tpu" {
		return ""
	}
	for _, pattern := range []string{"accel*", "vfio/[0-9]*"} {
		if found, _ := filepath.Glob(filepath.Join(dev, pattern)); len(found) > 0 {
			return ""
		}
	}
	return "this machine seems to have no TPU (neither " + dev + "/accel* nor " + dev + "/vfio/[0-9]*); libtpu may look for one for minutes before it fails"
}

// Close ends the client. Programs and buffers must be closed before.
func (m *Machine) Close() { _ = m.Client.Close() }

func pluginPath(platform, setting string) (string, error) {
	for _, known := range plugins.Names() {
		if platform == known {
			return plugins.Find(platform)
		}
	}
	return plugins.Override(platform, setting)
}

// arrange lays the recipe's axes over the devices.
func (m *Machine) arrange(r *configs.Recipe, group *launch.Group) error {
	processes, err := drivers(m.Client, group)
	if err != nil {
		return err
	}
	if m.Mesh, err = arranged(m.Client, r, processes); err != nil || group == nil {
		return err
	}
	m.local, err = positionsOf(m.Mesh, group.Rank())
	return err
}

// arranged makes the mesh of a recipe. processes says whose a device is, by its
// id.
func arranged(c *pjrt.Client, r *configs.Recipe, processes map[int]int) (*mesh.Mesh, error) {
	devices := c.Devices()
	if n := r.Mesh.Count(); n > 0 && n != len(devices) {
		return nil, fmt.Errorf("train: the recipe is for %d devices, %s has %d: change mesh.devices, mesh.topology or the machine", n, c.Platform(), len(devices))
	}
	axes, err := r.MeshAxesOn(len(devices))
	if err != nil {
		return nil, err
	}
	var infos []mesh.DeviceInfo
	placed := true
	for _, d := range devices {
		info := mesh.DeviceInfo{ID: d.ID, Process: processes[d.ID]}
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
		return mesh.ForTopology(axes, infos, parallel.AcrossSlices()...)
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
