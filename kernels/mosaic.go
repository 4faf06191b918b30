package kernels

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"titan/dtype"
	"titan/graph"
)

// mosaicVersion is the version of Mosaic's stable dialect that is printed. Its
// ops and attributes are those that JAX 0.10.2 writes for it; later compilers
// read it as well.
const mosaicVersion = 11

// mosaic prints k as MLIR text.
func (k *Kernel) mosaic() string {
	p := &mosaicPrinter{k: k}
	p.line("module attributes {stable_mosaic.version = %d : i64} {", mosaicVersion)
	var args, types []string
	arg := func(v *Value, r *Ref, t string) {
		name := fmt.Sprintf("%%arg%d", len(args))
		if v != nil {
			p.ids = append(p.ids, name)
		} else {
			p.mems = append(p.mems, memory{r, name})
		}
		args, types = append(args, name+": "+t), append(types, t)
	}
	for _, id := range k.ids {
		arg(id, nil, "i32")
	}
	for _, r := range k.refs[prefetched] {
		arg(nil, r, memref(r.typ.DType, r.typ.Shape, "smem"))
	}
	mapArgs, mapTypes := strings.Join(args, ", "), strings.Join(types, ", ")
	var windows []string
	for _, r := range k.windows() {
		arg(nil, r, memref(r.typ.DType, r.block, "vmem"))
		windows = append(windows, fmt.Sprintf("{transform_indices = @map%d, window_bounds = array<i64: %s>}", len(windows), ints(r.block)))
	}
	for _, r := range k.refs[scratch] {
		arg(nil, r, memref(r.typ.DType, r.block, "vmem"))
	}
	var semantics, bounds []string
	for _, d := range k.grid {
		s, n := "arbitrary", strconv.Itoa(d.n)
		if d.order == Parallel {
			s = "parallel"
		}
		if d.dynamic {
			n = "-9223372036854775808"
		}
		semantics, bounds = append(semantics, "#tpu.dimension_semantics<"+s+">"), append(bounds, n)
	}
	p.line(`"stable_mosaic.func.func"() ({`)
	p.line("^bb0(%s):", strings.Join(args, ", "))
	live := k.live()
	p.live = live
	p.names, p.scalars = map[*Value]string{}, map[string]string{}
	p.block(k.main)
	p.line(`"stable_mosaic.func.return"() : () -> ()`)
	p.line("}) {dimension_semantics = [%s], function_type = (%s) -> (), iteration_bounds = array<i64: %s>, scalar_prefetch = %d : i64, scratch_operands = %d : i64, sym_name = %q, tpu.core_type = #tpu.core_type<tc>, window_params = [%s]} : () -> ()",
		strings.Join(semantics, ", "), strings.Join(types, ", "), strings.Join(bounds, ", "), len(k.refs[prefetched]), len(k.refs[scratch]), k.name, strings.Join(windows, ", "))
	for i, r := range k.windows() {
		p.line(`"stable_mosaic.func.func"() ({`)
		p.line("^bb0(%s):", mapArgs)
		p.names, p.scalars, p.next = map[*Value]string{}, map[string]string{}, 0
		var out, ts []string
		for _, ix := range r.index {
			out, ts = append(out, p.scalar(ix)), append(ts, "i32")
		}
		p.line(`"stable_mosaic.func.return"(%s) : (%s) -> ()`, strings.Join(out, ", "), strings.Join(ts, ", "))
		p.line(`}) {function_type = (%s) -> (%s), sym_name = "map%d"} : () -> ()`, mapTypes, strings.Join(ts, ", "), i)
	}
	p.line("}")
	if e := k.expected(); e != nil {
		if line, err := json.Marshal(e); err == nil { // plain numbers and strings
			p.line("%s%s", expectedLine, line)
		}
	}
	return p.sb.String()
}

// windows are the arrays that are seen in blocks, in the order of operands.
func (k *Kernel) windows() []*Ref {
	return slices.Concat(k.refs[input], k.refs[output])
}

// live returns the ops that something stored, or a condition, depends on.
func (k *Kernel) live() map[*Value]bool {
	live := map[*Value]bool{}
	var mark func(v *Value)
	mark = func(v *Value) {
		if live[v] {
			return
		}
		live[v] = true
		for _, a := range v.args {
			mark(a)
		}
	}
	var walk func(b *block)
	walk = func(b *block) {
		for _, v := range b.ops {
			if v.op == opStore || v.op == opIf {
				mark(v)
			}
			if v.op == opIf {
				walk(v.body)
			}
		}
	}
	walk(k.main)
	return live
}

type memory struct {
	ref  *Ref
	name string
}

type mosaicPrinter struct {
	k     *Kernel
	sb    strings.Builder
	ids   []string // of the grid
	mems  []memory
	names map[*Value]string
	next  int
	live  map[*Value]bool
	// scalars are the names of scalar constants and indices that can be seen, by what
	// they are; each is printed once.
	scalars map[string]string
}

func (p *mosaicPrinter) line(format string, args ...any) {
	fmt.Fprintf(&p.sb, format+"\n", args...)
}

func (p *mosaicPrinter) mem(r *Ref) string {
	i := slices.IndexFunc(p.mems, func(m memory) bool { return m.ref == r })
	return p.mems[i].name
}

// op prints an op with one result and returns the result's name.
func (p *mosaicPrinter) op(name, operands, attrs, signature string) string {
	p.next++
	v := fmt.Sprintf("%%%d", p.next)
	if attrs != "" {
		attrs = " {" + attrs + "}"
	}
	p.line(`%s = "stable_mosaic.%s"(%s)%s : %s`, v, name, operands, attrs, signature)
	return v
}

// once is op for a scalar that depends on nothing but its operands.
func (p *mosaicPrinter) once(name, operands, attrs, signature string) string {
	key := name + operands + attrs + signature
	if p.scalars[key] == "" {
		p.scalars[key] = p.op(name, operands, attrs, signature)
	}
	return p.scalars[key]
}

// scalar prints what v is computed from, where it has not been yet.
func (p *mosaicPrinter) scalar(v *Value) string {
	if n, ok := p.names[v]; ok {
		return n
	}
	for _, a := range v.args {
		p.scalar(a)
	}
	p.value(v)
	return p.names[v]
}

func (p *mosaicPrinter) block(b *block) {
	for _, v := range b.ops {
		if !p.live[v] {
			continue
		}
		switch v.op {
		case opStore:
			p.store(v, v.args[0])
		case opIf:
			p.line(`"stable_mosaic.scf.if"(%s) ({`, p.names[v.args[0]])
			outside := p.scalars // the others end with the region
			p.scalars = maps.Clone(outside)
			p.block(v.body)
			p.scalars = outside
			p.line(`"stable_mosaic.scf.yield"() : () -> ()`)
			p.line(`}, {`)
			p.line(`"stable_mosaic.scf.yield"() : () -> ()`)
			p.line(`}) : (i1) -> ()`)
		default:
			p.value(v)
		}
	}
}

// start prints where in its block the tile that v loads or stores begins.
func (p *mosaicPrinter) start(v *Value) (names, types []string) {
	n := len(v.ref.block)
	for d := range n {
		at := 0
		if d == n-2 {
			at = int(v.num)
		}
		name := ""
		if d == n-3 && v.ref.sheets() > 1 {
			name = p.once("arith.index_cast", p.names[v.args[len(v.args)-1]], "", "(i32) -> index")
		} else {
			name = p.once("arith.constant", "", fmt.Sprintf("value = %d : index", at), "() -> index")
		}
		names, types = append(names, name), append(types, "index")
	}
	return names, types
}

// part is the shape of n rows of a tile, with as many dimensions as the block.
func (r *Ref) part(n int) []int {
	shape := make([]int, len(r.block))
	for i := range shape {
		shape[i] = 1
	}
	copy(shape[len(shape)-2:], []int{n, r.block[len(shape)-1]})
	return shape
}

func (p *mosaicPrinter) load(v *Value) string {
	r := v.ref
	at, ix := p.start(v)
	shape := r.part(v.typ.Shape[0])
	part := vector(r.typ.DType, shape)
	name := p.op("vector.load", p.mem(r)+", "+strings.Join(at, ", "), "", fmt.Sprintf("(%s, %s) -> %s", memref(r.typ.DType, r.block, "vmem"), strings.Join(ix, ", "), part))
	if len(shape) > 2 {
		name = p.op("vector.shape_cast", name, "", fmt.Sprintf("(%s) -> %s", part, mlirType(v.typ)))
	}
	return name
}

func (p *mosaicPrinter) store(op, x *Value) {
	r, v := op.ref, p.names[x]
	shape := r.part(x.typ.Shape[0])
	whole := vector(r.typ.DType, shape)
	if len(r.block) > 2 {
		v = p.op("vector.shape_cast", v, "", fmt.Sprintf("(%s) -> %s", mlirType(x.typ), whole))
	}
	at, ix := p.start(op)
	p.line(`"stable_mosaic.tpu.vector_store"(%s, %s, %s) {add = false, operandSegmentSizes = array<i32: 1, 1, %d, 0>, strides = array<i32>} : (%s, %s, %s) -> ()`,
		v, p.mem(r), strings.Join(at, ", "), len(at), whole, memref(r.typ.DType, r.block, "vmem"), strings.Join(ix, ", "))
}

func memref(d dtype.DType, shape []int, space string) string {
	return fmt.Sprintf("memref<%s%s, #tpu.memory_space<%s>>", dims(shape), element(d), space)
}

func vector(d dtype.DType, shape []int) string {
	return fmt.Sprintf("vector<%s%s>", dims(shape), element(d))
}

func mlirType(t graph.Type) string {
	if len(t.Shape) == 0 {
		return element(t.DType)
	}
	return vector(t.DType, t.Shape)
}

func element(d dtype.DType) string {
	switch d {
	case dtype.S32:
		return "i32"
	case dtype.Bool:
		return "i1"
	}
	return d.String()
}

func dims(shape []int) string {
	var sb strings.Builder
	for _, n := range shape {
		fmt.Fprintf(&sb, "%dx", n)
	}
	return sb.String()
}

func ints(xs []int) string {
	s := make([]string, len(xs))
	for i, x := range xs {
		s[i] = strconv.Itoa(x)
	}
	return strings.Join(s, ", ")
}
