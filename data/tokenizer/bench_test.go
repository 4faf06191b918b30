//go:build unix

package tokenizer

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// goSource returns up to limit bytes of the Go toolchain's own sources.
func goSource(tb testing.TB, limit int) []string {
	var texts []string
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		tb.Skipf("no Go toolchain: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		texts = append(texts, string(data))
		if limit -= len(data); limit <= 0 {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil || len(texts) == 0 {
		tb.Skipf("the Go toolchain's sources are not at %s: %v", root, err)
	}
	return texts
}

// cpuTime is what the process has used of all cores.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkEncodeGoSource gives the speed on one core, in MB/s, on all of the
// Go toolchain's sources; MB/cpu-s is the figure on a machine that others share.
func BenchmarkEncodeGoSource(b *testing.B) {
	texts := goSource(b, 1<<40)
	total := 0
	for _, t := range texts {
		total += len(t)
	}
	for _, name := range []string{"llama3", "qwen"} {
		b.Run(name, func(b *testing.B) {
			e := load(b, name).NewEncoder()
			b.SetBytes(int64(total))
			b.ReportAllocs()
			var ids []int32
			tokens, rounds, start := 0, 0, cpuTime()
			for b.Loop() {
				tokens = 0
				rounds++
				for _, t := range texts {
					var err error
					if ids, err = e.Append(ids[:0], t); err != nil {
						b.Fatal(err)
					}
					tokens += len(ids)
				}
			}
			b.ReportMetric(float64(total)*float64(rounds)/1e6/(cpuTime()-start).Seconds(), "MB/cpu-s")
			b.ReportMetric(float64(total)/float64(tokens), "bytes/token")
		})
	}
}
