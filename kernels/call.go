package kernels

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"titan/dtype"
	"titan/graph"
)

// Call records a call of the kernel. Operands are the dynamic grid bounds (s32
// scalars), the prefetched vectors and the inputs, each in the order of their
// definition; the results are the outputs. The kernel works on one device's
// arrays: where the mesh has several devices it must be called in a manual region
// (ShardMap). It has no derivative; see graph.CustomVJP.
//
// A mistake in the definition, and a kernel that target cannot run, end the trace
// with an error.
func (k *Kernel) Call(target Target, operands ...*graph.Value) []*graph.Value {
	b := operands[0].Builder()
	if k.err != nil {
		b.Fail("%v", k.err)
	}
	k.checkOperands(b, operands)
	b.RequireManual("kernel", k.name, operands...)
	if target.Chip != nil {
		if err := k.check(*target.Chip); err != nil {
			b.Fail("%v", err)
		}
		return b.CustomCall(k.spec(target), operands...)
	}
	bounds := len(operands) - len(k.refs[prefetched]) - len(k.refs[input])
	prefetch := bounds + len(k.refs[prefetched])
	return k.interpret(b, operands[:bounds], operands[bounds:prefetch], operands[prefetch:], target.Strict)
}

func (k *Kernel) checkOperands(b *graph.Builder, operands []*graph.Value) {
	var names []string
	var want []graph.Type
	for i, d := range k.grid {
		if d.dynamic {
			names, want = append(names, fmt.Sprintf("bound of grid dimension %d", i)), append(want, graph.T(dtype.S32))
		}
	}
	for _, r := range append(append([]*Ref(nil), k.refs[prefetched]...), k.refs[input]...) {
		names, want = append(names, r.name), append(want, r.typ)
	}
	if len(operands) != len(want) {
		b.Fail("kernel %q takes %d operands (%s), got %d", k.name, len(want), strings.Join(names, ", "), len(operands))
	}
	for i, o := range operands {
		if !o.Type().Equal(want[i]) {
			b.Fail("kernel %q: operand %d, %s, has type %v, not %v", k.name, i, names[i], o.Type(), want[i])
		}
	}
	if len(k.refs[output]) == 0 {
		b.Fail("kernel %q has no outputs", k.name)
	}
}

// spec is the custom call for a chip.
func (k *Kernel) spec(target Target) graph.CustomCallSpec {
	cost := k.Cost()
	scoped := min(VMEMLimit(*target.Chip), k.VMEM()+k.temporaries())
	config, err := json.Marshal(map[string]any{
		"custom_call_config": map[string]any{
			"body":                 base64.StdEncoding.EncodeToString([]byte(k.mosaic())),
			"serialization_format": 1,
			"needs_layout_passes":  true,
			"cost_estimate": map[string]int64{
				"flops": int64(cost.Flops), "transcendentals": int64(cost.Transcendentals), "bytes_accessed": int64(cost.Bytes),
			},
		},
		"scoped_memory_configs": []map[string]int64{{"memory_space": 1, "offset": 0, "size": scoped}},
	})
	if err != nil { // maps of strings and numbers only
		config = nil
	}
	var in, out []string
	for _, d := range k.grid {
		if d.dynamic {
			in = append(in, RowMajor(0))
		}
	}
	for _, r := range k.refs[prefetched] {
		in = append(in, RowMajor(len(r.typ.Shape)))
	}
	for _, r := range k.refs[input] {
		in = append(in, RowMajor(len(r.typ.Shape)))
	}
	var results []graph.Type
	for _, r := range k.refs[output] {
		out, results = append(out, RowMajor(len(r.typ.Shape))), append(results, r.typ)
	}
	return graph.CustomCallSpec{
		Target: "tpu_custom_call", Results: results, Config: string(config), APIVersion: 1, OnDevice: true,
		Attributes: map[string]string{
			"kernel_name":     fmt.Sprintf("%q", k.name),
			"operand_layouts": "[" + strings.Join(in, ", ") + "]",
			"result_layouts":  "[" + strings.Join(out, ", ") + "]",
		},
		Flops: cost.Flops, Bytes: cost.Bytes,
	}
}

// RowMajor is the row-major layout of an array, as custom calls state it.
func RowMajor(rank int) string {
	if rank == 0 {
		return "dense<> : tensor<0xindex>"
	}
	order := make([]int, rank)
	for i := range order {
		order[i] = rank - 1 - i
	}
	return fmt.Sprintf("dense<[%s]> : tensor<%dxindex>", ints(order), rank)
}
