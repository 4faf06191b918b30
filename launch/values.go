package launch

import (
	"context"
	"fmt"
	"time"
)

// Put stores a value (of 1 MiB at most) under a key, for all processes. With Get
// and TryGet it makes a group the store through which plugins of GPUs find their
// peers.
func (g *Group) Put(key string, value []byte) error {
	_, err := g.wait(g.ctx, request{Op: opPut, Key: key, Value: value}, g.o.Limit, "to store a value")
	return err
}

// Get waits for a value, at most for timeout.
func (g *Group) Get(key string, timeout time.Duration) ([]byte, error) {
	r, err := g.wait(g.ctx, request{Op: opGet, Key: key}, timeout, fmt.Sprintf("for the value %q", key))
	if err != nil {
		return nil, err
	}
	return r.Values[0], nil
}

// TryGet returns a value that is there.
func (g *Group) TryGet(key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(g.ctx, g.o.Limit)
	defer cancel()
	r, err := g.call(ctx, request{Op: opGet, Process: g.id.Process, Nonce: g.nonce, Key: key})
	switch {
	case err != nil:
		return nil, err
	case r.Failure != nil:
		return nil, r.Failure
	case !r.Done:
		return nil, fmt.Errorf("launch: there is no value %q yet", key)
	}
	return r.Values[0], nil
}
