package pjrt

import "errors"

// LoadedExecutable is a program ready to run on devices of a client.
type LoadedExecutable struct {
	*Executable
	c       *Client
	loaded  *ref
	devices []*Device
	outputs []ArrayType
}

// Devices returns the local devices the program runs on, in the order of the
// arguments of Execute. The slice must not be changed.
func (x *LoadedExecutable) Devices() []*Device { return x.devices }

// Client returns the client the program is loaded on.
func (x *LoadedExecutable) Client() *Client { return x.c }

// Close unloads the program. Runs that were started go on.
func (x *LoadedExecutable) Close() error {
	return errors.Join(x.Executable.Close(), x.loaded.close())
}
