package pjrt

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// ExecuteOptions configures one run.
type ExecuteOptions struct {
	// NonDonatable lists arguments to keep although the program donates them;
	// the plugin copies them.
	NonDonatable []int
	// LaunchID tags the run. It should be equal on all processes of a run.
	LaunchID int
}

// frame is everything one Execute call passes, in two heap objects.
type frame struct {
	args executeArgs
	opts executeOptions
}

// Execute starts the program. args[d] are the arguments on the d-th of
// x.Devices(). It returns the outputs by device, which may be passed on before
// they are computed, and one event for the completion on all devices. Donated
// arguments lose their contents but still have to be closed.
func (x *LoadedExecutable) Execute(args [][]*Buffer, o ExecuteOptions) (outs [][]*Buffer, done *Event, err error) {
	if err := x.loaded.hold(); err != nil {
		return nil, nil, err
	}
	defer x.loaded.drop()
	nd, no := len(x.devices), x.numOutputs
	call, err := x.take(args, o)
	if err != nil {
		return nil, nil, err
	}
	defer call.release()
	na := len(args[0])
	if err := x.reserve(nd*no, nd); err != nil {
		call.undo()
		return nil, nil, err
	}
	// words holds, in order: argument list pointers, output list pointers,
	// events, argument handles, output handles, non-donatable indices. It
	// holds addresses of itself, so it stays pinned during the call.
	keep := len(o.NonDonatable)
	words := make([]uintptr, 3*nd+nd*na+nd*no+keep+1)
	in, out, ev := words[:nd], words[nd:2*nd], words[2*nd:3*nd]
	inH := words[3*nd : 3*nd+nd*na]
	outH := words[3*nd+nd*na : 3*nd+nd*na+nd*no]
	keepW := words[3*nd+nd*na+nd*no:]
	f := new(frame)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&words[0])
	pin.Pin(f)
	addr := func(w []uintptr) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(w))) }
	for d, bs := range args {
		for i, b := range bs {
			inH[d*na+i] = b.h
		}
		in[d], out[d] = addr(inH[d*na:]), addr(outH[d*no:])
	}
	for i, k := range o.NonDonatable {
		keepW[i] = uintptr(k)
	}
	f.opts = executeOptions{header: header{size: cExecuteOptions}, launchID: int32(o.LaunchID), nonDonatable: addr(keepW), numNonDonatable: uintptr(keep)}
	f.args = executeArgs{loaded: x.loaded.h, options: uintptr(unsafe.Pointer(&f.opts)), arguments: addr(in), numDevices: uintptr(nd), numArgs: uintptr(na), outputs: addr(out), events: addr(ev)}
	if err := sExecute.call(x.p, &f.args); err != nil {
		x.unreserve(nd*no, nd)
		call.undo()
		return nil, nil, fmt.Errorf("running %s: %w", x.name, err)
	}
	call.settle()
	outs = x.wrap(outH)
	return outs, x.join(ev), nil
}

// reserve takes places for the results of a call.
func (x *LoadedExecutable) reserve(buffers, events int) error {
	if err := x.c.fam.joinMany(kindBuffer, buffers); err != nil {
		return err
	}
	err := x.c.fam.joinMany(kindEvent, events)
	if err != nil {
		x.c.fam.leaveMany(kindBuffer, buffers)
	}
	return err
}

func (x *LoadedExecutable) unreserve(buffers, events int) {
	x.c.fam.leaveMany(kindBuffer, buffers)
	x.c.fam.leaveMany(kindEvent, events)
}

// wrap makes buffers of the outputs' handles, which come device by device.
func (x *LoadedExecutable) wrap(hs []uintptr) [][]*Buffer {
	nd, no := len(x.devices), x.numOutputs
	outs := make([][]*Buffer, nd)
	for d := range outs {
		outs[d] = make([]*Buffer, no)
		for i := range no {
			out := x.outputs[i]
			outs[d][i] = newBuffer(x.c, hs[d*no+i], out.DType, out.Dims, x.devices[d])
		}
	}
	return outs
}

// join makes one event of the devices' events.
func (x *LoadedExecutable) join(hs []uintptr) *Event {
	e := newPendingEvent()
	var left atomic.Int32
	var failed atomic.Pointer[error]
	left.Store(int32(len(hs)))
	for _, h := range hs {
		watchEvent(x.p, &x.c.fam, h, func(err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			if left.Add(-1) > 0 {
				return
			}
			if first := failed.Load(); first != nil {
				e.complete(*first)
				return
			}
			e.complete(nil)
		})
	}
	return e
}

// Run executes and waits for all devices. On failure the outputs are closed.
func (x *LoadedExecutable) Run(args [][]*Buffer, o ExecuteOptions) ([][]*Buffer, error) {
	outs, done, err := x.Execute(args, o)
	if err != nil {
		return nil, err
	}
	if err := done.Await(); err != nil {
		return nil, errors.Join(err, CloseBuffers(outs...))
	}
	return outs, nil
}

// CloseBuffers closes all buffers of the lists; nil buffers are skipped.
func CloseBuffers(lists ...[]*Buffer) error {
	var errs []error
	for _, l := range lists {
		for _, b := range l {
			if b != nil {
				errs = append(errs, b.Close())
			}
		}
	}
	return errors.Join(errs...)
}
