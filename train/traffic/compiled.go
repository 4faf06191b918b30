package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"titan/mesh"
	"titan/pjrt/hlo"
)

// Transfer is what a device exchanges with others along some axes of the mesh, by
// one kind of collective, in a step.
type Transfer struct {
	What string   // what travels; "" for what was read from a program
	Kind string   // XLA's name, such as "all-gather"
	Axes []string // in the order of the mesh
	// Count is how many collectives there are, each of one array: compilers may
	// combine some.
	Count int64
	// Bytes is the larger of what goes in and what comes out, over all of them.
	Bytes int64
}

// Key names the kind and the axes: "all-gather dp_shard×cp".
func (t Transfer) Key() string { return t.Kind + " " + strings.Join(t.Axes, "×") }

// Sums adds up bytes by [Transfer.Key].
func Sums(ts []Transfer) map[string]int64 {
	sums := map[string]int64{}
	for _, t := range ts {
		if t.Bytes > 0 {
			sums[t.Key()] += t.Bytes
		}
	}
	return sums
}

// Compiled returns what a compiled program, partitioned for a mesh, exchanges in a
// run, sorted by key. Scalars are left out: how compilers treat them varies. What a
// loop does of which the number of iterations is unknown counts once. The error
// names a collective that is not along axes of the mesh.
func Compiled(p *hlo.Module, m *mesh.Mesh) ([]Transfer, error) {
	byKey := map[string]*Transfer{}
	for _, c := range p.Collectives() {
		axes, err := axesOf(c.Op, m)
		if err != nil {
			return nil, err
		}
		arrays := arrays(c.Op)
		if len(arrays) == 0 || len(axes) == 0 {
			continue
		}
		t := Transfer{Kind: c.Kind(), Axes: axes}
		if byKey[t.Key()] == nil {
			byKey[t.Key()] = &t
		}
		sum := byKey[t.Key()]
		for _, bytes := range arrays {
			sum.Count += c.Times
			sum.Bytes += c.Times * bytes
		}
	}
	var out []Transfer
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, *byKey[k])
	}
	return out, nil
}

// arrays returns the bytes of every array, not scalar, that a collective handles:
// before it or after it, whichever is more.
func arrays(op *hlo.Instruction) []int64 {
	if op.Collective() == "all-to-all" && op.Shape.Type == hlo.Tuple {
		return []int64{op.Shape.Bytes()} // of one array, in parts
	}
	outs := []hlo.Shape{op.Shape}
	switch {
	case strings.HasSuffix(op.Opcode, "-start") && op.Collective() == "all-reduce":
		outs = leaves(op.Shape)
	case strings.HasSuffix(op.Opcode, "-start") && len(op.Shape.Elements) > 1:
		outs = leaves(op.Shape.Elements[1]) // operands, results, more
	case op.Shape.Type == hlo.Tuple:
		outs = leaves(op.Shape)
	}
	var in []hlo.Shape
	for _, o := range op.Operands {
		in = append(in, leaves(o.Shape)...)
	}
	var bytes []int64
	for i, s := range outs {
		if len(s.Dims) == 0 {
			continue
		}
		n := s.Bytes()
		if i < len(in) {
			n = max(n, in[i].Bytes())
		}
		bytes = append(bytes, n)
	}
	return bytes
}

func leaves(s hlo.Shape) (out []hlo.Shape) {
	s.Leaves(func(a hlo.Shape) { out = append(out, a) })
	return out
}

// axesOf finds the axes along which the devices lie that take part together.
func axesOf(op *hlo.Instruction, m *mesh.Mesh) ([]string, error) {
	groups := op.ReplicaGroups
	if op.Collective() == "collective-permute" {
		for _, p := range op.SourceTargetPairs {
			groups = append(groups, p[:])
		}
	} else if len(groups) == 0 {
		groups = [][]int{make([]int, m.Size())}
		for i := range groups[0] {
			groups[0][i] = i
		}
	}
	differ := make([]bool, len(m.Axes()))
	for _, g := range groups {
		for _, d := range g {
			at, first := m.Coords(d), m.Coords(g[0])
			if at == nil || first == nil {
				return nil, fmt.Errorf("traffic: %s is among devices %v; the mesh has %d", op.Name, g, m.Size())
			}
			for i := range at {
				differ[i] = differ[i] || at[i] != first[i]
			}
		}
	}
	var axes []string
	n := 1
	for i, a := range m.Axes() {
		if differ[i] {
			axes = append(axes, a.Name)
			n *= a.Size
		}
	}
	if op.Collective() != "collective-permute" {
		for _, g := range groups {
			if len(g) != n {
				return nil, fmt.Errorf("traffic: %s is among devices %v, which do not lie along whole axes of %v", op.Name, g, m)
			}
		}
	}
	return axes, nil
}
