package pjrt

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

var errEmptyProgram = errors.New("pjrt: compile: the program is empty")

var (
	moduleCount = regexp.MustCompile(`mhlo\.num_(replicas|partitions)\s*=\s*([0-9]+)`)
	sdyMesh     = regexp.MustCompile(`^sdy\.mesh\s+@([^\s=]+)\s*=\s*<\[([^\]]*)\]`)
	meshAxis    = regexp.MustCompile(`"[^"]*"\s*=\s*([0-9]+)`)
)

// checkProgram refuses programs that contradict the options. The plugins compile
// them into something else. It looks at text only.
func (o CompileOptions) checkProgram(code []byte) error {
	if len(bytes.TrimSpace(code)) == 0 {
		return errEmptyProgram
	}
	if bytes.HasPrefix(code, []byte("ML\xefR")) { // bytecode
		return nil
	}
	r, n := o.size()
	want := map[string]int{"replicas": r, "partitions": n}
	head := code
	if k := bytes.Index(code, []byte("func.func")); k >= 0 {
		head = code[:k]
	}
	for _, m := range moduleCount.FindAllSubmatch(head, -1) {
		if kind := string(m[1]); string(m[2]) != strconv.Itoa(want[kind]) {
			return fmt.Errorf("pjrt: compile: the program says mhlo.num_%s = %s, the options say %d", kind, m[2], want[kind])
		}
	}
	const word = "sdy.mesh "
	for rest := code; ; {
		k := bytes.Index(rest, []byte(word))
		if k < 0 {
			return nil
		}
		rest = rest[k:]
		if m := sdyMesh.FindSubmatch(rest); m != nil {
			if err := o.checkMesh(string(m[1]), m[2]); err != nil {
				return err
			}
		}
		rest = rest[len(word):]
	}
}

func (o CompileOptions) checkMesh(name string, axes []byte) error {
	if !o.Shardy {
		return fmt.Errorf("pjrt: compile: the program has a Shardy mesh @%s, but CompileOptions.Shardy is not set", name)
	}
	size, found := 1, false
	for _, a := range meshAxis.FindAllSubmatch(axes, -1) {
		k, err := strconv.Atoi(string(a[1]))
		if err != nil || k < 1 || k > maxInt/size {
			return fmt.Errorf("pjrt: compile: mesh @%s has an axis of size %s", name, a[1])
		}
		size, found = size*k, true
	}
	if _, n := o.size(); found && size != n {
		return fmt.Errorf("pjrt: compile: mesh @%s = <[%s]> has %d devices, the options say %d partitions", name, axes, size, n)
	}
	return nil
}
