package pjrt

import (
	"fmt"
	"sync"

	"github.com/ebitengine/purego"
)

// libc holds the C library's functions that hand memory to C.
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

// Parameters of glibc's mallopt.
const (
	mTrimThreshold = -1
	mMmapMax       = -4
	mArenaMax      = -8
)

// KeepHostPages tells glibc's allocator to keep the pages it once got instead
// of returning large blocks to the kernel after every use. XLA on CPU allocates
// its temporaries anew for each run, so that otherwise they are unmapped and
// faulted in again every step: an elementwise operation on 32 MiB takes twice as
// long. Call it before the first Open; the process's resident memory then stays
// at its peak. It fails on C libraries other than glibc.
func KeepHostPages() error {
	sym, err := purego.Dlsym(purego.RTLD_DEFAULT, "mallopt")
	if err != nil {
		return fmt.Errorf("pjrt: KeepHostPages needs glibc: %w", err)
	}
	var mallopt func(param, value int32) int32
	purego.RegisterFunc(&mallopt, sym)
	for _, o := range [][2]int32{{mMmapMax, 0}, {mTrimThreshold, -1}, {mArenaMax, 1}} {
		if mallopt(o[0], o[1]) != 1 {
			return fmt.Errorf("pjrt: mallopt(%d, %d) was refused", o[0], o[1])
		}
	}
	return nil
}
