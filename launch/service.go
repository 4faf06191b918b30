package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Operations of the coordinator.
const (
	opJoin     = "join"     // come, and wait for all
	opExchange = "exchange" // give Value under Key, and wait for all
	opWatch    = "watch"    // wait for news; also a sign of life
	opStop     = "stop"     // have all stop
	opFail     = "fail"     // end the group for the reason in Key
	opLeave    = "leave"    // end well; process 0 waits for all
	opPut      = "put"      // put Value under Key
	opGet      = "get"      // wait for the value under Key
)

// request is what a process sends to the coordinator. Sending it again does no
// harm.
type request struct {
	Op      string `json:"op"`
	Process int    `json:"process"`
	Nonce   string `json:"nonce"` // of the process, which is another one when it is started again
	Size    int    `json:"size,omitempty"`
	Host    string `json:"host,omitempty"`
	Key     string `json:"key,omitempty"`
	Value   []byte `json:"value,omitempty"`
	Signal  int    `json:"signal,omitempty"`
	Passing bool   `json:"passing,omitempty"` // as in Failure
	Turn    int64  `json:"turn,omitempty"`
	// Hold is how long the answer may be held back, in milliseconds.
	Hold int64 `json:"hold,omitempty"`
	// Stopping: it knows already that all stop.
	Stopping bool `json:"stopping,omitempty"`
}

// reply is the answer. Neither Done nor an error: ask again.
type reply struct {
	Done    bool     `json:"done,omitempty"`
	Values  [][]byte `json:"values,omitempty"`
	Missing string   `json:"missing,omitempty"` // whom it waits for
	Behind  string   `json:"behind,omitempty"`
	Stop    *Stop    `json:"stop,omitempty"`
	Failure *Failure `json:"failure,omitempty"` // of the group, or of who is waited for
	Error   string   `json:"error,omitempty"`   // of the request
}

// service is the coordinator: a table with a clock, for many goroutines.
type service struct {
	mu      sync.Mutex
	table   *table
	changed chan struct{} // closed and replaced with every change
}

func newService(t *table) *service { return &service{table: t, changed: make(chan struct{})} }

// serve answers a request, holding it until there is an answer or its time has
// passed.
func (s *service) serve(ctx context.Context, q request) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table
	if q.Process < 0 || q.Process >= len(t.members) {
		return reply{Error: fmt.Sprintf("there is no process %d among %d", q.Process, len(t.members))}
	}
	if len(q.Value) > maxMessage {
		return reply{Error: fmt.Sprintf("%q: a message of %d bytes; the most are %d", q.Key, len(q.Value), maxMessage)}
	}
	if q.Op == opJoin {
		if err := t.join(q.Process, q.Size, q.Nonce, q.Host, time.Now()); err != nil {
			s.tell()
			return failed(err)
		}
	}
	if err := t.begin(q.Process, q.Nonce, time.Now()); err != nil {
		return failed(err)
	}
	defer func() { t.end(q.Process, time.Now()) }()
	r, more := s.act(q)
	if more {
		r, more = s.look(q)
	}
	if !more {
		return r
	}
	deadline := time.NewTimer(time.Duration(q.Hold) * time.Millisecond)
	defer deadline.Stop()
	for more {
		changed := s.changed
		s.mu.Unlock()
		waiting := true
		select {
		case <-changed:
		case <-deadline.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
		s.mu.Lock()
		if r, more = s.look(q); more && !waiting {
			r.Missing = t.names(t.awaited(q))
			return r
		}
	}
	return r
}

// tell wakes those who wait.
func (s *service) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// failed is the reply to a request that fails.
func failed(err error) reply {
	var f *Failure
	if errors.As(err, &f) {
		return reply{Failure: f}
	}
	return reply{Error: err.Error()}
}

// act does what a request asks for, once; more says that its answer may have to
// wait.
func (s *service) act(q request) (r reply, more bool) {
	t := s.table
	switch q.Op {
	case opWatch:
		t.members[q.Process].turn = q.Turn
		return r, true
	case opGet:
		return r, true
	case opJoin:
		if !t.complete() {
			return r, true // that changes nothing for those who wait
		}
	case opExchange:
		last, err := t.give(q.Process, q.Key, q.Value)
		if err != nil {
			return failed(err), false
		}
		if !last {
			return r, true
		}
	case opStop:
		t.ask(q.Process, q.Signal)
	case opFail:
		t.fail(Failure{Process: q.Process, Reason: q.Key, Passing: q.Passing})
		t.leave(q.Process)
	case opLeave:
		if q.Signal != 0 { // before the others learn that it is gone
			t.ask(q.Process, q.Signal)
		}
		t.leave(q.Process)
	case opPut:
		t.values[q.Key] = append([]byte{}, q.Value...)
	default:
		return reply{Error: fmt.Sprintf("unknown operation %q: is this another version of titan?", q.Op)}, false
	}
	s.tell()
	return r, true
}

// look answers a request if that can be done now.
func (s *service) look(q request) (r reply, more bool) {
	t := s.table
	switch q.Op {
	case opStop, opFail, opPut:
		return reply{Done: true}, false
	case opLeave:
		wait := q.Process == 0 && len(t.stay()) > 0
		return reply{Done: !wait}, wait
	case opWatch:
		r = reply{Done: true, Stop: t.stop, Failure: t.failure, Behind: t.behind()}
		return r, t.failure == nil && (t.stop == nil || q.Stopping)
	}
	if q.Op == opExchange {
		messages, gone := t.take(q.Key)
		if messages != nil {
			return reply{Done: true, Values: messages}, false
		}
		if gone != nil && t.failure == nil {
			r = failed(gone)
			r.Stop = t.stop // it may be gone for that
			return r, false
		}
	}
	switch {
	case t.failure != nil:
		return reply{Failure: t.failure, Stop: t.stop}, false
	case q.Op == opJoin && t.complete():
		return reply{Done: true, Values: t.hosts()}, false
	case q.Op == opGet:
		if v, ok := t.values[q.Key]; ok {
			return reply{Done: true, Values: [][]byte{v}}, false
		}
		return reply{}, true
	}
	return reply{}, true
}

// patrol looks for silent processes until ctx is done.
func (s *service) patrol(ctx context.Context) {
	ticker := time.NewTicker(max(s.table.silence/10, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		before := s.table.failure
		if s.table.check(time.Now()); s.table.failure != before {
			s.tell()
		}
		s.mu.Unlock()
	}
}

// path is where the coordinator answers.
const path = "/titan/1"

// ServeHTTP answers requests of other hosts.
func (s *service) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	var q request
	raw, err := io.ReadAll(io.LimitReader(hr.Body, 2*maxMessage))
	if err == nil {
		err = json.Unmarshal(raw, &q)
	}
	if err != nil || hr.Method != http.MethodPost || hr.URL.Path != path {
		http.Error(w, "titan's coordinator: not a request of another process", http.StatusBadRequest)
		return
	}
	out, err := json.Marshal(s.serve(hr.Context(), q))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // who does not hear it asks again
}

// listen serves other hosts until the returned function is called.
func (s *service) listen(port string) (stop func(), err error) {
	l, err := net.Listen("tcp", net.JoinHostPort("", port))
	if err != nil {
		return nil, fmt.Errorf("launch: process 0 must listen on the port of %s: %w", EnvCoordinator, err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Close
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}
