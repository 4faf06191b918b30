package graph

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// Error is a mistake found while tracing, differentiating or verifying. It
// names the line of Go that wrote the op, the op, and the operand types.
type Error struct {
	Op       string   // op that was being recorded, such as "einsum"
	Pos      string   // file:line of the call, outside this package
	Operands []string // types (and shardings) of the operands
	Msg      string
	Stack    string // Go stack, only when tracing code panicked
}

// Error formats the mistake on one line: "model.go:42: add(f32[2], s32[2]): …".
func (e *Error) Error() string {
	var sb strings.Builder
	if e.Pos != "" {
		sb.WriteString(e.Pos + ": ")
	}
	sb.WriteString(e.Op)
	if len(e.Operands) > 0 {
		sb.WriteString("(" + strings.Join(e.Operands, ", ") + ")")
	}
	if e.Op != "" {
		sb.WriteString(": ")
	}
	sb.WriteString(e.Msg)
	return sb.String()
}

// abort carries an *Error from the point of the mistake to Trace.
type abort struct{ err *Error }

// position is where an op was written: the call stack, resolved only on demand
// because an op is recorded in about a microsecond and almost never printed.
type position [14]uintptr

// here records the calling stack; skip counts frames above here's caller.
func here(skip int) (p position) {
	runtime.Callers(2+skip, p[:])
	return p
}

const packagePrefix = "titan/graph."

// frame returns the innermost frame outside this package (its tests count as
// outside). ok is false when nothing is known.
func (p *position) frame() (f runtime.Frame, ok bool) {
	n := 0
	for n < len(p) && p[n] != 0 {
		n++
	}
	if n == 0 {
		return f, false
	}
	frames := runtime.CallersFrames(p[:n])
	for {
		f, more := frames.Next()
		internal := strings.HasPrefix(f.Function, packagePrefix) && !strings.HasSuffix(f.File, "_test.go")
		if !internal && !strings.HasPrefix(f.Function, "runtime.") {
			return f, true
		}
		if !more {
			return f, f.File != ""
		}
	}
}

// String gives "file.go:line" with the file's own folder, or "".
func (p *position) String() string {
	f, ok := p.frame()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(f.File)), filepath.Base(f.File), f.Line)
}

// fail stops the trace. Trace returns the error.
func (b *Builder) fail(op, format string, args ...any) {
	b.failAt(b.position(1), op, nil, format, args...)
}

func (b *Builder) failAt(pos position, op string, operands []*Value, format string, args ...any) {
	panic(abort{&Error{Op: op, Pos: pos.String(), Operands: describeAll(operands), Msg: fmt.Sprintf(format, args...)}})
}

// Fail stops the trace with an error of the caller, for model code that finds
// a mistake of its own: b.Fail("heads %d do not divide over tp=%d", h, tp).
func (b *Builder) Fail(format string, args ...any) { b.fail("", format, args...) }

func describeAll(vs []*Value) []string {
	var out []string
	for _, v := range vs {
		out = append(out, describe(v))
	}
	return out
}

// describe gives a value's type, and its sharding where one was given.
func describe(v *Value) string {
	if v == nil {
		return "nil"
	}
	s := v.typ.String()
	if v.spec != nil {
		s += " " + v.spec.String()
	}
	if v.vary != 0 {
		s += " varying over {" + strings.Join(v.block.module.axisNames(v.vary), ",") + "}"
	}
	return s
}
