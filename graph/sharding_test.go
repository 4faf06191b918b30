package graph_test

import (
	"fmt"
	"testing"

	. "titan/graph"
	"titan/sharding"
)

// Ops that move elements, with operands and results split in every way over
// 2 and 4 devices, give what they give on one. (XLA's partitioner gets padding
// between elements wrong, and dynamic slices that begin outside; see printpad.go
// and dynamic.go.)
func TestSplitOpsMoveTheSameElements(t *testing.T) {
	type move struct {
		name string
		at   float64 // where it begins, known only when it runs
		f    func(b *Builder, x, at *Value) *Value
		to   func(n int) []float64 // the result for 0, 1, …, n-1; -1 for padding
	}
	var moves []move
	for lo := range 2 {
		for hi := range 2 {
			for in := range 3 {
				moves = append(moves, move{fmt.Sprintf("pad %d,%d,%d", lo, hi, in), 0, func(b *Builder, x, _ *Value) *Value {
					return Pad(x, b.Scalar(F64, -1), []int{lo, 0}, []int{hi, 0}, []int{in, 0})
				}, func(n int) (out []float64) {
					for range lo {
						out = append(out, -1)
					}
					for i := range n {
						for range in {
							if i > 0 {
								out = append(out, -1)
							}
						}
						out = append(out, float64(i))
					}
					for range hi {
						out = append(out, -1)
					}
					return out
				}})
			}
		}
	}
	for _, s := range [][3]int{{0, 8, 2}, {1, 8, 2}, {0, 7, 3}, {2, 6, 1}, {1, 2, 1}} {
		moves = append(moves, move{fmt.Sprintf("slice %v", s), 0, func(_ *Builder, x, _ *Value) *Value {
			return Slice(x, []int{s[0], 0}, []int{min(s[1], x.Dim(0)), 2}, []int{s[2], 1})
		}, func(n int) (out []float64) {
			for i := s[0]; i < min(s[1], n); i += s[2] {
				out = append(out, float64(i))
			}
			return out
		}})
	}
	moves = append(moves, move{"reverse", 0, func(_ *Builder, x, _ *Value) *Value { return Reverse(x, 0) }, func(n int) (out []float64) {
		for i := range n {
			out = append(out, float64(n-1-i))
		}
		return out
	}}, move{"concat", 0, func(_ *Builder, x, _ *Value) *Value { return Concat(0, x, SliceDim(x, 0, 0, 4)) }, func(n int) (out []float64) {
		for i := range n + 4 {
			out = append(out, float64(i%n))
		}
		return out
	}})
	for _, size := range []int{1, 2, 4} {
		for _, at := range []float64{-2, 1, 3, 9} {
			start := func(n int) int { return min(max(int(at), 0), n-size) } // moved inside
			moves = append(moves, move{fmt.Sprintf("dynamic_slice of %d at %v", size, at), at, func(_ *Builder, x, at *Value) *Value {
				return DynamicSliceDim(x, 0, at, size)
			}, func(n int) (out []float64) {
				for i := range size {
					out = append(out, float64(start(n)+i))
				}
				return out
			}}, move{fmt.Sprintf("dynamic_update_slice of %d at %v", size, at), at, func(b *Builder, x, at *Value) *Value {
				return DynamicUpdateSliceDim(x, b.Full(T(F64, size, 2), -1), 0, at)
			}, func(n int) (out []float64) {
				for i := range n {
					if i >= start(n) && i < start(n)+size {
						out = append(out, -1)
					} else {
						out = append(out, float64(i))
					}
				}
				return out
			}})
		}
	}
	for _, size := range []int{2, 4} {
		var cases []checked
		for _, mv := range moves {
			for _, n := range []int{5, 8} {
				for from := range 2 {
					for to := range 2 {
						want := mv.to(n)
						if len(want) == 0 || from == 1 && n%size != 0 || to == 1 && len(want)%size != 0 {
							continue
						}
						in, out := array{T(F64, n, 2), nil}, array{T(F64, len(want), 2), nil}
						for i := range n {
							in.data = append(in.data, float64(i), float64(i)+100)
						}
						for _, x := range want {
							second := x + 100
							if x < 0 {
								second = x
							}
							out.data = append(out.data, x, second)
						}
						spec := func(split int) sharding.Spec { return []sharding.Spec{sharding.P(), sharding.P("a")}[split] }
						cases = append(cases, checked{
							name: fmt.Sprintf("%s of %d, split %d to %d", mv.name, n, from, to), in: []array{in, arr(T(S32), mv.at)},
							f: func(b *Builder, x []*Value) []*Value {
								return []*Value{Constrain(mv.f(b, Constrain(x[0], spec(from)), x[1]), spec(to))}
							},
						}.equals(out))
					}
				}
			}
		}
		t.Run(fmt.Sprintf("%d devices", size), func(t *testing.T) { checkAll(t, newMesh(t, axis("a", size)), cases) })
	}
}
