package graph

import (
	"fmt"
	"slices"
	"strings"
)

// CustomCallSpec describes a call of code that the plugin provides.
type CustomCallSpec struct {
	Target  string // name the code is registered under
	Results []Type
	// Config is handed to the code unread (backend_config); ConfigDict is the
	// same as named attributes in MLIR syntax, for targets of API version 4.
	Config     string
	ConfigDict map[string]string
	APIVersion int // 2: status-returning with string config, 4: typed FFI; 0 means 2
	SideEffect bool
	// Attributes are further attributes in MLIR syntax, such as
	// kernel_name = "\"gmm\"".
	Attributes map[string]string
	// OnDevice refuses the call outside manual regions when the mesh has several
	// devices: there the compiler would gather the operands without a word.
	OnDevice bool
	// Flops and Bytes are what one call costs on one device.
	Flops, Bytes float64
}

func init() {
	define(opCustomCall, opDef{
		name:  "custom_call",
		infer: func(op *Op) ([]Type, error) { return op.attr.(CustomCallSpec).Results, nil },
		flops: func(op *Op) float64 { return op.attr.(CustomCallSpec).Flops },
		print: printCustomCall,
	})
}

// CustomCall calls code of the plugin. It has no derivative; wrap it in
// CustomVJP to give it one.
func (b *Builder) CustomCall(spec CustomCallSpec, operands ...*Value) []*Value {
	if spec.Target == "" || len(spec.Results) == 0 {
		b.fail("custom_call", "the target is empty or there are no results")
	}
	if spec.OnDevice {
		b.requireManual("custom_call", spec.Target, operands)
	}
	spec.Results = slices.Clone(spec.Results)
	return slices.Clone(b.emit(opCustomCall, spec, operands...).results)
}

// RequireManual stops the trace unless every mesh axis of several devices is
// manual here: for code, called name, that works on one device's part of the data
// and that the compiler could not divide.
func (b *Builder) RequireManual(op, name string, operands ...*Value) {
	b.requireManual(op, name, operands)
}

func (b *Builder) requireManual(op, name string, operands []*Value) {
	if b.m.mesh == nil {
		return
	}
	for _, a := range b.m.mesh.Axes() {
		if a.Size > 1 && b.top().manual>>b.axisIndex(a.Name)&1 == 0 {
			b.failAt(b.position(2), op, operands, "%q works on one device's part of the data, but axis %q is not manual here; put it inside a ShardMap", name, a.Name)
		}
	}
}

func printCustomCall(p *printer, op *Op) {
	at := op.attr.(CustomCallSpec)
	p.assign(op)
	p.write(`stablehlo.custom_call @"` + mlirEscape(at.Target) + `"(`)
	p.operands(op.operands)
	p.write(") {")
	version := at.APIVersion
	if version == 0 {
		version = 2
	}
	attrs := []string{fmt.Sprintf("api_version = %d : i32", version)}
	if at.SideEffect {
		attrs = append(attrs, "has_side_effect = true")
	}
	if at.ConfigDict != nil {
		attrs = append(attrs, "backend_config = {"+strings.Join(sortedAttrs(at.ConfigDict), ", ")+"}")
	} else if at.Config != "" {
		attrs = append(attrs, `backend_config = "`+mlirEscape(at.Config)+`"`)
	}
	attrs = append(attrs, sortedAttrs(at.Attributes)...)
	p.write(strings.Join(attrs, ", ") + "} : ")
	p.signature(op)
}

func sortedAttrs(m map[string]string) []string {
	var out []string
	for k, v := range m {
		out = append(out, k+" = "+v)
	}
	slices.Sort(out)
	return out
}

// mlirEscape makes s the inside of an MLIR string attribute.
func mlirEscape(s string) string {
	var sb strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 127 || c == '"' || c == '\\' {
			fmt.Fprintf(&sb, "\\%02X", c)
		} else {
			sb.WriteByte(c)
		}
	}
	return sb.String()
}
