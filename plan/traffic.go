package plan

import (
	"titan/pjrt/hlo"
)

// traffic counts what instructions read from and write to the device's main
// memory, in bytes. Of arrays of which a fusion only takes or replaces a slice, as
// loops do with what is stacked over their turns, that slice counts.
type traffic struct {
	fusions map[*hlo.Computation]*fusionTraffic
}

type fusionTraffic struct {
	params map[int]float64 // by parameter number
	result float64
}

func newTraffic() *traffic { return &traffic{map[*hlo.Computation]*fusionTraffic{}} }

// bytes is what one execution of an instruction moves.
func (t *traffic) bytes(i *hlo.Instruction) float64 {
	switch i.Opcode {
	case "fusion":
		if len(i.Called) == 1 {
			f := t.fusion(i.Called[0], 0)
			n := 0.0
			for k, o := range i.Operands {
				n += min(f.params[k], mainMemory(o.Shape))
			}
			return n + min(f.result, mainMemory(i.Shape))
		}
	case "dynamic-update-slice":
		if len(i.Operands) > 1 {
			return 2 * mainMemory(i.Operands[1].Shape)
		}
	case "dynamic-slice", "slice", "gather":
		return 2 * mainMemory(i.Shape)
	}
	n := mainMemory(i.Shape)
	for _, o := range i.Operands {
		n += mainMemory(o.Shape)
	}
	return n
}

// mainMemory is the size of the arrays of s that are in the device's main memory.
func mainMemory(s hlo.Shape) float64 {
	n := 0.0
	s.Leaves(func(a hlo.Shape) {
		if a.MemorySpace == 0 {
			n += float64(a.Bytes())
		}
	})
	return n
}

// size is the size of the arrays of s wherever they are. Inside fusions shapes
// have no memory.
func size(s hlo.Shape) float64 { return float64(s.Bytes()) }

func (t *traffic) fusion(c *hlo.Computation, depth int) *fusionTraffic {
	if f := t.fusions[c]; f != nil {
		return f
	}
	f := &fusionTraffic{params: map[int]float64{}}
	t.fusions[c] = f
	users := map[*hlo.Instruction][]*hlo.Instruction{}
	for _, i := range c.Instructions {
		for _, o := range i.Operands {
			users[o] = append(users[o], i)
		}
	}
	for _, i := range c.Instructions {
		if i.Opcode == "parameter" {
			f.params[i.ParameterNumber] = t.read(i, users, depth)
		}
	}
	if c.Root != nil {
		f.result = t.written(c.Root, depth)
	}
	return f
}

// read is how much of x the users of x in a fusion read.
func (t *traffic) read(x *hlo.Instruction, users map[*hlo.Instruction][]*hlo.Instruction, depth int) float64 {
	all, n := size(x.Shape), 0.0
	if depth > maxDepth {
		return all
	}
	for _, u := range users[x] {
		switch {
		case u.Opcode == "bitcast":
			n += t.read(u, users, depth+1)
		case u.Opcode == "dynamic-slice" || u.Opcode == "slice":
			n += size(u.Shape)
		case u.Opcode == "dynamic-update-slice" && u.Operands[0] == x:
		case u.Opcode == "fusion" && len(u.Called) == 1:
			inner := t.fusion(u.Called[0], depth+1)
			for k, o := range u.Operands {
				if o == x {
					n += inner.params[k]
				}
			}
		default:
			n += all
		}
	}
	return min(n, all)
}

// written is how much of a fusion's result it writes.
func (t *traffic) written(i *hlo.Instruction, depth int) float64 {
	if depth > maxDepth {
		return size(i.Shape)
	}
	switch {
	case i.Opcode == "dynamic-update-slice" && len(i.Operands) > 1:
		return size(i.Operands[1].Shape)
	case i.Opcode == "bitcast" && len(i.Operands) == 1:
		return t.written(i.Operands[0], depth+1)
	case i.Opcode == "tuple":
		n := 0.0
		for _, o := range i.Operands {
			n += t.written(o, depth+1)
		}
		return n
	case i.Opcode == "fusion" && len(i.Called) == 1:
		return t.fusion(i.Called[0], depth+1).result
	}
	return size(i.Shape)
}
