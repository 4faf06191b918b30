package graph

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"unicode"

	"titan/internal/nearest"
)

// Error is a mistake found while tracing, differentiating or verifying. It
// names the line of Go that wrote the op, the op, and the operand types.
type Error struct {
	Op       string   // op that was being recorded, such as "einsum"
	Pos      string   // file:line of the call, outside this package
	Operands []string // types (and shardings) of the operands
	Msg      string
	Stack    string // Go stack, only when tracing code panicked
	cause    error
}

// Unwrap returns what tracing code panicked with, if that was an error.
func (e *Error) Unwrap() error { return e.cause }

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

// abort carries an *Error from the point of the mistake to Trace. It is an
// error itself for the one place where no Trace is there to catch it: a mistake
// in an op recorded after Trace has returned.
type abort struct{ err *Error }

func (a abort) Error() string { return a.err.Error() }

func (a abort) Unwrap() error { return a.err }

// panicError turns what was recovered into an *Error. A panic of the traced
// code itself keeps its value, if that is an error, and its stack.
func panicError(name string, r any) error {
	if a, ok := r.(abort); ok {
		return a.err
	}
	var stack [200]uintptr
	at := stack[:runtime.Callers(4, stack[:])] // from the panic on
	e := &Error{Op: "trace", Pos: place(at), Stack: string(debug.Stack())}
	e.Msg = fmt.Sprintf("tracing %s panicked: %v", name, r)
	e.cause, _ = r.(error)
	if op := callee(at); op != "" { // inside this package, on behalf of the caller
		e.Op = op
		if err, ok := r.(runtime.Error); ok && strings.Contains(err.Error(), "nil pointer") {
			e.Msg += "; is an operand nil?"
		}
	}
	return e
}

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
	f, _, ok = outside(p.stack())
	return f, ok
}

func (p *position) stack() []uintptr {
	n := 0
	for n < len(p) && p[n] != 0 {
		n++
	}
	return p[:n]
}

// callee is the function of this package that the frame outside called, spelt
// as ops are: "all_reduce". It is "" where the outside frame is innermost.
func callee(stack []uintptr) string {
	_, inner, _ := outside(stack)
	name := inner[strings.LastIndexByte(inner, '.')+1:]
	var sb strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			sb.WriteByte('_')
		}
		sb.WriteRune(unicode.ToLower(r))
	}
	return sb.String()
}

// outside returns the innermost frame outside this package and the name of the
// function of this package that it called, "" if none.
func outside(stack []uintptr) (f runtime.Frame, inner string, ok bool) {
	if len(stack) == 0 {
		return f, "", false
	}
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		own := strings.HasPrefix(f.Function, packagePrefix) && !strings.HasSuffix(f.File, "_test.go")
		if !own && !strings.HasPrefix(f.Function, "runtime.") {
			return f, inner, true
		}
		if !more {
			return f, inner, f.File != ""
		}
		if own {
			inner = f.Function
		}
	}
}

// String gives "file.go:line" with the file's own folder, or "".
func (p *position) String() string { return place(p.stack()) }

// place spells the frame outside.
func place(stack []uintptr) string {
	f, _, ok := outside(stack)
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
	e := &Error{Op: op, Pos: pos.String(), Operands: describeAll(operands), Msg: fmt.Sprintf(format, args...)}
	if b.failed == nil {
		b.failed = e
	}
	panic(abort{e})
}

// mistake is fail for where there is no value to find the builder by.
func mistake(op, format string, args ...any) {
	pos := here(0)
	panic(abort{&Error{Op: op, Pos: pos.String(), Msg: fmt.Sprintf(format, args...)}})
}

// Fail stops the trace with an error of the caller, for model code that finds
// a mistake of its own: b.Fail("heads %d do not divide over tp=%d", h, tp).
func (b *Builder) Fail(format string, args ...any) { b.fail("", format, args...) }

// recordedLate notes that an op was recorded after Trace had returned.
func (b *Builder) recordedLate(op string, pos position) {
	if b.late == nil {
		b.late = &Error{Op: op, Pos: pos.String(), Msg: fmt.Sprintf("recorded after Trace(%q) had returned, so it is not part of the program", b.m.name)}
	}
}

// close ends the recording. Ops on values that the caller has kept go to a
// block of their own from now on, where they harm nothing: they return values
// as always, so nothing panics, but Verify reports the first of them, and using
// such a value in another Trace fails.
func (b *Builder) close() {
	b.done, b.at = true, nil
	blk := &Block{module: b.m}
	b.frames = b.frames[:1:1]
	b.push(&frame{block: blk, capture: func(outer *Value) *Value { return blk.addArg(outer.typ) }})
}

// unknownAxis is the message about a mesh axis that does not exist.
func (b *Builder) unknownAxis(name string) string {
	return fmt.Sprintf("unknown mesh axis %q%s; the mesh is %v", name, nearest.Hint(name, b.m.axes), b.m.mesh)
}

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
	if v.vary != 0 && v.block != nil {
		s += " varying over {" + strings.Join(v.block.module.axisNames(v.vary), ",") + "}"
	}
	return s
}
