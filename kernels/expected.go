package kernels

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Expected is what a call of a kernel does on data as its author expects it: what
// happens at the steps of its grid, which depends on data. The planner prices the
// code that the compiler makes of the kernel by it.
type Expected struct {
	// Conditionals are the Ifs in the order of the code, those inside of others
	// behind them.
	Conditionals []Conditional `json:"ifs,omitempty"`
	// Steps are the steps of the grid by what they do; Bytes is the sum of what they
	// copy and of Ends, what is copied before the first and after the last.
	Steps []Steps `json:"steps"`
	Ends  float64 `json:"ends"`
	// Parallel is the number of steps along the first dimension of the grid whose
	// steps cores can share; 1 if there is none.
	Parallel int `json:"parallel"`
}

// Conditional is an If: inside of how many others it is, and whether it multiplies
// tiles itself.
type Conditional struct {
	Depth int  `json:"depth"`
	Dot   bool `json:"dot,omitempty"`
}

// Steps are Count steps in which the same Ifs run ('1' in Ran, else '0') and as many
// bytes are copied between the device's memory and the vector memory: the blocks of
// the next step, and the results of the one before.
type Steps struct {
	Count float64 `json:"n"`
	Ran   string  `json:"ran"`
	Bytes float64 `json:"bytes"`
}

// Bytes is what a call copies.
func (e Expected) Bytes() float64 {
	n := e.Ends
	for _, s := range e.Steps {
		n += s.Count * s.Bytes
	}
	return n
}

// Count is the number of steps.
func (e Expected) Count() float64 {
	n := 0.0
	for _, s := range e.Steps {
		n += s.Count
	}
	return n
}

// expectedLine begins the line of a kernel's code, a comment there, that holds what
// is expected of it, as JSON.
const expectedLine = "// expected: "

// ExpectedOf reads what the author of a kernel expects from the kernel's code, and
// false if it does not say.
func ExpectedOf(code string) (e Expected, ok bool, err error) {
	_, rest, ok := strings.Cut(code, "\n"+expectedLine)
	if !ok {
		return e, false, nil
	}
	line, _, _ := strings.Cut(rest, "\n")
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return e, false, fmt.Errorf("kernels: what is expected of a kernel, %q: %w", line, err)
	}
	return e, true, nil
}

// Expect gives data that is typical: the dynamic bounds of the grid and the
// contents of the prefetched vectors, as Call takes them. From it follows how often
// blocks are copied, and what [ExpectedOf] returns of the kernel's code.
func (k *Kernel) Expect(bounds []int, prefetch ...[]int32) {
	var sizes []int
	for _, r := range k.refs[prefetched] {
		sizes = append(sizes, r.typ.Shape[0])
	}
	ok := len(prefetch) == len(sizes)
	for i := 0; ok && i < len(sizes); i++ {
		ok = len(prefetch[i]) == sizes[i]
	}
	dynamic := 0
	for _, d := range k.grid {
		if d.dynamic {
			ok = ok && dynamic < len(bounds) && 0 < bounds[dynamic] && bounds[dynamic] <= d.n
			dynamic++
		}
	}
	if !ok || dynamic != len(bounds) {
		k.fail("expect", "bounds %v and %d vectors; want a bound, from 1 to the most there are, for each dynamic dimension of the grid and vectors of %v", bounds, len(prefetch), sizes)
		return
	}
	k.typical = &typical{bounds: bounds, prefetch: prefetch}
}

// typical is data that is expected.
type typical struct {
	bounds   []int
	prefetch [][]int32
	result   *Expected // once it is worked out
}

// conditionals lists the Ifs of b.
func (b *block) conditionals(depth int) []Conditional {
	var out []Conditional
	for _, v := range b.ops {
		if v.op == opIf {
			c := Conditional{Depth: depth}
			for _, in := range v.body.ops {
				c.Dot = c.Dot || in.op == opDot
			}
			out = append(append(out, c), v.body.conditionals(depth+1)...)
		}
	}
	return out
}

// expected goes through the grid on typical data; nil without.
func (k *Kernel) expected() *Expected {
	if k.typical == nil || k.err != nil {
		return nil
	}
	if e := k.typical.result; e != nil {
		return e
	}
	e := &Expected{Conditionals: k.main.conditionals(0), Parallel: 1}
	for i, d := range k.grid {
		if d.order == Parallel && !d.dynamic {
			e.Parallel = k.grid[i].n
			break
		}
	}
	w := k.newWalk()
	if w == nil {
		return nil
	}
	w.run(e)
	k.typical.result = e
	return e
}
