package pjrt

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// ClientOptions configures [Plugin.NewClient].
type ClientOptions struct {
	// Devices is the number of virtual devices of a CPU client; 0 leaves it to
	// the plugin.
	Devices int
	// KeyValueStore lets the processes of a multi-process client find each
	// other; nil for a single process.
	KeyValueStore KeyValueStore
	// Extra holds plugin-specific options by name: int, int64, string, bool,
	// float32, float64 or []int64.
	Extra map[string]any
}

// Client owns the devices of one plugin in this process.
type Client struct {
	p        *Plugin
	h        uintptr
	kv       uintptr
	fam      family
	platform string
	version  string
	process  int
	all      []*Device
	local    []*Device
	byHandle map[uintptr]*Device
	byID     map[int]*Device
	memories map[uintptr]*Memory
}

// NewClient creates a client.
func (p *Plugin) NewClient(o ClientOptions) (*Client, error) {
	opts := map[string]any{}
	for k, v := range o.Extra {
		opts[k] = v
	}
	if o.Devices < 0 {
		return nil, fmt.Errorf("pjrt: client: %d devices", o.Devices)
	}
	if o.Devices > 0 {
		if _, ok := opts[cpuDeviceCount]; ok {
			return nil, fmt.Errorf("pjrt: client: both Devices and Extra[%q] are set", cpuDeviceCount)
		}
		opts[cpuDeviceCount] = o.Devices
		defer moreThreads(o.Devices)()
	}
	var m arena
	defer m.free()
	a := new(clientCreateArgs)
	var err error
	if a.options, a.numOptions, err = encodeValues(&m, opts); err != nil {
		return nil, err
	}
	c := &Client{p: p, fam: family{owner: kindClient}}
	if o.KeyValueStore != nil {
		c.kv = newHandle(o.KeyValueStore)
		t := kvTrampolines()
		a.kvGet, a.kvPut, a.kvTry = t.get, t.put, t.try
		a.kvGetUser, a.kvPutUser, a.kvTryUser = c.kv, c.kv, c.kv
	}
	if err := sClientCreate.call(p, a); err != nil {
		handles.Delete(c.kv)
		return nil, err
	}
	c.h = a.client
	live[kindClient].Add(1)
	if err := c.describe(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

const cpuDeviceCount = "cpu_device_count"

func (c *Client) describe() error {
	c.memories = map[uintptr]*Memory{}
	var e1, e2, e3, e4, e5 error
	c.platform, e1 = getString(c.p, sClientPlatform, c.h)
	c.version, e2 = getString(c.p, sClientVersion, c.h)
	c.process, e3 = getInt(c.p, sClientProcess, c.h)
	c.byHandle, c.byID = map[uintptr]*Device{}, map[int]*Device{}
	c.all, e4 = c.devices(sClientDevices)
	c.local, e5 = c.devices(sClientLocal)
	if err := errors.Join(e1, e2, e3, e4, e5); err != nil {
		return err
	}
	for i, d := range c.local {
		d.local = i
		if err := c.describeLocal(d); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) devices(s slot[handleListArgs]) ([]*Device, error) {
	hs, err := getList(c.p, s, c.h)
	if err != nil {
		return nil, err
	}
	ds := make([]*Device, len(hs))
	for i, h := range hs {
		if d := c.byHandle[h]; d != nil {
			ds[i] = d
			continue
		}
		desc, err := getWord(c.p, sDeviceDesc, h)
		if err != nil {
			return nil, err
		}
		d, err := newDevice(c.p, &c.fam, desc)
		if err != nil {
			return nil, err
		}
		d.c, d.h = c, h
		ds[i], c.byHandle[h], c.byID[d.ID] = d, d, d
	}
	return ds, nil
}

// Close destroys the client. It refuses while the client has buffers or
// executables, and waits for operations in flight.
func (c *Client) Close() error {
	already, err := c.fam.dissolve()
	if already || err != nil {
		return err
	}
	err = sClientDestroy.call(c.p, &handleArgs{obj: c.h})
	live[kindClient].Add(-1)
	handles.Delete(c.kv)
	return err
}

// Plugin returns the plugin the client belongs to.
func (c *Client) Plugin() *Plugin { return c.p }

// Platform returns the platform name, such as "cpu" or "tpu".
func (c *Client) Platform() string { return c.platform }

// PlatformVersion returns the plugin's description of its version.
func (c *Client) PlatformVersion() string { return c.version }

// ProcessIndex returns the rank of this process.
func (c *Client) ProcessIndex() int { return c.process }

// Devices returns all devices, including those of other processes. The slice
// must not be changed.
func (c *Client) Devices() []*Device { return c.all }

// LocalDevices returns the devices this process can address. The slice must not
// be changed.
func (c *Client) LocalDevices() []*Device { return c.local }

// Device returns the device with the given id.
func (c *Client) Device(id int) (*Device, error) {
	if d := c.byID[id]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("pjrt: the %s client has no device with id %d (it has %d devices)", c.platform, id, len(c.all))
}

// Topology returns the client's devices as a topology to compile for. Close it
// before the client.
func (c *Client) Topology() (*Topology, error) {
	if err := c.fam.join(kindTopology); err != nil {
		return nil, err
	}
	h, err := getWord(c.p, sClientTopology, c.h)
	if err != nil {
		c.fam.leave(kindTopology)
		return nil, err
	}
	return newTopology(c.p, c, h, c.String())
}

func (c *Client) String() string {
	return fmt.Sprintf("%s client, process %d, %d of %d devices local", c.platform, c.process, len(c.local), len(c.all))
}

// threadsPerDevice is how many threads a virtual device gets of the pool that
// all of them share.
const threadsPerDevice = 8

// threadsVar is the variable from which XLA takes the size of its pool; the
// number of processors or, if larger, of devices otherwise.
const threadsVar = "NPROC"

// moreThreads makes the CPU plugin's pool large enough for collectives that are
// independent of each other. One holds a thread until all devices have come to
// it, and XLA starts them in any order: with a thread a device, seven devices can
// wait in one collective and the eighth in another, whose thread nobody is left
// to be. (Seen in one run of five of a training step, where the sum of the
// tokens meets the parameters' all-gather in the loop over layers; XLA ends the
// process after 40 seconds.) It returns what undoes the setting. A value that
// the user has set is left alone.
func moreThreads(devices int) (undo func()) {
	if _, set := os.LookupEnv(threadsVar); set || devices < 2 {
		return func() {}
	}
	_ = os.Setenv(threadsVar, strconv.Itoa(threadsPerDevice*devices)) // purego makes os.Setenv reach C's getenv
	return func() { _ = os.Unsetenv(threadsVar) }
}
