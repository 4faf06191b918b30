package metrics

import (
	"os"
	"strconv"
	"strings"
)

const gib = 1 << 30

// Memory is the most that one device had in use, in bytes. Zero is unknown.
type Memory struct {
	Active   int64 // in buffers
	Reserved int64 // by the allocator
	Limit    int64 // of the device
}

// max keeps the larger of each figure.
func (m Memory) max(o Memory) Memory {
	return Memory{max(m.Active, o.Active), max(m.Reserved, o.Reserved), max(m.Limit, o.Limit)}
}

// used is what a log line shows: what is reserved, or active where the runtime
// does not tell.
func (m Memory) used() int64 {
	if m.Reserved > 0 {
		return m.Reserved
	}
	return m.Active
}

// HostMemory returns the most memory that this process had resident and the
// memory of the machine: for devices that are virtual and live in the process.
// Where the system does not tell, it is zero.
func HostMemory() Memory {
	return Memory{
		Reserved: procField("/proc/self/status", "VmHWM:"),
		Limit:    procField("/proc/meminfo", "MemTotal:"),
	}
}

// procField returns a field of a /proc file in bytes, or 0.
func procField(file, name string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}
