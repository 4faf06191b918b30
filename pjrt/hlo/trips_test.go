package hlo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTripCounts infers counts from loops written in several ways.
func TestTripCounts(t *testing.T) {
	param := &Instruction{Opcode: "parameter"}
	element := func(k int) *Instruction {
		return &Instruction{Opcode: "get-tuple-element", TupleIndex: k, Operands: []*Instruction{param}}
	}
	constant := func(n int64) *Instruction {
		return &Instruction{Opcode: "constant", constant: n, hasConstant: true}
	}
	op := func(opcode string, args ...*Instruction) *Instruction {
		return &Instruction{Opcode: opcode, Operands: args}
	}
	less := func(direction string, a, b *Instruction) *Instruction {
		return &Instruction{Opcode: "compare", comparison: direction, Operands: []*Instruction{a, b}}
	}
	loop := func(init, cond, next []*Instruction) *Instruction {
		return &Instruction{Opcode: "while", Operands: []*Instruction{op("tuple", init...)},
			Called: []*Computation{{Root: op("tuple", next...)}, {Root: cond[0]}}}
	}
	is := func(i ...*Instruction) []*Instruction { return i }
	step := func(n int64) []*Instruction { return is(op("add", constant(n), element(0)), element(1)) }
	for name, c := range map[string]struct {
		loop *Instruction
		n    int64
		ok   bool
	}{
		"less":              {loop(is(constant(0), constant(9)), is(less("LT", element(0), constant(10))), step(1)), 10, true},
		"less or equal":     {loop(is(constant(0), constant(9)), is(less("LE", element(0), constant(10))), step(1)), 11, true},
		"greater, turned":   {loop(is(constant(2), constant(9)), is(less("GT", constant(10), element(0))), step(3)), 3, true},
		"carried bound":     {loop(is(op("copy", constant(1)), constant(9)), is(less("GE", element(1), element(0))), step(2)), 5, true},
		"never":             {loop(is(constant(5), constant(9)), is(less("LT", element(0), constant(5))), step(1)), 0, true},
		"changed bound":     {loop(is(constant(0), constant(9)), is(less("LT", element(0), element(1))), is(op("add", element(0), constant(1)), constant(3))), 0, false},
		"unknown start":     {loop(is(op("custom-call"), constant(9)), is(less("LT", element(0), constant(5))), step(1)), 0, false},
		"backwards":         {loop(is(constant(0), constant(9)), is(less("LT", element(0), constant(5))), step(-1)), 0, false},
		"not equal":         {loop(is(constant(0), constant(9)), is(less("NE", element(0), constant(5))), step(1)), 0, false},
		"other variable":    {loop(is(constant(0), constant(9)), is(less("LT", element(0), constant(5))), is(op("add", element(1), constant(1)), element(1))), 0, false},
		"no tuple":          {&Instruction{Opcode: "while", Operands: is(param), Called: []*Computation{{Root: param}, {Root: param}}}, 0, false},
		"element too large": {loop(is(constant(0)), is(less("LT", element(7), constant(5))), is(element(0))), 0, false},
	} {
		n, ok := c.loop.TripCount()
		require.Equal(t, c.ok, ok, name)
		require.Equal(t, c.n, n, name)
	}
	_, ok := param.TripCount()
	require.False(t, ok)
}

func TestShardingString(t *testing.T) {
	for want, s := range map[string]Sharding{
		"{replicated}":                {},
		"{manual}":                    {Kind: Manual},
		"{maximal device=3}":          {Kind: Maximal, Devices: []int{3}},
		"{devices=[2,1]0,1}":          {Kind: Tiled, Tiles: []int{2, 1}, Devices: []int{0, 1}},
		"{{replicated}, {unreduced}}": {Kind: TupleSharding, Elements: []Sharding{{}, {Kind: Unreduced}}},
		"{devices=[1,2]0,1 last_tile_dims=manual,replicated}": {Kind: Tiled, Tiles: []int{1, 2}, Devices: []int{0, 1}, LastTileDims: []ShardingKind{Manual, Replicated}},
		"{sharding9}": {Kind: 9},
	} {
		require.Equal(t, want, s.String())
	}
}
