package compilecache

import (
	"os"
	"slices"
	"strings"
	"sync"
)

// The lines of /proc/cpuinfo that say what code a processor runs and what it is
// tuned for, on x86 and on ARM. (Not its speed, which changes, nor its
// microcode.)
var processorLines = []string{"vendor_id", "cpu family", "model", "model name", "stepping", "flags",
	"Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"}

// processor describes the first processor of the host.
var processor = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return features()
	}
	return describeProcessor(string(text))
})

func describeProcessor(cpuinfo string) string {
	first, _, _ := strings.Cut(cpuinfo, "\n\n")
	var out []string
	for line := range strings.Lines(first) {
		name, value, _ := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); slices.Contains(processorLines, name) {
			out = append(out, name+"="+strings.TrimSpace(value))
		}
	}
	return strings.Join(out, "\n")
}
