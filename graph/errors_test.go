package graph_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/mesh"
	"titan/sharding"
)

// wrong is a program with a mistake on the line that ends in "// !".
type wrong struct {
	name string
	op   string   // Error.Op
	want []string // parts of the message
	f    func(b *Builder)
}

func x48(b *Builder) *Value { return b.Input("x", T(F32, 4, 8)) }

// twice is a helper of model code, so mistakes in it are on its own line.
func twice(x *Value) *Value {
	y := Add(x, x)
	return MatMul(y, y) // !twice
}

func x48b(b *Builder) *Value { return b.Zeros(T(F32, 4, 8)) }

var mark = regexp.MustCompile(`// !(\w*)$`)

// marks gives the place of the mark "// !" after the line that starts the
// program of that name, and of the mark that has the name itself.
func marks(t *testing.T) func(name string) string {
	files, err := filepath.Glob("errors*_test.go")
	require.NoError(t, err)
	at := map[string]string{}
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		open := ""
		for i, l := range strings.Split(string(src), "\n") {
			if name, ok := strings.CutPrefix(l, "\t{\""); ok {
				open, _, _ = strings.Cut(name, "\"")
			}
			found := mark.FindStringSubmatch(l)
			if found == nil {
				continue
			}
			name := found[1]
			if name == "" {
				name = open
			}
			require.NotContains(t, at, name)
			at[name] = fmt.Sprintf("graph/%s:%d", file, i+1)
		}
	}
	return func(name string) string {
		require.Contains(t, at, name)
		return at[name]
	}
}

func testMesh(t *testing.T) *mesh.Mesh {
	m, err := mesh.New([]mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 4}}, nil)
	require.NoError(t, err)
	return m
}

func TestWrongPrograms(t *testing.T) {
	place, m := marks(t), testMesh(t)
	for _, w := range slices.Concat(wrongOps, wrongRegions) {
		t.Run(w.name, func(t *testing.T) {
			mod, err := Trace("wrong", m, func(b *Builder) error {
				w.f(b)
				if w.name != "donated and not taken" {
					b.Output("filler", b.Scalar(F32, 0))
				}
				return nil
			})
			require.Nil(t, mod)
			requireError(t, err, w.op, place(w.name), w.want...)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Empty(t, e.Stack, "a mistake of the caller, not a panic")
		})
	}
}

func requireError(t *testing.T, err error, op, place string, want ...string) {
	t.Helper()
	require.Error(t, err)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, place, e.Pos, "%v", err)
	require.Equal(t, op, e.Op, "%v", err)
	for _, s := range want {
		require.ErrorContains(t, err, s)
	}
	require.ErrorContains(t, err, e.Pos)
}

func TestMistakeInHelper(t *testing.T) {
	_, err := Trace("helper", nil, func(b *Builder) error {
		b.Output("y", twice(x48(b)))
		return nil
	})
	requireError(t, err, "einsum", marks(t)("twice"), "einsum(f32[4,8], f32[4,8])")
}

func TestNoMesh(t *testing.T) {
	for _, f := range []func(b *Builder){
		func(b *Builder) { Constrain(x48(b), sharding.P("dp")) },
		func(b *Builder) { b.Input("x", T(F32, 8), Sharded(sharding.P("dp"))) },
		func(b *Builder) { b.ShardMap(nil, nil, nil, nil) },
	} {
		_, err := Trace("no mesh", nil, func(b *Builder) error { f(b); return nil })
		require.ErrorContains(t, err, "no mesh")
	}
}

func TestTraceItself(t *testing.T) {
	_, err := Trace("empty", nil, func(*Builder) error { return nil })
	require.ErrorContains(t, err, "empty has no outputs")
	require.ErrorContains(t, err, "graph/errors_test.go:")
	_, err = Trace("nothing", nil, nil)
	require.ErrorContains(t, err, "no function")
	_, err = Trace("failing", nil, func(*Builder) error { return io.ErrUnexpectedEOF })
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.EqualError(t, err, "tracing failing: unexpected EOF")
}

// TestPanics: what panics in traced code becomes an error with its line.
func TestPanics(t *testing.T) {
	place := marks(t)
	for _, c := range []struct {
		name, want string
		f          func(b *Builder)
	}{
		{"index", "index out of range [3] with length 2", func(b *Builder) {
			i := 3
			_ = x48(b).Shape()[i] // !index
		}},
		{"nil", "nil pointer", func(b *Builder) {
			var c *llama
			_ = c.dim // !nil
		}},
		{"map", "assignment to entry in nil map", func(b *Builder) {
			var m map[string]int
			//lint:ignore SA5000 the panic is what is tested
			m["a"] = 1 // !map
		}},
		{"thrown", "heads are odd", func(b *Builder) {
			b.Scan(nil, []*Value{x48(b)}, func(_, _ []*Value) (next, ys []*Value) {
				panic("heads are odd") // !thrown
			})
		}},
		{"error", "unexpected EOF", func(b *Builder) {
			panic(io.ErrUnexpectedEOF) // !error
		}},
		{"backward", "index out of range", func(b *Builder) {
			x := x48(b)
			y := CustomVJP([]*Value{x}, func(a []*Value) (outs, res []*Value) { return []*Value{Sum(a[0])}, nil },
				func(res, cts []*Value) []*Value {
					return []*Value{Mul(res[0], cts[0])} // !backward
				})
			Grad(y[0], x)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Trace("panics", nil, func(b *Builder) error { c.f(b); return nil })
			requireError(t, err, "trace", place(c.name), "tracing panics panicked", c.want)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Stack, "errors_test.go")
			if c.name == "error" {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
		})
	}
}

// TestRecoveredMistake: traced code that swallows our panic does not make a
// wrong program right.
func TestRecoveredMistake(t *testing.T) {
	_, err := Trace("swallowed", nil, func(b *Builder) error {
		x := x48(b)
		func() {
			defer func() { _ = recover() }()
			Add(x, b.Zeros(T(F64))) // !swallowed
		}()
		b.Output("x", x)
		return nil
	})
	requireError(t, err, "add", marks(t)("swallowed"), "element types differ")
}

// TestKeptValues: values outlive their Trace in the caller's variables.
func TestKeptValues(t *testing.T) {
	var x, y *Value
	var old *Builder
	m, err := Trace("first", nil, func(b *Builder) error {
		old = b
		x = b.Input("x", T(F32, 4))
		y = Exp(x)
		b.Output("y", y)
		return nil
	})
	require.NoError(t, err)
	text, dump := m.StableHLO(), m.String()

	// Used as they are.
	_, err = Trace("second", nil, func(b *Builder) error {
		b.Output("z", Add(b.Zeros(T(F32, 4)), y)) // !kept
		return nil
	})
	requireError(t, err, "add", marks(t)("kept"), `belongs to the program "first", not to "second"`, "Input and Output")

	// Recorded too late: harmless to the program, reported when it matters.
	late := Sin(Mul(y, x)) // !late
	gs := Grad(Sum(late), x)
	require.Equal(t, T(F32, 4), gs[0].Type())
	old.Output("late", late)
	require.NotNil(t, old.Input("late", T(F32)))
	next, _ := old.Scan([]*Value{x}, nil, func(c, _ []*Value) (next, ys []*Value) { return []*Value{Add(c[0], late)}, nil }, Iterations(2))
	require.Equal(t, text, m.StableHLO())
	require.Equal(t, dump, m.String())
	require.Len(t, m.Outputs(), 1)
	require.Len(t, m.Inputs(), 1)
	requireError(t, m.Verify(), "mul", marks(t)("late"), `recorded after Trace("first") had returned`)
	for _, v := range []*Value{late, gs[0], next[0]} {
		_, err = Trace("third", nil, func(b *Builder) error {
			b.Output("z", v) // !third
			return nil
		})
		requireError(t, err, "output", marks(t)("third"), "after the trace it belongs to had ended", marks(t)("late"))
	}

	// A wrong op has nowhere to report to but a panic; it says what and where.
	defer func() {
		err, ok := recover().(error)
		require.True(t, ok)
		requireError(t, err, "add", marks(t)("nowhere"), "element types differ")
	}()
	Add(late, old.Zeros(T(F64, 4))) // !nowhere
}

// TestFailedTraceLeavesValues: values of a trace that failed in a region can be
// touched as well.
func TestFailedTraceLeavesValues(t *testing.T) {
	var inner *Value
	_, err := Trace("failed", nil, func(b *Builder) error {
		b.Scan(nil, []*Value{x48(b)}, func(_, r []*Value) (next, ys []*Value) {
			inner = Exp(r[0])
			return nil, []*Value{Add(inner, b.Zeros(T(F64)))}
		})
		return nil
	})
	require.Error(t, err)
	require.Equal(t, T(F32, 8), Neg(inner).Type())
}

// TestTraceInTrace: each mistake goes to the program it was made in.
func TestTraceInTrace(t *testing.T) {
	var innerErr error
	m, err := Trace("outer", nil, func(b *Builder) error {
		x := x48(b)
		_, innerErr = Trace("inner", nil, func(in *Builder) error {
			in.Output("y", Add(in.Zeros(T(F32, 4)), in.Zeros(T(F64))))
			return nil
		})
		b.Output("x", Neg(x))
		return nil
	})
	require.NoError(t, err)
	require.NotNil(t, m)
	require.ErrorContains(t, innerErr, "element types differ")
}

// TestErrorsAreComparable keeps Error a plain value that callers may inspect.
func TestErrorsAreComparable(t *testing.T) {
	e := &Error{Op: "add", Pos: "a/b.go:1", Operands: []string{"f32[2]", "s32[]"}, Msg: "element types differ"}
	require.Equal(t, "a/b.go:1: add(f32[2], s32[]): element types differ", e.Error())
	require.Equal(t, "oops", (&Error{Msg: "oops"}).Error())
	require.Equal(t, reflect.Struct, reflect.TypeOf(*e).Kind())
}
