//go:build !unix

package compilecache

import "time"

// cpuTime is not known.
func cpuTime() time.Duration { return 0 }
