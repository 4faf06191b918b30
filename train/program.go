package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"titan/dtype"
	"titan/graph"
	"titan/mesh"
	"titan/models/decoder"
	"titan/pjrt"
	"titan/pjrt/compilecache"
	"titan/sharding"
)

// Compiled is a program on the machine's devices.
type Compiled struct {
	Exe     *pjrt.LoadedExecutable
	Module  *graph.Module
	Outcome compilecache.Outcome
	SHA256  string         // of its StableHLO
	Devices []*pjrt.Device // by position; nil for those of other processes
	machine *Machine
	order   []int // positions as Exe takes its arguments
	inputs  []*sharding.Layout
	outputs []*sharding.Layout
}

// Compile compiles a program for the machine, or loads it from the cache.
func (m *Machine) Compile(mod *graph.Module) (*Compiled, error) {
	code := []byte(mod.StableHLO())
	sum := sha256.Sum256(code)
	c := &Compiled{Module: mod, machine: m, SHA256: hex.EncodeToString(sum[:])}
	o := CompileOptions(m.Mesh, m.Platform())
	o.Flags = m.flags(o.Flags, code)
	var err error
	if m.Cache == nil {
		c.Exe, err = m.Client.Compile(code, o)
	} else {
		c.Exe, c.Outcome, err = m.Cache.Compile(m.Client, code, o)
	}
	if err != nil {
		return nil, CompileError(err)
	}
	if err := c.place(); err != nil {
		c.Close()
		return nil, err
	}
	for _, ports := range []struct {
		list []graph.Port
		to   *[]*sharding.Layout
	}{{mod.Inputs(), &c.inputs}, {mod.Outputs(), &c.outputs}} {
		for _, p := range ports.list {
			spec := sharding.Replicated(p.Type.Rank())
			if p.Spec != nil {
				spec = *p.Spec
			}
			l, err := sharding.NewLayout(m.Mesh, spec, p.Type.Shape)
			if err != nil {
				c.Close()
				return nil, fmt.Errorf("train: %s: %w", p.Name, err)
			}
			*ports.to = append(*ports.to, l)
		}
	}
	return c, nil
}

// place finds the positions of the program's devices.
func (c *Compiled) place() error {
	c.Devices = make([]*pjrt.Device, c.machine.Mesh.Size())
	for _, d := range c.Exe.Devices() {
		p, ok := c.machine.Mesh.PositionOf(d.ID)
		if !ok {
			return fmt.Errorf("train: the program runs on device %d, which is not in the mesh", d.ID)
		}
		c.Devices[p], c.order = d, append(c.order, p)
	}
	return nil
}

// Execute starts the program. args and outs have an entry for each position of
// the mesh, which is nil for devices of other processes; those run it too, in the
// same order among their programs.
func (c *Compiled) Execute(args [][]*pjrt.Buffer) (outs [][]*pjrt.Buffer, done *pjrt.Event, err error) {
	if c.machine.together != nil {
		return c.machine.together(c, args)
	}
	in := make([][]*pjrt.Buffer, len(c.order))
	for k, p := range c.order {
		in[k] = args[p]
	}
	var o pjrt.ExecuteOptions
	if c.machine.local != nil {
		c.machine.launches++
		o.LaunchID = c.machine.launches
	}
	got, done, err := c.Exe.Execute(in, o)
	if err != nil {
		return nil, nil, err
	}
	outs = make([][]*pjrt.Buffer, len(c.Devices))
	for k, p := range c.order {
		outs[p] = got[k]
	}
	return outs, done, nil
}

// Run executes and waits.
func (c *Compiled) Run(args [][]*pjrt.Buffer) ([][]*pjrt.Buffer, error) {
	outs, done, err := c.Execute(args)
	if err != nil {
		return nil, err
	}
	if err := done.Await(); err != nil {
		return nil, errors.Join(err, pjrt.CloseBuffers(outs...))
	}
	return outs, nil
}

// Close unloads the program.
func (c *Compiled) Close() {
	if c != nil {
		_ = c.Exe.Close()
	}
}

// Put cuts a whole array into the parts of the program's input number i and
// sends them to the devices of this process, by position.
func (c *Compiled) Put(i int, data []byte) ([]*pjrt.Buffer, error) {
	return c.put(i, func(l *sharding.Layout, positions []int, elem int) ([][]byte, error) {
		return l.Split(data, elem, positions)
	})
}

// put sends the shards that cut makes of the program's input number i.
func (c *Compiled) put(i int, cut func(l *sharding.Layout, positions []int, elem int) ([][]byte, error)) ([]*pjrt.Buffer, error) {
	port, l, positions := c.Module.Inputs()[i], c.inputs[i], c.machine.positions()
	shards, err := cut(l, positions, port.Type.DType.Size())
	out := make([]*pjrt.Buffer, len(c.Devices))
	for k, s := range shards {
		p := positions[k]
		if out[p], err = c.machine.Client.Put(s, port.Type.DType, l.Local(), c.Devices[p]); err != nil {
			_ = pjrt.CloseBuffers(out)
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("train: input %s: %w", port.Name, err)
	}
	return out, nil
}

// BuildInit traces the program that makes the initial state: parameters from a
// counter-based generator keyed by the seed, the parameter's name and the
// element's index, so that every mesh gives the same bits; everything else zero.
func BuildInit(seed uint64, m *mesh.Mesh, c decoder.Config, vars []Var) (*graph.Module, error) {
	init := map[string]decoder.Init{}
	for _, p := range c.Params() {
		init[p.Name] = p.Init
	}
	return graph.Trace("init", m, func(b *graph.Builder) error {
		for _, v := range vars {
			x := b.Zeros(v.Type)
			if p, ok := init[v.Name]; ok {
				if p.Std > 0 {
					const most = 3 // deviations
					x = graph.MulScalar(b.RandomTruncatedNormal(graph.NewKey(seed, "init", v.Name), v.Type, -most, most), p.Std)
				} else {
					x = b.Full(v.Type, p.Constant)
				}
			}
			b.Output(v.Name, x, graph.Sharded(v.Spec))
		}
		return nil
	})
}

// Init makes the initial state on the devices.
func (m *Machine) Init(seed uint64, c decoder.Config, vars []Var) (*State, error) {
	mod, err := BuildInit(seed, m.Mesh, c, vars)
	if err != nil {
		return nil, err
	}
	exe, err := m.Compile(mod)
	if err != nil {
		return nil, fmt.Errorf("train: compiling the initialiser: %w", err)
	}
	defer exe.Close()
	s, err := newState(m.Mesh, vars)
	if err != nil {
		return nil, err
	}
	outs, err := exe.Run(make([][]*pjrt.Buffer, m.Mesh.Size()))
	if err != nil {
		return nil, fmt.Errorf("train: initialising: %w", err)
	}
	for _, p := range m.positions() {
		s.bufs[p] = outs[p]
	}
	return s, nil
}

// scalar reads an f32 or s32 scalar.
func scalar(b *pjrt.Buffer) (float64, error) {
	raw, err := b.Bytes()
	if err != nil {
		return 0, err
	}
	if b.DType().IsFloat() {
		return dtype.Float(b.DType(), raw, 0), nil
	}
	return float64(int32(binary.LittleEndian.Uint32(raw))), nil
}
