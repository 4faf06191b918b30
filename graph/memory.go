package graph

// Memory kinds, as the platforms name them.
const (
	hostMemory   = "pinned_host"
	deviceMemory = "device"
)

func init() {
	define(opToMemory, opDef{
		name:   "to_memory",
		infer:  sameType,
		wideCT: true, form: true,
		vjp: func(a *adjoint, op *Op, cts []*Value) {
			// The cotangent comes from where the result is and is used where the
			// operand is: on the device in both directions of an offload.
			a.add(op.operands[0], cts[0])
		},
		print: func(p *printer, op *Op) {
			p.assign(op)
			p.write("stablehlo.custom_call @annotate_device_placement(")
			p.operands(op.operands)
			p.write(`) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "` + op.attr.(string) + `"}} : `)
			p.signature(op)
		},
	})
}

func toMemory(x *Value, kind string) *Value { return x.b().emit1(opToMemory, kind, x) }

// ToHost moves x to pinned host memory, on platforms that have it.
func ToHost(x *Value) *Value { return toMemory(x, hostMemory) }

// ToDevice moves x back from host memory.
func ToDevice(x *Value) *Value { return toMemory(x, deviceMemory) }
