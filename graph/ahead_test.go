package graph_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	. "titan/graph"
	"titan/sharding"
)

// A loop over layers gathers ahead and scatters behind where it is asked to, forwards
// and backwards, with and without recomputation, and computes what it did to the bit.
func TestGatherAhead(t *testing.T) {
	const layers, width = 5, 16
	m := newMesh(t, axis("copies", 2), axis("dp_shard", 4))
	rows, stack := sharding.P([]string{"copies", "dp_shard"}), sharding.P(nil, "dp_shard")
	build := func(ahead, remat, reverse bool) *Module {
		return trace(t, m, func(b *Builder) {
			if ahead {
				b.GatherAhead()
			}
			x := b.Input("x", T(F32, 16, width), Sharded(rows))
			w := b.Input("w", T(F32, layers, width, width), Sharded(stack))
			v := b.Input("v", T(F32, layers, width, width), Sharded(stack))
			var opts []ScanOption
			if reverse {
				opts = append(opts, InReverse())
			}
			loss := b.ShardMap([]*Value{x, w, v}, specs{rows, stack, stack}, specs{sharding.P()}, func(l []*Value) []*Value {
				whole := func(x *Value) *Value { return AllGatherAgain(Spread(x, "copies"), 0, "dp_shard") }
				carry, ys := b.Scan(l[:1], l[1:], func(carry, row []*Value) (next, ys []*Value) {
					one := func() []*Value {
						h := Tanh(Einsum("bi,io->bo", carry[0], whole(row[0])))
						return []*Value{Add(h, MatMul(h, whole(row[1])))}
					}
					if remat {
						return b.Checkpoint(SaveNothing(), one), carry
					}
					return one(), carry
				}, opts...)
				sum := Add(Sum(Square(carry[0])), Sum(ys[0]))
				return []*Value{AllReduce(sum, "copies", "dp_shard")}
			})[0]
			b.Output("loss", loss)
			for i, g := range Grad(loss, x, w, v) {
				b.Output(fmt.Sprint("grad", i), g, Sharded(specs{rows, stack, stack}[i]))
			}
		})
	}
	in := []array{normal(1, 16, width).as(F32), normal(2, layers, width, width).as(F32), normal(3, layers, width, width).as(F32)}
	for _, remat := range []bool{false, true} {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprintf("remat %v, reverse %v", remat, reverse), func(t *testing.T) {
				plain, ahead := build(false, remat, reverse), build(true, remat, reverse)
				require.NotContains(t, plain.String(), "ahead")
				loops := regexp.MustCompile(`n=5( reverse)?( ahead=2)?( behind=2)?`).FindAllString(ahead.String(), -1)
				forwards, backwards := "", " reverse"
				if reverse {
					forwards, backwards = backwards, forwards
				}
				require.Equal(t, []string{"n=5" + forwards + " ahead=2", "n=5" + backwards + " ahead=2 behind=2"}, loops)
				require.Equal(t, run(t, plain, in...), run(t, ahead, in...))
			})
		}
	}
}
