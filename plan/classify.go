package plan

import (
	"path"
	"strings"

	"titan/pjrt/hlo"
)

// Part is a share of the time of a step.
type Part int

// The parts of a step.
const (
	Matmul        Part = iota // contractions that are not of attention or of experts
	Attention                 // scores, softmax and their products with values
	Experts                   // routing, dispatch and the experts' products
	Optimizer                 // the update
	Other                     // norms, activations, embedding, loss besides its contractions
	Communication             // waiting for other devices
	Transfers                 // waiting for memory, the host's included
	Bubble                    // of a pipeline
	numParts
)

var partNames = [numParts]string{"matmul", "attention", "experts", "optimizer", "other compute", "exposed communication", "waiting for memory", "pipeline bubble"}

func (p Part) String() string { return partNames[p] }

// partOf tells which part an instruction is of: by the source line that wrote it,
// for a kernel by its name.
func partOf(i *hlo.Instruction) Part {
	if i.CustomCallTarget == hlo.TileKernel {
		return kernelPart(i.KernelName())
	}
	dot := contraction(i, 0)
	if dot == nil {
		dot = i
	}
	if p, ok := sourcePart(dot.Metadata.SourceFile); ok {
		return p
	}
	if p, ok := sourcePart(i.Metadata.SourceFile); ok {
		return p
	}
	if dot != i || isContraction(i) {
		return Matmul
	}
	return Other
}

func kernelPart(name string) Part {
	for _, s := range []string{"attention", "flash", "splash", "mha"} {
		if strings.Contains(name, s) {
			return Attention
		}
	}
	for _, s := range []string{"grouped", "gmm", "expert", "ragged"} {
		if strings.Contains(name, s) {
			return Experts
		}
	}
	return Other
}

// sourcePart goes by the files of models/decoder and optim.
func sourcePart(file string) (Part, bool) {
	base := path.Base(file)
	switch {
	case strings.Contains(file, "optim/"):
		return Optimizer, true
	case !strings.Contains(file, "models/"):
		return 0, false
	case strings.HasPrefix(base, "attention"), strings.HasPrefix(base, "context"):
		return Attention, true
	case strings.HasPrefix(base, "moe"):
		return Experts, true
	}
	return 0, false
}

func isContraction(i *hlo.Instruction) bool { return i.Opcode == "dot" || i.Opcode == "convolution" }

// contraction returns the largest contraction in a fusion, nil if it has none.
func contraction(i *hlo.Instruction, depth int) *hlo.Instruction {
	if i.Opcode != "fusion" || depth > maxDepth {
		return nil
	}
	var best *hlo.Instruction
	for _, c := range i.Called {
		for _, in := range c.Instructions {
			k := in
			if !isContraction(in) {
				k = contraction(in, depth+1)
			}
			if k != nil && (best == nil || k.Flops() > best.Flops()) {
				best = k
			}
		}
	}
	return best
}

// maxDepth is far more than compilers nest fusions.
const maxDepth = 16

// flops is the arithmetic of the contractions of an instruction.
func flops(i *hlo.Instruction, depth int) float64 {
	if i.Opcode != "fusion" || depth > maxDepth {
		return i.Flops()
	}
	n := 0.0
	for _, c := range i.Called {
		for _, in := range c.Instructions {
			n += flops(in, depth+1)
		}
	}
	return n
}
