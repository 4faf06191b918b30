package plugins

import (
	"fmt"
	"strings"
)

// Wheel is the one published package that a plugin is installed from.
type Wheel struct {
	Plugin  string // "cpu", "tpu" or "cuda"
	Package string // name on PyPI
	Version string
	SHA256  string // of the wheel
	Size    int64  // of the wheel, bytes
	Member  string // the library's path in the wheel
	// LibrarySHA256 and LibrarySize are those of the unpacked library.
	LibrarySHA256 string
	LibrarySize   int64
	// Tags select the wheel whatever Python runs pip.
	Tags []string
	Note string // shown once, at installation
}

// pinned are the versions titan was tested with. Libraries do not depend on
// the Python version in a wheel's name.
var pinned = []Wheel{
	{
		Plugin: "cpu", Package: "lammps-jax-pjrt-cpu", Version: "0.11.2",
		SHA256: "1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1", Size: 62711338,
		Member:        "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
		LibrarySHA256: "ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2", LibrarySize: 201600336,
		Tags: []string{"--python-version", "3.11", "--implementation", "py", "--abi", "none", "--platform", "manylinux_2_27_x86_64"},
	},
	{
		Plugin: "tpu", Package: "libtpu", Version: "0.0.52",
		SHA256: "f5e2e596eaea9357fbb5a6755a7a9007c6ab75bfde4a55191b03eff402971140", Size: 137064406,
		Member:        "libtpu/libtpu.so",
		LibrarySHA256: "f86de4d04a058e6b5101f73e0824b95f27e2cec996d2b9191d9cffda75c03077", LibrarySize: 467479448,
		Tags: []string{"--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--platform", "manylinux_2_31_x86_64"},
		Note: "libtpu is provided by Google under the Google Cloud Platform terms of service; titan does not redistribute it.",
	},
	{
		Plugin: "cuda", Package: "jax-cuda12-pjrt", Version: "0.11.2",
		SHA256: "2133b3afc63307c016ae4980f166b2b3de199759363ead74f7d550eaae953463", Size: 188235313,
		Member:        "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
		LibrarySHA256: "ed4d60d77427548709ca0b5a8e04c1b24cc0091452bb564e4aea01e03ae7eac1", LibrarySize: 497519016,
		Tags: []string{"--python-version", "3.11", "--implementation", "py", "--abi", "none", "--platform", "manylinux_2_27_x86_64"},
		Note: "The cuda plugin also needs an NVIDIA driver and the CUDA 12 libraries (cuDNN, cuBLAS, NCCL, …) on the loader's path.",
	},
}

// Names lists the plugins that can be installed.
func Names() []string {
	var out []string
	for _, w := range pinned {
		out = append(out, w.Plugin)
	}
	return out
}

// Pinned returns the wheel of the named plugin.
func Pinned(name string) (Wheel, error) {
	for _, w := range pinned {
		if w.Plugin == name {
			return w, nil
		}
	}
	return Wheel{}, fmt.Errorf("unknown plugin %q; there are %s", name, strings.Join(Names(), ", "))
}

// supported reports whether the pinned wheels run on such a machine.
func supported(goos, goarch string) error {
	if goos != "linux" || goarch != "amd64" {
		return fmt.Errorf("plugins are pinned for linux/amd64 only, this is %s/%s; build or fetch a PJRT plugin for it and name its library in the environment, as %s", goos, goarch, EnvVar("cpu"))
	}
	return nil
}
