package pjrt

import (
	"errors"
	"fmt"
)

func (m *arena) program(code []byte) *program {
	p := pinned[program](m)
	*p = program{header: header{size: cProgram}, code: m.bytes(code), codeLen: uintptr(len(code)), format: m.str("mlir"), formatLen: 4}
	return p
}

// Compile compiles a StableHLO program, as MLIR text or bytecode, and loads it
// on the assigned devices.
func (c *Client) Compile(code []byte, o CompileOptions) (*LoadedExecutable, error) {
	if err := o.checkProgram(code); err != nil {
		return nil, err
	}
	ids, err := o.check(c.all, "the client")
	if err != nil {
		return nil, err
	}
	local := 0
	for _, id := range ids {
		if c.byID[id].IsLocal() {
			local++
		}
	}
	if local == 0 {
		return nil, fmt.Errorf("pjrt: compile: none of the %d assigned devices belongs to process %d", len(ids), c.process)
	}
	opts, err := o.marshal(ids)
	if err != nil {
		return nil, err
	}
	return c.load(func() (uintptr, error) {
		var m arena
		defer m.free()
		a := &clientCompileArgs{client: c.h, program: m.program(code), options: m.bytes(opts), optionsLen: uintptr(len(opts))}
		err := sClientCompile.call(c.p, a)
		return a.loaded, err
	})
}

// Load loads an executable serialized by the same version of the same plugin on
// the same kind of machine. Plugins do not check that: keep such facts in the
// key under which the bytes are stored.
func (c *Client) Load(serialized []byte) (*LoadedExecutable, error) {
	if len(serialized) == 0 {
		return nil, errors.New("pjrt: load: no bytes")
	}
	return c.load(func() (uintptr, error) {
		var m arena
		defer m.free()
		a := &deserializeArgs{client: c.h, bytes: m.bytes(serialized), n: uintptr(len(serialized))}
		err := sDeserialize.call(c.p, a)
		return a.loaded, err
	})
}

// load wraps the loaded executable that make returns.
func (c *Client) load(make func() (uintptr, error)) (*LoadedExecutable, error) {
	if err := c.fam.join(kindLoaded); err != nil {
		return nil, err
	}
	h, err := make()
	if err != nil {
		c.fam.leave(kindLoaded)
		return nil, err
	}
	loaded := newRef(c.p, &c.fam, kindLoaded, &sLoadedDestroy, h)
	x, err := newLoaded(c, loaded)
	if err != nil {
		return nil, errors.Join(err, loaded.close())
	}
	closeIfLost(x, loaded)
	return x, nil
}

func newLoaded(c *Client, loaded *ref) (*LoadedExecutable, error) {
	h, err := getWord(c.p, sLoadedExec, loaded.h)
	if err != nil {
		return nil, err
	}
	if err := c.fam.join(kindExecutable); err != nil {
		return nil, err
	}
	x := &LoadedExecutable{c: c, loaded: loaded}
	if x.Executable, err = newExecutable(newRef(c.p, &c.fam, kindExecutable, &sExecDestroy, h)); err != nil {
		return nil, err
	}
	hs, err := getList(c.p, sLoadedDevices, loaded.h)
	if err == nil {
		x.outputs, err = x.Outputs()
	}
	if err != nil {
		return nil, errors.Join(err, x.Executable.Close())
	}
	for _, h := range hs {
		d := c.byHandle[h]
		if d == nil {
			return nil, errors.Join(errors.New("pjrt: the executable runs on a device unknown to the client"), x.Executable.Close())
		}
		x.devices = append(x.devices, d)
	}
	return x, nil
}
