package pjrt_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/internal/xlatest"
	"titan/pjrt"
)

func init() { children["pages"] = pagesChild }

const pagesModule = `module @pages { func.func public @main(%a: tensor<25165824xf32>) -> tensor<25165824xf32> {
 %r = stablehlo.exponential %a : tensor<25165824xf32>
 return %r : tensor<25165824xf32> } }`

// pagesChild computes two arrays of 96 MiB and says how much of the memory they
// took the process keeps.
func pagesChild() error {
	if os.Getenv("KEEP") != "" {
		if err := pjrt.KeepHostPages(); err != nil {
			return err
		}
	}
	c, err := childClient()
	if err != nil {
		return err
	}
	x, err := c.Compile([]byte(pagesModule), pjrt.CompileOptions{})
	if err != nil {
		return err
	}
	data := make([]byte, 96<<20)
	defer runtime.KeepAlive(data) // lest the process shrinks by it meanwhile
	in, err := c.Put(data, dtype.F32, []int{24 << 20}, c.LocalDevices()[0])
	if err != nil {
		return err
	}
	before := resident()
	var outs [][]*pjrt.Buffer
	for range 2 {
		o, err := x.Run([][]*pjrt.Buffer{{in}}, pjrt.ExecuteOptions{})
		if err != nil {
			return err
		}
		outs = append(outs, o...)
	}
	full := resident()
	if err := pjrt.CloseBuffers(outs...); err != nil {
		return err
	}
	fmt.Printf("took %v MiB, kept %v MiB\n", (full-before)>>20, (resident()-before)>>20)
	return errors.Join(in.Close(), x.Close(), c.Close())
}

// TestKeepHostPages: the allocator keeps what it is told to keep.
func TestKeepHostPages(t *testing.T) {
	xlatest.CPU(t)
	for _, keep := range []string{"", "1"} {
		cmd, out := child(t, "pages", "KEEP="+keep)
		require.NoError(t, cmd.Run(), out)
		var took, kept int
		_, err := fmt.Sscanf(strings.TrimSpace(out.String()), "took %d MiB, kept %d MiB", &took, &kept)
		require.NoError(t, err, out)
		require.GreaterOrEqual(t, took, 180)
		if keep == "" {
			require.Less(t, kept, 90)
		} else {
			require.GreaterOrEqual(t, kept, 180)
		}
	}
}
