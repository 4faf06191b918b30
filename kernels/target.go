package kernels

import (
	"fmt"
	"strings"

	"titan/dtype"
	"titan/graph"
	"titan/internal/human"
	"titan/mesh"
)

// Target says how a kernel is run. The zero Target interprets it.
type Target struct {
	// Chip is the TPU that the kernel is printed for; nil interprets it with
	// ordinary ops, on any platform.
	Chip *mesh.Chip
	// Strict makes the interpreter poison what is undefined on a TPU: scratch at
	// first, and output blocks when they are come to. For tests.
	Strict bool
}

// For returns the target of a chip by its name in topologies or by the device
// kind that a runtime reports.
func For(kind string) (Target, error) {
	c, err := mesh.ChipOf(kind)
	if err != nil {
		return Target{}, fmt.Errorf("kernels: %w", err)
	}
	return Target{Chip: &c}, nil
}

const (
	lanes = 128
	// vmemShare is how much of the vector memory a kernel may claim; the rest is
	// left to what the compiler keeps there around it.
	vmemShare = 0.9
	// smemBytes is the scalar memory of a core of every generation known here, from
	// v4 on (JAX 0.10.2, pallas/mosaic/tpu_info).
	smemBytes = 1 << 20
	buffers   = 2 // of a block: one is computed on while the next is copied
)

// sublanes is the number of rows of a native tile: 8 of 32 bits, packed.
func sublanes(d dtype.DType) int { return 8 * 4 / d.Size() }

// footprint is the vector memory of a tile, padded to whole native tiles.
func footprint(t graph.Type) int64 {
	up := func(n, m int) int64 { return int64((n + m - 1) / m * m) }
	return up(t.Shape[0], sublanes(t.DType)) * up(t.Shape[1], lanes) * int64(t.DType.Size())
}

// VMEM returns the vector memory that the kernel's blocks, in two copies each,
// and its scratch take, in bytes.
func (k *Kernel) VMEM() int64 {
	var sum int64
	for _, r := range k.windows() {
		sum += buffers * int64(r.sheets()) * footprint(r.tile())
	}
	for _, r := range k.refs[scratch] {
		sum += footprint(r.typ)
	}
	return sum
}

// VMEMLimit is what a kernel may claim of a chip's vector memory, in bytes.
func VMEMLimit(c mesh.Chip) int64 { return int64(vmemShare * float64(c.VMEMBytes)) }

// temporaries is the memory of all tiles that the body computes, more than are
// alive at once, and of registers that are spilled.
func (k *Kernel) temporaries() int64 {
	sum := int64(4 << 20)
	for v := range k.live() {
		if len(v.typ.Shape) == 2 && v.op != opLoad {
			t := v.typ
			if t.DType == dtype.Bool {
				t.DType = dtype.S32
			}
			sum += footprint(t)
		}
	}
	return sum
}

// check refuses what the chip could not run, with the numbers.
func (k *Kernel) check(c mesh.Chip) error {
	for _, r := range k.windows() {
		if msg := r.misaligned(); msg != "" {
			return fmt.Errorf("kernel %q: %v %q %v: %s", k.name, r.role, r.name, r.typ, msg)
		}
	}
	for v := range k.live() {
		if v.op != opLoad && v.op != opStore {
			continue
		}
		if m := sublanes(v.ref.typ.DType); int(v.num)%m != 0 {
			return fmt.Errorf("kernel %q: rows of %q from row %d on, which must be a multiple of %d (the tile of %v is %d×%d)", k.name, v.ref.name, int(v.num), m, v.ref.typ.DType, m, lanes)
		}
	}
	if need, limit := k.VMEM(), VMEMLimit(c); need > limit {
		return fmt.Errorf("kernel %q needs %s of vector memory, %s gives a kernel %s of its %s: %s; take smaller tiles", k.name, human.Memory(need), c.Kind, human.Memory(limit), human.Memory(c.VMEMBytes), k.largest())
	}
	var scalars int64
	for _, r := range k.refs[prefetched] {
		scalars += 4 * int64((r.typ.Shape[0]+lanes-1)/lanes*lanes)
	}
	if scalars > smemBytes/2 {
		return fmt.Errorf("kernel %q prefetches %d bytes into scalar memory, of which %s has %d, half for kernels' operands", k.name, scalars, c.Kind, smemBytes)
	}
	return nil
}

// misaligned says what keeps r's blocks from lying on the memory's native tiles.
func (r *Ref) misaligned() string {
	n := len(r.block)
	for i, m := range []int{sublanes(r.typ.DType), lanes} {
		d := n - 2 + i
		if b := r.block[d]; b%m != 0 && b != r.typ.Shape[d] {
			return fmt.Sprintf("a block of %s has %d in dimension %d, which must be a multiple of %d (the tile of %v is %d×%d) or all %d", sizes(r.block), b, d, m, r.typ.DType, sublanes(r.typ.DType), lanes, r.typ.Shape[d])
		}
	}
	return ""
}

// largest lists the parts of VMEM.
func (k *Kernel) largest() string {
	var parts []string
	for _, r := range k.windows() {
		parts = append(parts, fmt.Sprintf("%q 2×%s", r.name, human.Memory(int64(r.sheets())*footprint(r.tile()))))
	}
	for _, r := range k.refs[scratch] {
		parts = append(parts, fmt.Sprintf("%q %s", r.name, human.Memory(footprint(r.typ))))
	}
	return strings.Join(parts, ", ")
}

func sizes(shape []int) string { return strings.ReplaceAll(ints(shape), ", ", "×") }
