// Package pjrt binds the PJRT C API, XLA's plugin interface, without cgo.
//
// A plugin is a shared library exporting GetPjrtApi. It is opened with dlopen
// through purego, so programs build with CGO_ENABLED=0.
//
//	p, err := pjrt.Open("/path/to/pjrt_c_api_cpu_plugin.so")
//	c, err := p.NewClient(pjrt.ClientOptions{Devices: 8})
//	exe, err := c.Compile(stablehlo, pjrt.CompileOptions{Partitions: 8, Shardy: true})
//	x, err := c.Put(data, dtype.F32, []int{2, 64}, c.LocalDevices()[0])
//	outs, err := exe.Run(args, pjrt.ExecuteOptions{}) // args[device][argument]
//
// # Ownership
//
// Client, Topology, Executable, LoadedExecutable and Buffer hold plugin memory
// until Close. Close may be called at any time, from any goroutine and more
// than once: later calls return nil, and a handle in use by another goroutine
// is destroyed when that call returns. Every other use after Close is an error
// that wraps [ErrClosed]. A Client or Topology that still has live children
// refuses to close and says how many. An Event needs no Close and may be
// dropped.
//
// # Misuse
//
// Plugins crash or answer wrongly on many mistakes (a buffer of another client,
// a wrong shape, more partitions than devices). This package checks them first
// and returns an error.
package pjrt
