package plugins

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ebitengine/purego"
)

// Need is a shared library that a plugin loads by itself once it runs.
type Need struct {
	Library string `json:"library"`
	From    string `json:"from"` // what installs it
}

const driver = "the NVIDIA driver"

// cudaNeeds are what JAX's own packages of the pinned plugin depend on.
var cudaNeeds = []Need{
	{"libcuda.so.1", driver},
	{"libcudart.so.12", "nvidia-cuda-runtime-cu12"},
	{"libnvrtc.so.12", "nvidia-cuda-nvrtc-cu12"},
	{"libcublas.so.12", "nvidia-cublas-cu12"},
	{"libcublasLt.so.12", "nvidia-cublas-cu12"},
	{"libnccl.so.2", "nvidia-nccl-cu12"},
	{"libcupti.so.12", "nvidia-cuda-cupti-cu12"},
	{"libcusparse.so.12", "nvidia-cusparse-cu12"},
	{"libcusolver.so.11", "nvidia-cusolver-cu12"},
	{"libcufft.so.11", "nvidia-cufft-cu12"},
	{"libnvJitLink.so.12", "nvidia-nvjitlink-cu12"},
	{"libnvshmem_host.so.3", "nvidia-nvshmem-cu12"},
	{"libcudnn.so.9", "nvidia-cudnn-cu12"},
}

// Missing returns the libraries that the named plugin needs and the system's
// loader does not find. Those found stay loaded, so it is best asked in a
// process that opens the plugin, or ends.
func Missing(name string) []Need {
	if name != "cuda" {
		return nil
	}
	var missing []Need
	for _, n := range cudaNeeds {
		if _, err := purego.Dlopen(n.Library, purego.RTLD_LAZY|purego.RTLD_LOCAL); err != nil {
			missing = append(missing, n)
		}
	}
	return missing
}

// MendMissing says how to install what is missing, for a user to do.
func MendMissing(missing []Need) string {
	var steps, packages []string
	for _, n := range missing {
		switch {
		case n.From == driver:
			steps = append(steps, "install "+driver)
		case len(packages) == 0 || packages[len(packages)-1] != n.From:
			packages = append(packages, n.From)
		}
	}
	if len(packages) > 0 {
		steps = append(steps, fmt.Sprintf("python3 -m pip install --target DIR %s, and put each DIR/nvidia/*/lib on LD_LIBRARY_PATH", strings.Join(packages, " ")))
	}
	return strings.Join(steps, "; ")
}

// CompileOnlyEnv is what must be in the environment of a process that opens the
// named plugin to compile for topologies, on a machine without its devices:
// libtpu must not look for a cloud's metadata server, and may be loaded by
// several processes at once.
func CompileOnlyEnv(name string) map[string]string {
	if name != "tpu" {
		return nil
	}
	return map[string]string{
		"TPU_SKIP_MDS_QUERY":         "1",
		"ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
		"TPU_ACCELERATOR_TYPE":       "v5litepod-4",
		"TPU_WORKER_HOSTNAMES":       "localhost",
		"TPU_WORKER_ID":              "0",
	}
}

// GlibcVersion returns the version of the C library of this process, such as
// "2.36", or "" if it is not glibc.
func GlibcVersion() string {
	sym, err := purego.Dlsym(purego.RTLD_DEFAULT, "gnu_get_libc_version")
	if err != nil {
		return ""
	}
	var version func() string
	purego.RegisterFunc(&version, sym)
	return version()
}

var manylinux = regexp.MustCompile(`^manylinux_(\d+)_(\d+)_`)

// checkGlibc refuses a wheel whose platform tag asks for a newer glibc than
// have.
func checkGlibc(w Wheel, have string) error {
	for _, tag := range w.Tags {
		m := manylinux.FindStringSubmatch(tag)
		if m == nil {
			continue
		}
		need := m[1] + "." + m[2]
		if have == "" {
			return fmt.Errorf("%s %s needs glibc %s or later, and this system has another C library", w.Package, w.Version, need)
		}
		if older(have, need) {
			return fmt.Errorf("%s %s needs glibc %s or later, this system has %s; use a newer system or container", w.Package, w.Version, need, have)
		}
	}
	return nil
}

// older compares versions of the form major.minor.
func older(a, b string) bool {
	part := func(s string) (major, minor int) {
		x, y, _ := strings.Cut(s, ".")
		y, _, _ = strings.Cut(y, ".")
		major, _ = strconv.Atoi(x)
		minor, _ = strconv.Atoi(y)
		return major, minor
	}
	a1, a2 := part(a)
	b1, b2 := part(b)
	return a1 < b1 || a1 == b1 && a2 < b2
}
