package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// Options say how long the processes of a group wait for each other. Zero stands
// for the default.
type Options struct {
	Join    time.Duration // for all to come; 5 minutes
	Limit   time.Duration // in an exchange; 100 seconds
	Silence time.Duration // after which a process counts as lost; 30 seconds
	Host    string        // the name of this one; as the system says

	hold time.Duration // how long the coordinator holds answers back; for tests
}

const defaultHold = 15 * time.Second

func (o Options) withDefaults() Options {
	fill := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	fill(&o.Join, 5*time.Minute)
	fill(&o.Limit, 100*time.Second)
	fill(&o.Silence, 30*time.Second)
	fill(&o.hold, min(defaultHold, o.Silence/2))
	if o.Host == "" {
		o.Host, _ = os.Hostname() // an error leaves the number alone
	}
	return o
}

// Group is the processes of a run, as one of them sees it. Its methods may be
// called from several goroutines.
type Group struct {
	id      Identity
	o       Options
	hosts   [][]byte // their names, by process
	nonce   string
	call    func(context.Context, request) (reply, error)
	ctx     context.Context // done, with a *Failure as its cause, when the group is lost
	lose    context.CancelCauseFunc
	watched chan struct{} // closed when nobody watches any more
	shut    func()        // stops the coordinator
	turns   turns

	mu     sync.Mutex
	limit  time.Duration // of exchanges
	signal int           // for which all are to stop, if this process asked
	left   bool
}

// Join comes together with the other processes and returns when all are there.
// Process 0 is the coordinator, and listens. If they are not all there in time
// the error names those that are missing.
func Join(ctx context.Context, id Identity, o Options) (*Group, error) {
	if id.Processes < 2 {
		return nil, errors.New("launch: one process has nobody to join")
	}
	o = o.withDefaults()
	g := &Group{id: id, o: o, nonce: newNonce(), limit: o.Limit, shut: func() {}, watched: make(chan struct{})}
	g.ctx, g.lose = context.WithCancelCause(context.Background())
	g.turns.asked, g.turns.agreed = make(chan struct{}), make(chan struct{})
	_, port, err := net.SplitHostPort(id.Coordinator)
	if err != nil {
		return nil, fmt.Errorf("launch: the coordinator is %q and must be host:port", id.Coordinator)
	}
	if id.Process == 0 {
		s := newService(newTable(id, o.Silence))
		stop, err := s.listen(port)
		if err != nil {
			return nil, err
		}
		quit, cancel := context.WithCancel(context.Background())
		go s.patrol(quit)
		g.shut = func() { cancel(); stop() }
		g.call = func(ctx context.Context, q request) (reply, error) { return s.serve(ctx, q), nil }
	} else {
		g.call = newClient(id.Coordinator)
	}
	r, err := g.wait(ctx, request{Op: opJoin, Size: id.Processes, Host: o.Host}, o.Join, "for all to come")
	if err != nil {
		g.shut()
		return nil, err
	}
	g.hosts = r.Values
	go g.watch()
	return g, nil
}

func newNonce() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Rank is this process, from 0.
func (g *Group) Rank() int { return g.id.Process }

// Size is the number of processes.
func (g *Group) Size() int { return g.id.Processes }

// Name says which a process is and on which host, such as "3 (host-c)".
func (g *Group) Name(process int) string { return named(process, string(g.hosts[process])) }

// Identity is where this process stands.
func (g *Group) Identity() Identity { return g.id }

// Context is done when the group is lost: a process is silent, has failed, or
// the coordinator does not answer. Its cause is a *Failure then.
func (g *Group) Context() context.Context { return g.ctx }

// SetLimit changes how long exchanges wait that begin from now on.
func (g *Group) SetLimit(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = d
}

// Exchange hands every process the messages (of 1 MiB at most) that all passed
// under the same key, by rank. It is a barrier with a time limit: its error
// names who is missing, or was lost. A key is used once. If ctx is done the
// message is sent nevertheless, so that the others do not wait for it.
func (g *Group) Exchange(ctx context.Context, key string, message []byte) ([][]byte, error) {
	g.mu.Lock()
	limit := g.limit
	g.mu.Unlock()
	return g.ExchangeFor(ctx, limit, key, message)
}

// ExchangeFor is Exchange with a time limit of its own.
func (g *Group) ExchangeFor(ctx context.Context, limit time.Duration, key string, message []byte) ([][]byte, error) {
	if message == nil {
		message = []byte{}
	}
	type result struct {
		r   reply
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := g.wait(g.ctx, request{Op: opExchange, Key: key, Value: message}, limit, fmt.Sprintf("in %q", key))
		done <- result{r, err}
	}()
	select {
	case r := <-done:
		return r.r.Values, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wait sends a request until it is answered, at most for limit.
func (g *Group) wait(ctx context.Context, q request, limit time.Duration, what string) (reply, error) {
	q.Process, q.Nonce = g.id.Process, g.nonce
	deadline := time.Now().Add(limit)
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(g.o.hold)) // it answers at the deadline; this is for one that is gone
	defer cancel()
	missing := ""
	for {
		q.Hold = max(0, min(g.o.hold, time.Until(deadline))).Milliseconds()
		r, err := g.call(ctx, q)
		switch {
		case err == nil && r.Failure != nil:
			g.stopping(r.Stop)
			return r, r.Failure
		case err == nil && r.Error != "":
			return r, fmt.Errorf("launch: %s", r.Error)
		case err == nil && r.Done:
			return r, nil
		case g.ctx.Err() != nil:
			return r, context.Cause(g.ctx)
		case err == nil:
			missing = r.Missing
		}
		late := !time.Now().Before(deadline)
		switch {
		case late && err != nil:
			return r, &MissingError{Waited: limit, What: what, Missing: fmt.Sprintf("%s, the coordinator, which does not answer: %v", named(0, g.id.Coordinator), err)}
		case late:
			return r, &MissingError{Waited: limit, What: what, Missing: missing}
		case ctx.Err() != nil:
			return r, ctx.Err()
		case err != nil:
			select {
			case <-time.After(min(retryAfter, time.Until(deadline))):
			case <-ctx.Done():
			}
		}
	}
}

const retryAfter = 200 * time.Millisecond

// MissingError says for whom this process has waited in vain. They are alive, or
// never came.
type MissingError struct {
	Waited  time.Duration
	What    string
	Missing string // processes and their hosts
}

// Error names them.
func (e *MissingError) Error() string {
	return fmt.Sprintf("launch: waited %v %s: missing process %s", e.Waited, e.What, e.Missing)
}

// watch shows the coordinator that this process is alive, and learns from it of
// stops and losses.
func (g *Group) watch() {
	defer close(g.watched)
	heard := time.Now()
	for g.ctx.Err() == nil {
		turn, stopping := g.turns.state()
		q := request{Op: opWatch, Process: g.id.Process, Nonce: g.nonce, Turn: turn, Stopping: stopping, Hold: g.o.hold.Milliseconds()}
		ctx, cancel := context.WithTimeout(g.ctx, g.o.hold+g.o.Silence)
		r, err := g.call(ctx, q)
		cancel()
		switch {
		case g.ctx.Err() != nil:
			return
		case err != nil && time.Since(heard) > g.o.Silence:
			g.lose(&Failure{Process: 0, Host: g.id.Coordinator, Silent: true, Passing: true,
				Reason: fmt.Sprintf("does not answer as coordinator for %v: %v", g.o.Silence, err)})
			return
		case err != nil:
			time.Sleep(min(retryAfter, g.o.Silence/10))
			continue
		case r.Error != "":
			g.lose(&Failure{Process: g.id.Process, Host: g.o.Host, Reason: "is not wanted any more: " + r.Error})
			return
		case r.Failure != nil:
			g.lose(r.Failure)
			return
		}
		heard = time.Now()
		g.turns.hear(r.Behind)
		g.stopping(r.Stop)
	}
}

// Fail tells the others that this process ends, and why. Their contexts are done
// then.
func (g *Group) Fail(reason error) {
	if !g.leaving() {
		return
	}
	const most = 1000 // bytes
	text := reason.Error()
	g.part(request{Op: opFail, Key: "failed: " + text[:min(len(text), most)], Passing: Passing(reason)})
}

// Leave tells the others that this process has ended well. Process 0, the
// coordinator, waits for all of them.
func (g *Group) Leave() error {
	if !g.leaving() {
		return nil
	}
	var err error
	if g.id.Process == 0 && g.ctx.Err() == nil {
		_, err = g.wait(g.ctx, request{Op: opLeave}, g.o.Limit, "for all to end")
	}
	g.part(request{Op: opLeave})
	return err
}

// part says good-bye, once: who cannot be told finds out. Then it ends watching
// and, as the coordinator, gives the others some time to hear what has happened.
func (g *Group) part(q request) {
	g.mu.Lock()
	q.Process, q.Nonce, q.Signal = g.id.Process, g.nonce, g.signal
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), g.o.hold)
	defer cancel()
	_, _ = g.call(ctx, q)
	if g.id.Process == 0 {
		_, _ = g.call(ctx, request{Op: opLeave, Nonce: g.nonce, Hold: g.o.hold.Milliseconds()})
	}
	g.lose(errLeft)
	<-g.watched
	g.shut()
}

func (g *Group) leaving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.left
	g.left = true
	return first
}

// errLeft is why the context of a group that was left is done.
var errLeft = errors.New("launch: this process has left the group")

// Passing reports whether an error is about who was there, not about what they
// did: starting all processes again may help.
func Passing(err error) bool {
	var missing *MissingError
	var f *Failure
	return errors.As(err, &missing) || errors.As(err, &f) && f.Passing
}
