package hlo

import (
	"errors"
	"fmt"
)

// Parse reads a serialized HloModuleProto or HloModuleProtoWithConfig.
func Parse(blob []byte) (*Module, error) { return parse(blob, true) }

// ParseSignature is Parse without the computations, which makes it fast:
// parameters, results, aliases and donors.
func ParseSignature(blob []byte) (*Module, error) { return parse(blob, false) }

func parse(blob []byte, body bool) (*Module, error) {
	p := &parser{m: new(Module), body: body, byID: map[int64]*Instruction{}, comps: map[int64]*Computation{}}
	module, config, err := split(blob)
	if err == nil {
		err = p.module(module)
	}
	if err == nil {
		err = p.config(config)
	}
	if err != nil {
		return nil, fmt.Errorf("hlo: malformed module: %w", err)
	}
	return p.m, nil
}

// split tells the two messages apart: both start with field 1, which is a
// string in one and the other message in the other. Only a module has field 3,
// its computations, and only a module with config has nothing but 1 and 2.
func split(blob []byte) (module, config []byte, err error) {
	var first []byte
	plain := false
	err = walk(blob, func(x field) error {
		switch x.num {
		case 1:
			first = x.data
		case 2:
			config = x.data
		default:
			plain = true
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, nil, err
	case plain:
		return blob, nil, nil
	case first == nil:
		return nil, nil, errors.New("empty")
	}
	return first, config, nil
}

type parser struct {
	m        *Module
	body     bool
	byID     map[int64]*Instruction
	comps    map[int64]*Computation
	entryID  int64
	frames   frameIndex
	links    []link
	schedule map[int64][]int64
}

// link is an instruction with references still to be resolved.
type link struct {
	i                          *Instruction
	operands, controls, called []int64
}

func (p *parser) module(b []byte) error {
	var roots []int64
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			p.m.Name = x.str()
		case 3:
			if !p.body {
				return nil
			}
			root, err := p.computation(x.data)
			roots = append(roots, root)
			return err
		case 4:
			return p.signature(x.data)
		case 6:
			p.entryID = int64(x.val)
		case 7:
			p.m.Scheduled = true
			return p.parseSchedule(x.data)
		case 8:
			return p.entries(x.data, p.alias)
		case 12:
			p.m.ResultSharding, err = parseSharding(x.data, 0)
		case 14:
			var s *Sharding
			if s, err = parseSharding(x.data, 0); err == nil {
				p.m.ParameterShardings = append(p.m.ParameterShardings, *s)
			}
		case 17:
			return p.frames.parse(x.data)
		case 18:
			return p.entries(x.data, p.donor)
		}
		return err
	})
	if err != nil || !p.body {
		return err
	}
	return p.resolve(roots)
}

// signature reads a ProgramShapeProto.
func (p *parser) signature(b []byte) error {
	return walk(b, func(x field) (err error) {
		var s Shape
		switch x.num {
		case 1:
			if s, err = parseShape(x.data, 0); err == nil {
				p.m.Parameters = append(p.m.Parameters, s)
			}
		case 2:
			p.m.Result, err = parseShape(x.data, 0)
		}
		return err
	})
}

// entries calls f for the entries of an alias or donor config.
func (p *parser) entries(b []byte, f func([]byte) error) error {
	return walk(b, func(x field) error {
		if x.num == 1 {
			return f(x.data)
		}
		return nil
	})
}

func (p *parser) alias(b []byte) error {
	var a Alias
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			a.ResultIndex, err = appendInts(a.ResultIndex, x)
		case 2:
			a.Parameter = x.int()
		case 3:
			a.ParameterIndex, err = appendInts(a.ParameterIndex, x)
		case 4:
			a.Must = x.val == 2
		}
		return err
	})
	p.m.Aliases = append(p.m.Aliases, a)
	return err
}

func (p *parser) donor(b []byte) error {
	var d Donor
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			d.Parameter = x.int()
		case 2:
			d.ParameterIndex, err = appendInts(d.ParameterIndex, x)
		}
		return err
	})
	p.m.Donors = append(p.m.Donors, d)
	return err
}

func (p *parser) parseSchedule(b []byte) error {
	p.schedule = map[int64][]int64{}
	return p.entries(b, func(entry []byte) error { // map from computation to sequence
		var comp int64
		ids := []int64{}
		err := walk(entry, func(x field) error {
			switch x.num {
			case 1:
				comp = int64(x.val)
			case 2:
				return walk(x.data, func(y field) (err error) {
					if y.num == 1 {
						ids, err = y.ints(ids)
					}
					return err
				})
			}
			return nil
		})
		p.schedule[comp] = ids
		return err
	})
}

// config reads what is of interest in a HloModuleConfigProto.
func (p *parser) config(b []byte) error {
	return walk(b, func(x field) error {
		switch x.num {
		case 4:
			p.m.Replicas = x.int()
		case 5:
			p.m.Partitions = x.int()
		}
		return nil
	})
}

func (p *parser) computation(b []byte) (root int64, err error) {
	c := &Computation{Parent: p.m}
	err = walk(b, func(x field) error {
		switch x.num {
		case 1:
			c.Name = x.str()
		case 2:
			i, err := p.instruction(x.data)
			if err != nil {
				return err
			}
			i.Parent = c
			c.Instructions = append(c.Instructions, i)
		case 5:
			c.ID = int64(x.val)
		case 6:
			root = int64(x.val)
		case 7:
			c.IsFusion = x.bool()
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("computation %q: %w", c.Name, err)
	}
	if p.comps[c.ID] != nil {
		return 0, fmt.Errorf("two computations with id %d", c.ID)
	}
	p.comps[c.ID] = c
	p.m.Computations = append(p.m.Computations, c)
	return root, nil
}

// resolve turns ids into pointers.
func (p *parser) resolve(roots []int64) error {
	find := func(ids []int64, in *Computation) ([]*Instruction, error) {
		var out []*Instruction
		for _, id := range ids {
			i := p.byID[id]
			if i == nil || i.Parent != in {
				return nil, fmt.Errorf("computation %q has no instruction %d", in.Name, id)
			}
			out = append(out, i)
		}
		return out, nil
	}
	for _, l := range p.links {
		var err error
		if l.i.Operands, err = find(l.operands, l.i.Parent); err != nil {
			return err
		}
		if l.i.ControlPredecessors, err = find(l.controls, l.i.Parent); err != nil {
			return err
		}
		for _, id := range l.called {
			c := p.comps[id]
			if c == nil {
				return fmt.Errorf("instruction %q calls unknown computation %d", l.i.Name, id)
			}
			l.i.Called = append(l.i.Called, c)
		}
		p.frames.locate(l.i)
	}
	for k, c := range p.m.Computations {
		r, err := find(roots[k:k+1], c)
		if err != nil {
			return err
		}
		c.Root = r[0]
		if ids, ok := p.schedule[c.ID]; ok {
			if c.Schedule, err = find(ids, c); err != nil {
				return err
			}
		}
	}
	if err := p.checkCalls(); err != nil {
		return err
	}
	if p.m.Entry = p.comps[p.entryID]; p.m.Entry == nil {
		return fmt.Errorf("no entry computation %d", p.entryID)
	}
	return nil
}

// checkCalls refuses computations that call each other in a circle.
func (p *parser) checkCalls() error {
	const open, done = 1, 2
	state := map[*Computation]int{}
	var visit func(*Computation, int) error
	visit = func(c *Computation, depth int) error {
		switch {
		case state[c] == done:
			return nil
		case state[c] == open:
			return fmt.Errorf("computation %q calls itself", c.Name)
		case depth > maxCallDepth:
			return errDepth
		}
		state[c] = open
		for _, i := range c.Instructions {
			for _, callee := range i.Called {
				if err := visit(callee, depth+1); err != nil {
					return err
				}
			}
		}
		state[c] = done
		return nil
	}
	for _, c := range p.m.Computations {
		if err := visit(c, 0); err != nil {
			return err
		}
	}
	return nil
}

// maxCallDepth is far more than compilers nest loops and fusions.
const maxCallDepth = 1000
