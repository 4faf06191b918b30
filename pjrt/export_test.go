package pjrt

// ToHostOrder is ToHost with another order of dimensions than row-major, to
// check that plugins heed the layout.
func (b *Buffer) ToHostOrder(dst []byte, minorToMajor []int64) error {
	var call arena
	defer call.free()
	if err := b.c.fam.join(kindEvent); err != nil {
		return err
	}
	a := &toHostArgs{src: b.h, layout: call.layout(minorToMajor), dst: call.bytes(dst), size: uintptr(len(dst))}
	if err := sBufToHost.call(b.p, a); err != nil {
		b.c.fam.leave(kindEvent)
		return err
	}
	e := newPendingEvent()
	watchEvent(b.p, &b.c.fam, a.event, e.complete)
	return e.Await()
}

// Handles counts the values that C code may refer to.
func Handles() int {
	n := 0
	handles.Range(func(_, _ any) bool { n++; return true })
	return n
}

// ForgetParameters makes x look like a program of a plugin that does not tell
// its parameters.
func (x *LoadedExecutable) ForgetParameters() {
	x.sig.once.Do(func() {})
	x.sig.params, x.sig.known, x.sig.err = nil, false, &Error{Code: Unimplemented}
}
