// Package xlatest lets tests of other packages compile and run programs:
//
//	c := xlatest.CPU(t) // 8 virtual devices, shared by the tests of a process
//	outs := xlatest.Run(t, c, program, 8, args)
package xlatest

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/pjrt"
	"titan/pjrt/plugins"
)

// LittleEffort are compile flags for tests: LLVM does not optimize, which is most
// of the time of a compilation for CPU. XLA's own passes, and so the program that
// is compiled, its collectives and its memory, are the same.
func LittleEffort() map[string]any { return map[string]any{"xla_backend_optimization_level": 0} }

// Devices is the number of devices of the CPU client.
const Devices = 8

var (
	cpu     = sync.OnceValues(func() (*pjrt.Client, error) { return client(Devices) })
	cpuMany = sync.OnceValues(func() (*pjrt.Client, error) { return client(2 * Devices) })
)

func client(devices int) (*pjrt.Client, error) {
	path, err := plugins.Find("cpu")
	if err != nil {
		return nil, err
	}
	quiet()
	p, err := pjrt.Open(path)
	if err != nil {
		return nil, err
	}
	return p.NewClient(pjrt.ClientOptions{Devices: devices})
}

// CPU returns the process's client of the CPU plugin, with [Devices] devices.
// Without the plugin the test fails, and says how to install it.
func CPU(t testing.TB) *pjrt.Client {
	t.Helper()
	return opened(t, cpu)
}

// CPUMany is CPU with twice as many devices, a client of its own.
func CPUMany(t testing.TB) *pjrt.Client {
	t.Helper()
	return opened(t, cpuMany)
}

func opened(t testing.TB, cpu func() (*pjrt.Client, error)) *pjrt.Client {
	t.Helper()
	c, err := cpu()
	if err != nil {
		t.Fatalf("the tests need the CPU plugin: %v", err)
	}
	return c
}

var tpu = sync.OnceValues(func() (*pjrt.Plugin, error) {
	path, err := plugins.Find("tpu")
	var missing *plugins.NotInstalledError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	quiet()
	return pjrt.OpenWith(path, pjrt.OpenOptions{Env: plugins.CompileOnlyEnv("tpu")})
})

// TPU returns the TPU plugin, to compile for topologies. The test is skipped
// where it is not installed.
func TPU(t testing.TB) *pjrt.Plugin {
	t.Helper()
	p, err := tpu()
	require.NoError(t, err)
	if p == nil {
		t.Skip(&plugins.NotInstalledError{Name: "tpu"})
	}
	return p
}

// CompileTPU compiles a program for a topology, which both last as long as the test.
// The test is skipped where the TPU plugin is not installed.
func CompileTPU(t testing.TB, topology, program string, o pjrt.CompileOptions) *pjrt.Executable {
	t.Helper()
	topo, err := TPU(t).NewTopology(topology, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, topo.Close()) })
	x, err := topo.Compile([]byte(program), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// quiet keeps the plugins' informational messages out of test output.
func quiet() {
	if os.Getenv("TF_CPP_MIN_LOG_LEVEL") == "" {
		_ = os.Setenv("TF_CPP_MIN_LOG_LEVEL", "3")
	}
}
