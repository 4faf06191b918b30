package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
)

// turns count the programs that a process has begun, which are the same on all,
// and end the count at the same number everywhere.
//
// When all are to stop each process tells how many it has begun, and begins none
// until it knows what the others said; the largest number is where all stop. The
// talk goes on beside the training: a process that waits for its devices answers
// too, so those that are ahead do not wait for a program of their own.
type turns struct {
	mu     sync.Mutex
	begun  int64
	stop   *Stop
	asked  chan struct{} // closed when stop is set
	last   int64         // the number of programs to begin in all, once agreed
	agreed chan struct{} // closed when last is known, or never will be
	behind string        // who has begun fewer than others, as last heard
}

func (t *turns) state() (begun int64, stopping bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun, t.stop != nil
}

func (t *turns) hear(behind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.behind = behind
}

// stopping notes that all are to stop, and has that agreed on.
func (g *Group) stopping(s *Stop) {
	t := &g.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if s != nil && t.stop == nil {
		t.stop = s
		close(t.asked)
		go g.agree()
	}
}

// agree settles with the others where all stop.
func (g *Group) agree() {
	t := &g.turns
	defer close(t.agreed)
	begun, _ := t.state() // it stays so, as stop is set
	raw, err := json.Marshal(begun)
	if err != nil {
		g.Fail(err)
		return
	}
	replies, err := g.Exchange(g.ctx, "stop", raw)
	most := begun
	for i, r := range replies {
		var n int64
		if bad := json.Unmarshal(r, &n); bad != nil && err == nil {
			err = fmt.Errorf("launch: the count of process %d: %w", i, bad)
		}
		most = max(most, n)
	}
	if err != nil && g.ctx.Err() == nil {
		// Without the others no step can be taken, nor a checkpoint saved.
		g.lose(&Failure{Process: g.id.Process, Host: g.o.Host, Passing: Passing(err), Reason: fmt.Sprintf("could not agree on the step to stop at: %v", err)})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = most
}

// Stop has all processes stop, at the same turn. It returns at once.
func (g *Group) Stop(signal int) {
	g.mu.Lock()
	g.signal = signal // for a process that leaves before it is told
	g.mu.Unlock()
	go func() {
		// Without an answer the group is lost, which is noticed elsewhere.
		_, _ = g.wait(g.ctx, request{Op: opStop, Signal: signal}, g.o.Limit, "to stop")
	}()
}

// Turn is called before every program that all processes run together, such as a
// training step. It returns nil if the program is to be begun, else why all stop
// before it. It is quick, unless a stop is being agreed on.
func (g *Group) Turn(ctx context.Context) (*Stop, error) {
	t := &g.turns
	t.mu.Lock()
	if t.stop == nil {
		defer t.mu.Unlock()
		t.begun++
		return nil, g.lost()
	}
	t.mu.Unlock()
	select {
	case <-t.agreed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := g.lost(); err != nil {
		return nil, err
	}
	if t.begun >= t.last {
		return t.stop, nil
	}
	t.begun++
	return nil, nil
}

// Asked is closed when a process has asked all to stop; Stopping says which.
func (g *Group) Asked() <-chan struct{} { return g.turns.asked }

// Stopping returns who asked all to stop, nil if nobody has.
func (g *Group) Stopping() *Stop {
	g.turns.mu.Lock()
	defer g.turns.mu.Unlock()
	return g.turns.stop
}

// Behind names the processes that have begun fewer programs than others, as far
// as the coordinator knew a while ago; "" if none has.
func (g *Group) Behind() string {
	g.turns.mu.Lock()
	defer g.turns.mu.Unlock()
	return g.turns.behind
}

func (g *Group) lost() error {
	if g.ctx.Err() != nil {
		return context.Cause(g.ctx)
	}
	return nil
}
