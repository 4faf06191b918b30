package plan

import (
	"fmt"
	"io"
	"os"
	"testing"
)

// Plans start a process to look at the code of kernels, and a test one to look at the
// compiler's account of memory: here, the test binary.
func TestMain(m *testing.M) {
	children := map[string]func(in io.Reader, out io.Writer) error{"kernel": CompileKernel, "account": compileForAccount}
	if len(os.Args) == 2 && children[os.Args[1]] != nil {
		if err := children[os.Args[1]](os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
