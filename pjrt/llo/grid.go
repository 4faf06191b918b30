package llo

import (
	"errors"
	"fmt"
)

// Grid is the loop over the grid of a tile kernel.
type Grid struct {
	// Outside are the cycles of the code before and after the loop, Always those of
	// what every turn issues: blocks are looked for, copied and waited for, without the
	// waiting.
	Outside int `json:"outside"`
	Always  int `json:"always"`
	// Branches are the conditionals of the kernel's own, in the order of the code.
	Branches []Branch `json:"branches,omitempty"`
	// Bundles is the size of the code.
	Bundles int `json:"bundles"`
}

// Branch is code that is jumped over unless a condition holds.
type Branch struct {
	// Depth is the number of conditionals around it.
	Depth int `json:"depth"`
	// Cycles are those of its own code, without branches inside of it. Dot says that
	// it multiplies on the matrix unit.
	Cycles int  `json:"cycles"`
	Dot    bool `json:"dot"`
}

// Cycles is how long a turn takes in which the branches are taken, or not, as taken
// says, where no block has to be waited for.
func (g Grid) Cycles(taken []bool) int {
	n := g.Always
	for k, b := range g.Branches {
		if k < len(taken) && taken[k] {
			n += b.Cycles
		}
	}
	return n
}

// span is code that a jump passes over, or the loop as a whole.
type span struct {
	from, to int // bundles [from, to)
	inner    []*span
}

// delay is more bundles than are issued after a jump before it is made.
const delay = 8

// Grid finds the loop over the grid in the code of a tile kernel, and the
// conditionals of the kernel in it. Those of the loop itself, which tell whether a
// block is to be copied, are not among them: the last of these is the one inside of
// which blocks are waited for, and the kernel's lie in there.
func (c *Code) Grid(core Core) (Grid, error) {
	whole := &span{0, len(c.Bundles), nil}
	loop := whole
	for at, b := range c.Bundles {
		if from := c.regions[b.Target]; b.Branches && from <= at && (loop == whole || at-from > loop.to-loop.from) {
			loop = &span{from, at + 1, nil}
		}
	}
	for at := loop.from; at < loop.to-1; at++ {
		b := c.Bundles[at]
		if !b.Branches {
			continue
		}
		switch to := c.regions[b.Target]; {
		case to <= at:
			return Grid{}, fmt.Errorf("llo: there is a loop inside of that over the grid, from bundle %#x to %#x, and nothing says how often it turns", to, at)
		case to <= loop.to:
			if err := loop.add(&span{c.jumps(at), to, nil}); err != nil {
				return Grid{}, err
			}
		}
	}
	body := loop
	for _, s := range loop.inner {
		if c.waitsIn(s) {
			body = s
			break
		}
	}
	if body == loop && !c.waitsIn(loop) {
		return Grid{}, errors.New("llo: no block is waited for: this is not the code of a tile kernel")
	}
	g := Grid{Bundles: len(c.Bundles), Outside: c.cycles(core, span{0, loop.from, nil}, span{loop.to, len(c.Bundles), nil})}
	for _, s := range body.inner {
		c.branches(core, &g, s, 0)
	}
	outside := loop.without(body.inner)
	g.Always = c.cycles(core, outside...)
	return g, nil
}

// without is s besides some of what is in it.
func (s *span) without(inner []*span) []span {
	var out []span
	at := s.from
	for _, in := range inner {
		out = append(out, span{at, in.from, nil})
		at = in.to
	}
	return append(out, span{at, s.to, nil})
}

// jumps is the first bundle that the jump at bundle at passes over: the few behind
// it are issued in any case.
func (c *Code) jumps(at int) int {
	for k := at; k < min(at+delay, len(c.Bundles)-1); k++ {
		if c.Bundles[k].ends {
			return k + 1
		}
	}
	return at + 1
}

// add puts a span into s, in the order of the code.
func (s *span) add(x *span) error {
	if n := len(s.inner); n > 0 {
		if last := s.inner[n-1]; x.from < last.to {
			if x.to > last.to {
				return fmt.Errorf("llo: the jump before bundle %#x leads out of the branch that ends at %#x", x.from, last.to)
			}
			return last.add(x)
		}
	}
	s.inner = append(s.inner, x)
	return nil
}

// waitsIn says whether s itself, besides the branches in it, waits for blocks.
func (c *Code) waitsIn(s *span) bool {
	for _, part := range s.without(s.inner) {
		for _, b := range c.Bundles[part.from:part.to] {
			if b.Waits {
				return true
			}
		}
	}
	return false
}

// branches adds s and what is in it.
func (c *Code) branches(core Core, g *Grid, s *span, depth int) {
	own := s.without(s.inner)
	b := Branch{Depth: depth, Cycles: c.cycles(core, own...)}
	for _, part := range own {
		for _, x := range c.Bundles[part.from:part.to] {
			b.Dot = b.Dot || x.Matrix
		}
	}
	g.Branches = append(g.Branches, b)
	for _, in := range s.inner {
		c.branches(core, g, in, depth+1)
	}
}
