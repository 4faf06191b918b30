package pjrt

import (
	"errors"
	"fmt"
)

// donation is a call that takes over the contents of buffers.
type donation struct{ program string }

// arguments are the buffers one call uses.
type arguments struct {
	held     []*Buffer
	donating []*Buffer
	donation *donation
	unknown  bool // which ones the program donates
}

func (a *arguments) release() {
	for _, b := range a.held {
		b.drop()
	}
}

// settle notes what a call has taken, where that was not known before.
func (a *arguments) settle() {
	if !a.unknown {
		return
	}
	for _, b := range a.held {
		if b.IsDeleted() {
			b.donated.Store(a.donation)
		}
	}
}

// undo gives back donations of a call that did not happen, except of buffers
// the plugin has taken nevertheless.
func (a *arguments) undo() {
	for _, b := range a.donating {
		if !b.IsDeleted() {
			b.donated.Store(nil)
		}
	}
}

// take checks the arguments of a call and holds them. The plugin would crash or
// compute nonsense on many wrong ones.
func (x *LoadedExecutable) take(args [][]*Buffer, o ExecuteOptions) (*arguments, error) {
	if len(args) != len(x.devices) {
		return nil, fmt.Errorf("pjrt: %s: arguments for %d devices, the program runs on %d here", x.name, len(args), len(x.devices))
	}
	params, err := x.Parameters()
	if err != nil && !IsUnimplemented(err) {
		return nil, fmt.Errorf("pjrt: %s: reading its parameters: %w", x.name, err)
	}
	na := len(params)
	if !x.sig.known {
		na = len(args[0])
	}
	keep, err := keepSet(o.NonDonatable, na)
	if err != nil {
		return nil, fmt.Errorf("pjrt: %s: %w", x.name, err)
	}
	a := &arguments{held: make([]*Buffer, 0, len(args)*na), donation: &donation{x.name}, unknown: !x.sig.known}
	fail := func(d, i int, err error) (*arguments, error) {
		a.release()
		a.undo()
		return nil, fmt.Errorf("pjrt: %s: argument %d on %v: %w", x.name, i, x.devices[d], err)
	}
	for d, bs := range args {
		if len(bs) != na {
			a.release()
			return nil, fmt.Errorf("pjrt: %s: %d arguments for %v, want %d", x.name, len(bs), x.devices[d], na)
		}
		for i, b := range bs {
			if err := x.checkArgument(b, d, i); err != nil {
				return fail(d, i, err)
			}
			if err := b.grab(); err != nil {
				return fail(d, i, err)
			}
			a.held = append(a.held, b)
		}
	}
	// Only now are buffers marked, so that a call refused above changes nothing.
	for d, bs := range args {
		for i, b := range bs {
			if !x.sig.known || !params[i].Donated || keep[i] {
				continue
			}
			if !b.donated.CompareAndSwap(nil, a.donation) {
				return fail(d, i, a.taken(b))
			}
			a.donating = append(a.donating, b)
		}
	}
	if len(a.donating) == 0 {
		return a, nil
	}
	for d, bs := range args {
		for i, b := range bs {
			if b.donated.Load() != nil && (!params[i].Donated || keep[i]) {
				return fail(d, i, a.taken(b))
			}
		}
	}
	return a, nil
}

// taken explains why b, which was free a moment ago, is donated.
func (a *arguments) taken(b *Buffer) error {
	if d := b.donated.Load(); d != nil && d != a.donation {
		return fmt.Errorf("%v is being donated to %s by another call", b, d.program)
	}
	return fmt.Errorf("%v is donated by another argument of the same call", b)
}

func keepSet(list []int, n int) (map[int]bool, error) {
	if len(list) == 0 {
		return nil, nil
	}
	keep := make(map[int]bool, len(list))
	for _, i := range list {
		if i < 0 || i >= n {
			return nil, fmt.Errorf("NonDonatable lists argument %d of %d", i, n)
		}
		keep[i] = true
	}
	return keep, nil
}

func (x *LoadedExecutable) checkArgument(b *Buffer, d, i int) error {
	switch {
	case b == nil:
		return errors.New("no buffer")
	case b.c != x.c:
		return errors.New("the buffer belongs to another client")
	case b.dev != x.devices[d]:
		return fmt.Errorf("%v is on the wrong device", b)
	case !x.sig.known:
		return nil
	}
	p := &x.sig.params[i]
	if p.DType.Valid() && !p.equal(b.dt, b.dims) {
		return fmt.Errorf("%v, want %v", b, p.ArrayType)
	}
	return nil
}
