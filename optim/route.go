package optim

import (
	"fmt"
	"slices"
	"strings"

	"titan/mesh"
	"titan/sharding"
)

// Muon needs whole matrices, and parameters lie in parts. Every device is given
// its share of the matrices: an all-to-all over the axes that split a matrix
// turns "a part of each of many" into "all of some", the iteration runs, and the
// reverse all-to-all brings the parts home. Axes along which devices hold equal
// copies (dp_replicate) take a share each, with an all-gather at the end. Axes
// that split the stack (layers over pp, experts over ep) have done the sharing.
//
// Matrices are dealt out one to each device, round after round. A device's list
// is a sequence of such rounds, called slots; where a load ends within a round
// the next load of the same shape may begin.

// flopsPerByte is about how many bf16 flops an accelerator does in the time in
// which a byte crosses its fast links: v5e and v5p 1,000 to 2,500, H100 2,200.
// It decides between whole and split matrices only, so its size matters little.
const flopsPerByte = 2000

// move is an all-to-all between the devices to which matrices are dealt and a
// dimension of one matrix, counted without the stack.
type move struct {
	dim  int
	axes []string
	size int
}

// load is matrices that travel together: parameters of one shape, stored in one
// way.
type load struct {
	members []int // positions among those that Muon updates
	spec    sharding.Spec
	view    matrices
	local   []int // shape of a device's part of a parameter
	count   int   // matrices in a device's part of the stacks of all members

	moves []move
	// split are axes that split the longer side and go on doing so during the
	// iteration: where there are fewer matrices than devices and they are large.
	split []string
	wide  bool // columns are the longer side
	first int  // number of the load's first matrix in the job
}

// job is loads of matrices of the same size, one iteration.
type job struct {
	loads []*load
	share []string // axes with equal copies over which matrices are dealt out
	per   int      // devices to which they are dealt
	slots int
}

// axesOf lists the mesh axes with more than one device that split dimensions lo
// to hi of an array, dimension by dimension.
func axesOf(m *mesh.Mesh, spec sharding.Spec, lo, hi int) (axes []string) {
	for i := lo; i < hi; i++ {
		for _, a := range spec.Dim(i) {
			if m.AxisSize(a) > 1 {
				axes = append(axes, a)
			}
		}
	}
	return axes
}

func devices(m *mesh.Mesh, axes []string) int {
	n := 1
	for _, a := range axes {
		n *= m.AxisSize(a)
	}
	return n
}

// free lists the axes along which devices hold equal copies.
func free(m *mesh.Mesh, spec sharding.Spec, rank int) (axes []string) {
	used := axesOf(m, spec, 0, rank)
	for _, a := range m.Axes() {
		if a.Size > 1 && !slices.Contains(used, a.Name) {
			axes = append(axes, a.Name)
		}
	}
	return axes
}

// newLoad chooses the axes that go on splitting the matrices, which is what
// takes the least time on the device with the longest list, and finds the way to
// matrices that are whole but for that.
func newLoad(m *mesh.Mesh, spec sharding.Spec, v matrices, local []int, o muon) *load {
	l := &load{spec: spec, view: v, local: local, count: product(local[:v.stack])}
	rank := len(local)
	all := devices(m, free(m, spec, rank)) * devices(m, axesOf(m, spec, v.stack, rank))
	short, long := float64(min(v.in, v.out)), float64(max(v.in, v.out))
	least := -1.0
	try := func(wide bool, side []string) {
		for set := range 1 << len(side) {
			var keep []string
			for i, a := range side {
				if set>>i&1 == 1 {
					keep = append(keep, a)
				}
			}
			k := devices(m, keep)
			if min(v.in, v.out)%k != 0 {
				continue
			}
			n := float64(k)
			flops := (4*short*short*long + 2*short*short*short) / n
			bytes := 3 * short * short * float64(o.dtype.Size()) * (n - 1) / n
			if cost := float64(ceil(l.count, all/k)) * (flops + o.balance*bytes); least < 0 || cost < least {
				least, l.split, l.wide = cost, keep, wide
			}
		}
	}
	if v.in <= v.out {
		try(true, axesOf(m, spec, v.stack+v.rows, rank))
	}
	if v.in >= v.out {
		try(false, axesOf(m, spec, v.stack, v.stack+v.rows))
	}
	for i := v.stack; i < rank; i++ {
		axes := slices.DeleteFunc(axesOf(m, spec, i, i+1), func(a string) bool { return slices.Contains(l.split, a) })
		if len(axes) > 0 {
			l.moves = append(l.moves, move{i - v.stack, axes, devices(m, axes)})
		}
	}
	// So that parameters with the same axes deal to devices in the same order.
	order := m.Axes()
	slices.SortFunc(l.moves, func(x, y move) int { return axisIndex(order, x.axes[0]) - axisIndex(order, y.axes[0]) })
	return l
}

func axisIndex(axes []mesh.Axis, name string) int {
	return slices.IndexFunc(axes, func(a mesh.Axis) bool { return a.Name == name })
}

// key is equal for loads that one job can hold.
func (l *load) key() string {
	var moves []string
	for _, m := range l.moves {
		moves = append(moves, strings.Join(m.axes, ","))
	}
	return fmt.Sprint(min(l.view.in, l.view.out), max(l.view.in, l.view.out), l.split, moves)
}

func ceil(a, b int) int { return (a + b - 1) / b }

// plan makes jobs of the parameters that Muon updates. Loads are joined where
// that shortens the devices' lists, and stay apart otherwise: smaller jobs take
// less memory at a time.
func plan(m *mesh.Mesh, specs []sharding.Spec, params []Param, o muon) ([]*job, error) {
	var loads []*load
	alike := map[string]int{} // position in loads of the last with a layout
	for i, p := range params {
		v, _ := p.matrices()
		local, err := specs[i].Shard(m, p.Shape)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", p.Name, err)
		}
		l := newLoad(m, specs[i], v, local, o)
		l.members = []int{i}
		layout := fmt.Sprint(p.Shape, v, specs[i])
		if k, ok := alike[layout]; ok {
			per := dealt(m, l)
			if last := loads[k]; ceil(last.count+l.count, per) < ceil(last.count, per)+ceil(l.count, per) {
				last.members, last.count = append(last.members, i), last.count+l.count
				continue
			}
		}
		alike[layout] = len(loads)
		loads = append(loads, l)
	}
	var jobs []*job
	same := map[string]*job{}
	for _, l := range loads {
		key := fmt.Sprint(l.key(), free(m, l.spec, len(l.local)))
		if j := same[key]; j != nil {
			last := j.loads[len(j.loads)-1]
			end := last.first + last.count
			if ceil(end+l.count, j.per) < ceil(end, j.per)+ceil(l.count, j.per) {
				l.first = end
				j.loads = append(j.loads, l)
				continue
			}
		}
		same[key] = &job{loads: []*load{l}, share: free(m, l.spec, len(l.local)), per: dealt(m, l)}
		jobs = append(jobs, same[key])
	}
	for _, j := range jobs {
		last := j.loads[len(j.loads)-1]
		end := last.first + last.count
		j.slots = ceil(end, j.per)
		// An axis that does not shorten anybody's list need not take part. The first
		// axes of a mesh have the slowest links.
		for _, a := range slices.Clone(j.share) {
			if per := j.per / m.AxisSize(a); ceil(end, per) == j.slots {
				j.per = per
				j.share = slices.DeleteFunc(j.share, func(x string) bool { return x == a })
			}
		}
	}
	return jobs, nil
}

// dealt is the number of devices, or groups that split matrices, to which a
// load can be dealt.
func dealt(m *mesh.Mesh, l *load) int {
	n := devices(m, free(m, l.spec, len(l.local)))
	for _, x := range l.moves {
		n *= x.size
	}
	return n
}
