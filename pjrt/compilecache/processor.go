package compilecache

import (
	"fmt"

	"golang.org/x/sys/cpu"
)

// features are the extensions of the instruction set that Go knows of.
func features() string { return fmt.Sprintf("%+v %+v", cpu.X86, cpu.ARM64) }
