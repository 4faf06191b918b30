package plan

import (
	"fmt"
	"os"
	"testing"
)

// Plans start a process to look at the code of kernels: here, the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "kernel" {
		if err := CompileKernel(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
