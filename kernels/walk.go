package kernels

import (
	"slices"
	"strings"
)

// mostSteps is about how many steps of a grid are gone through one by one: of a
// larger grid some steps of the outermost dimension stand for all.
const mostSteps = 1 << 16

// walk goes through the grid of a kernel with the scalars that decide what happens:
// conditions, and the indices of blocks.
type walk struct {
	k       *Kernel
	sizes   []int // of the grid
	scalars []*Value
	at      map[*Value]int // in scalars
	args    [][]int
	value   []int64   // of the scalars, at a step
	ifs     []int     // the conditions, in the order of the code
	outer   []int     // the If around each, -1 for none
	ids     []int64   // where on the grid
	indices []int     // those of all windows
	starts  []int     // where each window's begin in indices, and the end
	size    []float64 // of a block of each window, in bytes
}

// newWalk lists what has to be computed at each step; nil if some of it is not made
// of integers.
func (k *Kernel) newWalk() *walk {
	w := &walk{k: k, at: map[*Value]int{}, ids: make([]int64, len(k.grid)), starts: []int{0}}
	bounds := k.typical.bounds
	for _, d := range k.grid {
		n := d.n
		if d.dynamic {
			n, bounds = bounds[0], bounds[1:]
		}
		w.sizes = append(w.sizes, n)
	}
	ok := true
	var add func(v *Value) int
	add = func(v *Value) int {
		if i, seen := w.at[v]; seen {
			return i
		}
		var args []int
		for _, a := range v.args {
			args = append(args, add(a))
		}
		ok = ok && v.whole()
		w.at[v] = len(w.scalars)
		w.scalars, w.args = append(w.scalars, v), append(w.args, args)
		return w.at[v]
	}
	var conditions func(b *block, outer int)
	conditions = func(b *block, outer int) {
		for _, v := range b.ops {
			if v.op == opIf {
				w.ifs, w.outer = append(w.ifs, add(v.args[0])), append(w.outer, outer)
				conditions(v.body, len(w.ifs)-1)
			}
		}
	}
	conditions(k.main, -1)
	for _, r := range k.windows() {
		for _, v := range r.index {
			w.indices = append(w.indices, add(v))
		}
		w.starts, w.size = append(w.starts, len(w.indices)), append(w.size, float64(r.sheets()*r.tile().Bytes()))
	}
	w.value = make([]int64, len(w.scalars))
	if !ok {
		return nil
	}
	return w
}

// whole says whether v is an integer or a truth value that evaluate computes.
func (v *Value) whole() bool {
	switch v.op {
	case opAdd, opSub, opMul, opDiv, opRem, opMin, opMax, opAnd, opOr, opNot, opCompare, opSelect, opGrid, opConst, opAt:
		return v.scalar() && !v.typ.DType.IsFloat()
	}
	return false
}

// run adds all steps to e.
func (w *walk) run(e *Expected) {
	total := 1
	for _, n := range w.sizes {
		total *= n
	}
	scale := 1.0
	if inner := total / w.sizes[0]; total > mostSteps {
		some := min(w.sizes[0], max(1, mostSteps/inner))
		if w.k.grid[0].dynamic { // its steps are not alike
			some = w.sizes[0]
		}
		scale, total = float64(w.sizes[0])/float64(some), inner*some
	}
	kinds := map[Steps]int{}
	outputs := len(w.k.refs[input])
	for _, n := range w.size[:outputs] {
		e.Ends += n
	}
	var last []int64
	here := w.places(0)
	for t := range total {
		kind := Steps{Ran: w.conditions()}
		for i, n := range w.size[outputs:] { // what the step before has finished
			if t > 0 && !w.same(outputs+i, last, here) {
				kind.Bytes += n
			}
		}
		if last = here; t+1 < total {
			here = w.places(t + 1)
			for i, n := range w.size[:outputs] { // what the next one needs
				if !w.same(i, last, here) {
					kind.Bytes += n
				}
			}
		}
		kinds[kind]++
	}
	for _, n := range w.size[outputs:] {
		e.Ends += n
	}
	for kind, n := range kinds {
		kind.Count = float64(n) * scale
		e.Steps = append(e.Steps, kind)
	}
	slices.SortFunc(e.Steps, func(a, b Steps) int {
		if c := strings.Compare(a.Ran, b.Ran); c != 0 {
			return c
		}
		return int(a.Bytes - b.Bytes)
	})
}

// places computes the scalars at step t, and returns where the windows are.
func (w *walk) places(t int) []int64 {
	for d := len(w.sizes) - 1; d >= 0; d-- {
		w.ids[d] = int64(t % w.sizes[d])
		t /= w.sizes[d]
	}
	for i, v := range w.scalars {
		w.value[i] = w.evaluate(v, w.args[i])
	}
	out := make([]int64, 0, w.starts[len(w.starts)-1])
	for _, s := range w.indices {
		out = append(out, w.value[s])
	}
	return out
}

// same says whether window i is at the same place.
func (w *walk) same(i int, a, b []int64) bool {
	return slices.Equal(a[w.starts[i]:w.starts[i+1]], b[w.starts[i]:w.starts[i+1]])
}

// conditions says which Ifs run at the step that was computed last.
func (w *walk) conditions() string {
	ran := make([]byte, len(w.ifs))
	for i, c := range w.ifs {
		ran[i] = '0'
		if w.value[c] != 0 && (w.outer[i] < 0 || ran[w.outer[i]] == '1') {
			ran[i] = '1'
		}
	}
	return string(ran)
}

// evaluate computes v. Scalars are computed whether a step needs them or not: an
// index that leads out of a vector, and a division by zero, give some value.
func (w *walk) evaluate(v *Value, args []int) int64 {
	x := func(i int) int64 { return w.value[args[i]] }
	switch v.op {
	case opGrid:
		return w.ids[int(v.num)]
	case opConst:
		return int64(v.num)
	case opAt:
		vector := w.k.typical.prefetch[slices.Index(w.k.refs[prefetched], v.ref)]
		return int64(vector[min(max(x(0), 0), int64(len(vector)-1))])
	case opAdd:
		return x(0) + x(1)
	case opSub:
		return x(0) - x(1)
	case opMul:
		return x(0) * x(1)
	case opDiv, opRem:
		switch d := x(1); {
		case d == 0:
			return 0
		case v.op == opDiv:
			return x(0) / d
		default:
			return x(0) % d
		}
	case opMin:
		return min(x(0), x(1))
	case opMax:
		return max(x(0), x(1))
	case opAnd:
		return x(0) & x(1)
	case opOr:
		return x(0) | x(1)
	case opNot:
		return 1 - x(0)
	case opSelect:
		if x(0) != 0 {
			return x(1)
		}
		return x(2)
	}
	if v.cmp.holds(x(0), x(1)) {
		return 1
	}
	return 0
}

func (c compare) holds(x, y int64) bool {
	switch c {
	case equal:
		return x == y
	case notEqual:
		return x != y
	case less:
		return x < y
	case lessEqual:
		return x <= y
	case greater:
		return x > y
	}
	return x >= y
}
