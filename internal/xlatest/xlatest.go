// Package xlatest lets tests of other packages compile and run programs:
//
//	c := xlatest.CPU(t) // 8 virtual devices, shared by the tests of a process
//	outs := xlatest.Run(t, c, program, 8, args)
package xlatest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/pjrt"
)

// Devices is the number of devices of the CPU client.
const Devices = 8

// Environment variables naming plugin libraries.
const (
	cpuVar = "TITAN_PLUGIN_CPU"
	tpuVar = "TITAN_PLUGIN_TPU"
)

var cpu = sync.OnceValues(func() (*pjrt.Client, error) {
	path, err := find("cpu", cpuVar)
	if err != nil {
		return nil, err
	}
	quiet()
	p, err := pjrt.Open(path)
	if err != nil {
		return nil, err
	}
	return p.NewClient(pjrt.ClientOptions{Devices: Devices})
})

// CPU returns the process's client of the CPU plugin, with [Devices] devices.
// Without the plugin the test fails, and says how to install it.
func CPU(t testing.TB) *pjrt.Client {
	t.Helper()
	c, err := cpu()
	if err != nil {
		t.Fatalf("%v\nThe tests need the CPU plugin: run `titan plugin install cpu`, or set %s to its library.", err, cpuVar)
	}
	return c
}

var tpu = sync.OnceValues(func() (*pjrt.Plugin, error) {
	path, err := find("tpu", tpuVar)
	if err != nil {
		return nil, nil // not installed
	}
	quiet()
	return pjrt.OpenWith(path, pjrt.OpenOptions{Env: TPUEnv})
})

// TPUEnv lets libtpu compile on a machine without a TPU: it must not ask the
// cloud's metadata server, and may be loaded by several processes at once.
var TPUEnv = map[string]string{
	"TPU_SKIP_MDS_QUERY":         "1",
	"ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
	"TPU_ACCELERATOR_TYPE":       "v5litepod-8",
	"TPU_WORKER_HOSTNAMES":       "localhost",
	"TPU_WORKER_ID":              "0",
}

// TPU returns the TPU plugin, to compile for topologies. The test is skipped
// where it is not installed.
func TPU(t testing.TB) *pjrt.Plugin {
	t.Helper()
	p, err := tpu()
	require.NoError(t, err)
	if p == nil {
		t.Skipf("the TPU plugin is not installed: run `titan plugin install tpu`, or set %s to its library", tpuVar)
	}
	return p
}

// quiet keeps the plugins' informational messages out of test output.
func quiet() {
	if os.Getenv("TF_CPP_MIN_LOG_LEVEL") == "" {
		_ = os.Setenv("TF_CPP_MIN_LOG_LEVEL", "3")
	}
}

// find returns the library of a plugin: from the environment, or the newest in
// the user's cache.
func find(name, env string) (string, error) {
	if path := os.Getenv(env); path != "" {
		return path, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("xlatest: %w", err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "titan", "plugins", name, "*", "*.so"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("xlatest: no %s plugin under %s", name, filepath.Join(dir, "titan", "plugins"))
	}
	return found[len(found)-1], nil
}
