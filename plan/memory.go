package plan

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"titan/graph"
	"titan/internal/human"
	"titan/pjrt"
	"titan/pjrt/hlo"
	"titan/train"
)

// Memory is what a step needs of a device's memory, in bytes.
type Memory struct {
	Fits bool `json:"fits"`
	// Tight says that Fits is of the step as compiled with little effort, and so near the
	// limit that it may be otherwise at the compiler's default effort.
	Tight bool `json:"tight,omitempty"`
	// Limit is what programs can use, Needed the most in use at a time; 0 if the
	// compiler gave up without saying.
	Limit  int64 `json:"limit"`
	Needed int64 `json:"needed"`
	// Peak is the compiler's own figure for the most in use at a time. It can be below
	// Needed, which has all arguments and temporaries. 0 for programs that keep
	// something on the host: that figure is their arguments and what is on the host.
	Peak int64 `json:"peak,omitempty"`
	// Arguments are parameters, optimizer state and batch; of the Outputs the part
	// Aliased takes over the memory of arguments. Temporaries include what is kept for
	// the backward pass and gathered parameters. Code is the program.
	Arguments   int64 `json:"arguments"`
	Outputs     int64 `json:"outputs"`
	Aliased     int64 `json:"aliased"`
	Temporaries int64 `json:"temporaries"`
	Code        int64 `json:"code"`
	// Host is what a device keeps in its host's memory, HostLimit what it can.
	Host      int64 `json:"host,omitempty"`
	HostLimit int64 `json:"host_limit,omitempty"`
	// Largest are the largest arrays of a device: arguments, and values that the
	// program computes. Not all of these are alive at the same time.
	Largest []Buffer `json:"largest"`
	// Why says what does not fit, Advice what would by estimate.
	Why    string   `json:"why,omitempty"`
	Advice []string `json:"advice,omitempty"`
}

// Over is by how much the step does not fit, 0 if it does or that is unknown.
func (m *Memory) Over() int64 {
	if m.Fits || m.Needed <= m.Limit {
		return 0
	}
	return m.Needed - m.Limit
}

// hostShare is what of a host's memory training can have beside the system, the
// program itself, batches and the copy that an asynchronous checkpoint makes; a guess.
const hostShare = 0.9

// hostLimit is what each device can have of its host's memory.
func (m machine) hostLimit() int64 {
	return int64(hostShare * float64(m.chip.HostBytes) / float64(max(1, m.chip.Devices)))
}

// quickMisses is by how much temporaries were larger at the compiler's default
// effort than at the lowest, at most: 18% in one program, 10% in another.
const quickMisses = 0.2

// quickExceeds is by how much temporaries were smaller at the default effort, at
// most: 7% (docs/results/memory.md), with something added for what was not tried.
const quickExceeds = 0.1

// mark marks what fits, or does not, only just, of a program compiled with little
// effort.
func (m *Memory) mark() {
	temporaries := float64(m.Temporaries)
	if m.Fits {
		m.Tight = m.Needed+int64(quickMisses*temporaries) > m.Limit
		return
	}
	m.Tight = m.Needed > m.Limit && m.Needed-int64(quickExceeds*temporaries) <= m.Limit
}

// verdict says whether a step fits, with its mark.
func verdict(fits, tight bool) string {
	s := "does not fit"
	if fits {
		s = "fits"
	}
	if tight {
		s += ", only just"
	}
	return s
}

// Buffer is an array on one device.
type Buffer struct {
	Name  string `json:"name"`
	Shape string `json:"shape"`
	Bytes int64  `json:"bytes"`
	// Line wrote it; "" for arguments.
	Line string `json:"line,omitempty"`
	// Count is how many there are of the same name and size.
	Count int `json:"count"`
}

// largest is how many arrays of each sort are listed.
const largest = 5

// inputs lists the arguments of the step on a device, largest first.
func (s *traced) inputs() []Buffer {
	var out []Buffer
	for _, p := range s.step.Module.Inputs() {
		t := p.Type
		if p.Spec != nil {
			if shape, err := p.Spec.Shard(s.mesh, t.Shape); err == nil {
				t = graph.T(t.DType, shape...)
			}
		}
		out = append(out, Buffer{Name: p.Name, Shape: t.String(), Bytes: int64(t.Bytes()), Count: 1})
	}
	slices.SortStableFunc(out, func(a, b Buffer) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out
}

// compiled fills in the compiler's account of a program.
func (m *Memory) compiled(s pjrt.MemoryStats, t *traced, program *hlo.Module) {
	m.Arguments, m.Outputs, m.Aliased, m.Temporaries, m.Code = s.Args, s.Outputs, s.Alias, s.Temp, s.Code
	m.Host = s.HostArgs + s.HostOutputs - s.HostAlias + s.HostTemp
	if m.Needed = s.Needed(); m.Host == 0 {
		m.Peak = s.Peak
	}
	if m.Fits = m.Needed <= m.Limit; !m.Fits {
		m.Why = "arguments and temporaries"
	}
	if m.Fits && m.HostLimit > 0 && m.Host > m.HostLimit {
		m.Why, m.Fits = fmt.Sprintf("what activation_checkpoint.offload names takes %s of the host's memory for each device, of which %s can be had", human.Memory(m.Host), human.Memory(m.HostLimit)), false
	}
	inputs := t.inputs()
	m.Largest = slices.Concat(inputs[:min(largest, len(inputs))], largestValues(program))
}

// largestValues lists the largest arrays in main memory that a program computes.
func largestValues(m *hlo.Module) []Buffer {
	seen := map[*hlo.Instruction]bool{}
	var out []Buffer
	var counts []int
	m.Walk(func(i *hlo.Instruction, _ int64) {
		switch i.Opcode {
		// These pass on, or write into, what others have made.
		case "parameter", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "dynamic-update-slice", "opt-barrier":
			return
		}
		if seen[i] || strings.HasSuffix(i.Opcode, "-done") || strings.HasSuffix(i.Opcode, "-update") || updates(i) {
			return
		}
		seen[i] = true
		shape := i.Shape
		if len(shape.Elements) > 0 {
			big := slices.MaxFunc(shape.Elements, func(a, b hlo.Shape) int { return cmp.Compare(mainMemory(a), mainMemory(b)) })
			shape = big
		}
		b := Buffer{Name: operation(i), Shape: shape.Short(), Bytes: int64(mainMemory(shape)), Line: line(i)}
		if b.Bytes == 0 {
			return
		}
		if k := slices.Index(out, b); k >= 0 {
			counts[k]++
			return
		}
		out, counts = append(out, b), append(counts, 1)
	})
	for k := range out {
		out[k].Count = counts[k]
	}
	slices.SortStableFunc(out, func(a, b Buffer) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out[:min(largest, len(out))]
}

// updates reports whether a fusion writes into one of its operands.
func updates(i *hlo.Instruction) bool {
	if i.Opcode != "fusion" || len(i.Called) != 1 || i.Called[0].Root == nil {
		return false
	}
	root := i.Called[0].Root
	for root.Opcode == "bitcast" && len(root.Operands) == 1 {
		root = root.Operands[0]
	}
	return root.Opcode == "dynamic-update-slice"
}

// operation names what computes a value: the Go function and the operation.
func operation(i *hlo.Instruction) string {
	name := i.Metadata.OpName
	if k := strings.LastIndex(name, "call.1/"); k >= 0 {
		name = name[k+len("call.1/"):]
	}
	return cmp.Or(name, i.Name)
}

func line(i *hlo.Instruction) string {
	if i.Metadata.SourceFile == "" {
		return ""
	}
	dir, base := path.Split(i.Metadata.SourceFile)
	return fmt.Sprintf("%s:%d", path.Join(path.Base(path.Clean(dir)), base), i.Metadata.SourceLine)
}

func (m *Memory) reject(needed int64, why string) { m.Needed, m.Why = needed, why }

// overflow fills in what the compiler says of a program that it found no room for.
func (m *Memory) overflow(e *pjrt.OutOfMemory) {
	m.Why = "arguments and temporaries"
	if e.Memory != "" && e.Memory != "hbm" {
		m.Why = "the " + e.Memory + " of a device, which one operation overflows"
		return
	}
	// What the message calls temporaries has the arguments, too: it is compared with
	// all that programs can use.
	m.Needed = e.Needed
	m.Temporaries = max(0, e.Needed-m.Arguments)
}

// misses fills in that no policy fits into a memory budget.
func (m *Memory) misses(e *train.BudgetError) {
	m.Limit, m.Needed = e.Budget, e.Best.Estimate
	if n := e.Best.Compiled; n > 0 && n < math.MaxInt64 {
		m.Needed = n
	}
	m.Temporaries = max(0, m.Needed-m.Arguments)
	m.Why = fmt.Sprintf("with the least that can be kept (%v) arguments and temporaries", e.Best.Policy)
	m.Advice = e.Advice
}
