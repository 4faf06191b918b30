package pjrt

import (
	"errors"
	"fmt"
)

// Topology describes devices that need not exist here, to compile for.
type Topology struct {
	p        *Plugin
	client   *Client // owns the handle, if not nil
	h        uintptr
	name     string
	fam      family
	platform string
	version  string
	devices  []*Device
}

// NewTopology builds the topology a plugin knows by name, for instance
// "v5e:2x4". opts are plugin-specific, such as "num_slices"; see
// [ClientOptions] for the types. Plugins accept shapes no pod has.
func (p *Plugin) NewTopology(name string, opts map[string]any) (*Topology, error) {
	var m arena
	defer m.free()
	a := &topoCreateArgs{name: m.str(name), nameLen: uintptr(len(name))}
	var err error
	if a.options, a.numOptions, err = encodeValues(&m, opts); err != nil {
		return nil, err
	}
	if err := sTopoCreate.call(p, a); err != nil {
		return nil, fmt.Errorf("pjrt: topology %q: %w", name, err)
	}
	return newTopology(p, nil, a.topology, name)
}

// newTopology takes over h, which belongs to client if that is not nil.
func newTopology(p *Plugin, client *Client, h uintptr, name string) (*Topology, error) {
	t := &Topology{p: p, client: client, h: h, name: name, fam: family{owner: kindTopology}}
	live[kindTopology].Add(1)
	if err := t.describe(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Topology) describe() (err error) {
	if t.platform, err = getString(t.p, sTopoPlatform, t.h); err != nil {
		return err
	}
	if t.version, err = getString(t.p, sTopoVersion, t.h); err != nil && !IsUnimplemented(err) {
		return err
	}
	hs, err := getList(t.p, sTopoDevices, t.h)
	if err != nil {
		return err
	}
	t.devices = make([]*Device, len(hs))
	for i, h := range hs {
		if t.devices[i], err = newDevice(t.p, &t.fam, h); err != nil {
			return err
		}
	}
	return nil
}

// Close frees the topology. It refuses while it has executables.
func (t *Topology) Close() error {
	already, err := t.fam.dissolve()
	if already || err != nil {
		return err
	}
	if t.client != nil {
		t.client.fam.leave(kindTopology)
	} else {
		err = sTopoDestroy.call(t.p, &handleArgs{obj: t.h})
	}
	live[kindTopology].Add(-1)
	return err
}

// Name returns the name the topology was made with.
func (t *Topology) Name() string { return t.name }

// Plugin returns the plugin that made the topology.
func (t *Topology) Plugin() *Plugin { return t.p }

// Platform returns the platform name, such as "tpu".
func (t *Topology) Platform() string { return t.platform }

// PlatformVersion returns the plugin's description of its version.
func (t *Topology) PlatformVersion() string { return t.version }

// Attributes returns plugin-specific facts.
func (t *Topology) Attributes() (map[string]any, error) {
	if err := t.fam.join(kindCall); err != nil {
		return nil, err
	}
	defer t.fam.leave(kindCall)
	a := &topoAttrsArgs{obj: t.h}
	if err := sTopoAttrs.call(t.p, a); err != nil {
		return nil, err
	}
	return decodeValues(a.list, a.n), nil
}

// Devices returns the devices. The slice must not be changed.
func (t *Topology) Devices() []*Device { return t.devices }

// Compile compiles a StableHLO program ahead of time. Nothing is loaded.
func (t *Topology) Compile(code []byte, o CompileOptions) (*Executable, error) {
	if err := o.checkProgram(code); err != nil {
		return nil, err
	}
	ids, err := o.check(t.devices, "topology "+t.name)
	if err != nil {
		return nil, err
	}
	opts, err := o.marshal(ids)
	if err != nil {
		return nil, err
	}
	if err := t.fam.join(kindExecutable); err != nil {
		return nil, err
	}
	var m arena
	defer m.free()
	a := &compileArgs{topology: t.h, program: m.program(code), options: m.bytes(opts), optionsLen: uintptr(len(opts))}
	if err := sCompile.call(t.p, a); err != nil {
		t.fam.leave(kindExecutable)
		return nil, err
	}
	return newExecutable(newRef(t.p, &t.fam, kindExecutable, &sExecDestroy, a.executable))
}
