package pjrt

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/ebitengine/purego"
)

// libcFuncs are the C library's functions that hand memory to C.
type libcFuncs struct {
	malloc func(uintptr) *byte
	free   uintptr
}

var libc = sync.OnceValues(func() (libcFuncs, error) {
	var f libcFuncs
	m, err := purego.Dlsym(purego.RTLD_DEFAULT, "malloc")
	if err == nil {
		purego.RegisterFunc(&f.malloc, m)
		f.free, err = purego.Dlsym(purego.RTLD_DEFAULT, "free")
	}
	if err != nil {
		return f, fmt.Errorf("pjrt: the C library: %w", err)
	}
	return f, nil
})

// hostPages are settings of glibc's allocator: one arena, no separate mappings
// for large blocks, nothing returned to the kernel below a TiB.
var hostPages = map[string]string{
	"MALLOC_ARENA_MAX":       "1",
	"MALLOC_MMAP_MAX_":       "0",
	"MALLOC_TRIM_THRESHOLD_": "1099511627776",
}

// KeepHostPages makes the C allocator keep the pages it once got instead of
// returning large blocks to the kernel after every use. XLA on CPU allocates its
// temporaries anew for each run, so that otherwise they are unmapped and faulted
// in again every step: an elementwise operation on 32 MiB takes twice as long.
// The process's resident memory then stays at its peak.
//
// glibc reads these settings when a process starts, so KeepHostPages replaces
// the process by itself, with the settings in its environment. Call it first
// thing in main. It returns nil in a process that has the settings; variables
// that the user has set are left as they are. (mallopt comes too late: the
// threads of Go's runtime have arenas of their own by then, which unmap large
// blocks whatever they are told.)
func KeepHostPages() error {
	env := os.Environ()
	for _, k := range slices.Sorted(maps.Keys(hostPages)) {
		if _, set := os.LookupEnv(k); !set {
			env = append(env, k+"="+hostPages[k])
		}
	}
	if len(env) == len(os.Environ()) {
		return nil
	}
	err := syscall.Exec("/proc/self/exe", os.Args, env)
	return fmt.Errorf("pjrt: KeepHostPages: starting this program again: %w", err)
}
