package launch

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// table is what the coordinator knows of a group: who has come, who is silent,
// what was exchanged. It is a state machine: it does not wait, has no clock and
// is not safe for several goroutines; service does these things.
type table struct {
	id      Identity // of process 0
	silence time.Duration
	members []member
	rounds  map[string]*round
	order   []string // keys of rounds, oldest first
	values  map[string][]byte
	stop    *Stop
	failure *Failure
}

// member is a process that has come.
type member struct {
	nonce   string // "" until it has come
	host    string
	seen    time.Time
	waiting int // requests of its that are being held
	left    bool
	turn    int64 // it has got to, as it said last
}

// round is an exchange under one key.
type round struct {
	messages [][]byte
	given    []bool
	missing  int
}

// Stop says that a process was asked to end, and that all do so with it.
type Stop struct {
	Process int    `json:"process"`
	Host    string `json:"host,omitempty"`
	Signal  int    `json:"signal"`
}

// Failure says which process a group has lost, and how.
type Failure struct {
	Process int    `json:"process"`
	Host    string `json:"host,omitempty"`
	Reason  string `json:"reason"`
	// Silent: it was not heard of any more. Otherwise it said itself that it ends.
	Silent bool `json:"silent,omitempty"`
	// Passing: it is about who was there, not about what they did.
	Passing bool `json:"passing,omitempty"`
}

// Error names the process, its host and the reason.
func (f *Failure) Error() string {
	return fmt.Sprintf("launch: process %s %s", named(f.Process, f.Host), f.Reason)
}

func named(process int, host string) string {
	if host == "" {
		return fmt.Sprint(process)
	}
	return fmt.Sprintf("%d (%s)", process, host)
}

// Limits on what a group holds.
const (
	maxMessage = 1 << 20 // bytes of a message or a value
	maxRounds  = 64      // that can be asked for again
)

func newTable(id Identity, silence time.Duration) *table {
	return &table{id: id, silence: silence, members: make([]member, id.Processes), rounds: map[string]*round{}, values: map[string][]byte{}}
}

// name returns "3 (host-c)".
func (t *table) name(process int) string { return named(process, t.host(process)) }

func (t *table) host(process int) string {
	if h := t.members[process].host; h != "" {
		return h
	}
	return t.id.Name(process)
}

// hosts lists the names of the hosts by process.
func (t *table) hosts() [][]byte {
	out := make([][]byte, len(t.members))
	for i := range out {
		out[i] = []byte(t.host(i))
	}
	return out
}

// complete reports whether all have come.
func (t *table) complete() bool {
	return !slices.ContainsFunc(t.members, func(m member) bool { return m.nonce == "" })
}

// join takes a process in. It may come twice with the same nonce. Before all are
// there another takes its place, for a launcher may have started it again;
// afterwards the group has lost it.
func (t *table) join(process, size int, nonce, host string, now time.Time) error {
	if size != len(t.members) {
		return fmt.Errorf("process %s is one of %d, the coordinator %s is there for %d: all must be told the same number", named(process, host), size, t.name(0), len(t.members))
	}
	m := &t.members[process]
	switch {
	case m.nonce == nonce || m.nonce == "" || !t.complete():
	default:
		reason := "has come a second time"
		if host != m.host {
			reason += fmt.Sprintf(", now from %s", host)
		}
		t.fail(Failure{Process: process, Reason: reason + ": it was started again by itself, or two processes have its number"})
		return t.failure
	}
	*m = member{nonce: nonce, host: host, seen: now}
	return nil
}

// begin notes a request of a process, end that it is answered.
func (t *table) begin(process int, nonce string, now time.Time) error {
	m := &t.members[process]
	if m.nonce != nonce {
		return fmt.Errorf("another process has come as process %s since: two have the same number", t.name(process))
	}
	m.seen = now
	m.waiting++
	return nil
}

func (t *table) end(process int, now time.Time) {
	m := &t.members[process]
	m.seen = now
	m.waiting = max(0, m.waiting-1)
}

// check finds processes that were not heard of for too long.
func (t *table) check(now time.Time) {
	for i, m := range t.members {
		if m.nonce != "" && !m.left && m.waiting == 0 && now.Sub(m.seen) > t.silence {
			t.fail(Failure{Process: i, Reason: fmt.Sprintf("was not heard of for %v", t.silence), Silent: true, Passing: true})
		}
	}
}

// fail ends the group. What ended it first counts.
func (t *table) fail(f Failure) {
	if t.failure == nil {
		f.Host = t.host(f.Process)
		t.failure = &f // and never changed: replies hold it
	}
}

func (t *table) leave(process int) { t.members[process].left = true }

// stay lists the processes besides 0 that have not gone, and may still want to
// know something.
func (t *table) stay() []int {
	var list []int
	for i, m := range t.members {
		lost := t.failure != nil && t.failure.Silent && t.failure.Process == i
		if i > 0 && !m.left && !lost {
			list = append(list, i)
		}
	}
	return list
}

// ask has all stop. Who asked first counts.
func (t *table) ask(process, signal int) {
	if t.stop == nil {
		t.stop = &Stop{Process: process, Host: t.host(process), Signal: signal}
	}
}

// give puts a message under a key, and reports whether it was the last one that
// was missing. Giving the same again changes nothing.
func (t *table) give(process int, key string, message []byte) (last bool, err error) {
	r := t.rounds[key]
	if r == nil {
		r = &round{messages: make([][]byte, len(t.members)), given: make([]bool, len(t.members)), missing: len(t.members)}
		t.rounds[key] = r
		t.order = append(t.order, key)
		t.forget()
	}
	if r.given[process] {
		if !bytes.Equal(r.messages[process], message) {
			return false, fmt.Errorf("process %s gives two messages under the key %q", t.name(process), key)
		}
		return false, nil
	}
	r.messages[process], r.given[process] = slices.Clone(message), true
	r.missing--
	return r.missing == 0, nil
}

// forget drops the oldest rounds that are complete.
func (t *table) forget() {
	for len(t.order) > maxRounds && t.rounds[t.order[0]].missing == 0 {
		delete(t.rounds, t.order[0])
		t.order = t.order[1:]
	}
}

// take returns the messages under a key once all are there. gone is an error if
// one of those that are missing never comes.
func (t *table) take(key string) (messages [][]byte, gone error) {
	r := t.rounds[key]
	if r.missing == 0 {
		return r.messages, nil
	}
	for i, given := range r.given {
		if !given && t.members[i].left {
			return nil, &Failure{Process: i, Host: t.host(i), Reason: "has ended"}
		}
	}
	return nil, nil
}

// missing lists the processes that have not given a message under a key.
func (t *table) missing(key string) []int {
	var list []int
	for i, given := range t.rounds[key].given {
		if !given {
			list = append(list, i)
		}
	}
	return list
}

// absent lists the processes that have not come.
func (t *table) absent() []int {
	var list []int
	for i, m := range t.members {
		if m.nonce == "" {
			list = append(list, i)
		}
	}
	return list
}

// names says "2 (host-c); 5 (host-f)", the first few of many.
func (t *table) names(list []int) string {
	var out []string
	for _, p := range list[:min(len(list), maxNamed)] {
		out = append(out, t.name(p))
	}
	s := strings.Join(out, "; ")
	if more := len(list) - len(out); more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// maxNamed is how many processes an error names.
const maxNamed = 8

// behind names the processes that have not got as far as the foremost, "" if
// all have.
func (t *table) behind() string {
	var most int64
	for _, m := range t.members {
		most = max(most, m.turn)
	}
	var list []string
	for i, m := range t.members {
		if m.turn < most && len(list) < maxNamed {
			list = append(list, fmt.Sprintf("%s has begun %d", t.name(i), m.turn))
		}
	}
	if list == nil {
		return ""
	}
	return fmt.Sprintf("others have begun %d programs, process %s", most, strings.Join(list, ", process "))
}

// awaited lists the processes that a request waits for.
func (t *table) awaited(q request) []int {
	switch q.Op {
	case opJoin:
		return t.absent()
	case opExchange:
		return t.missing(q.Key)
	case opLeave:
		return t.stay()
	}
	return nil
}
