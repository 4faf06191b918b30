package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Group is what a save over several processes needs of their coordination. All
// processes make the same calls in the same order.
type Group interface {
	// Rank is this process, from 0. It is the Process of its devices in the mesh.
	Rank() int
	// Size is the number of processes.
	Size() int
	// Exchange hands every process the messages (below 4 KiB each) that all
	// passed under the same key, by rank. It is a barrier, and it must fail
	// rather than wait for a process that is gone. Keys are never used twice.
	// If ctx is done the message is still sent, so that the others do not wait,
	// and the error of ctx returned.
	Exchange(ctx context.Context, key string, message []byte) ([][]byte, error)
}

// Alone is the group of a single process.
func Alone() Group { return alone{} }

type alone struct{}

func (alone) Rank() int { return 0 }
func (alone) Size() int { return 1 }
func (alone) Exchange(_ context.Context, _ string, message []byte) ([][]byte, error) {
	return [][]byte{message}, nil // what one process decides does not depend on its context
}

// LocalGroup returns the members of a group of n goroutines of this process.
func LocalGroup(n int) []Group {
	shared := &localGroup{size: n, rounds: map[string]*round{}}
	out := make([]Group, n)
	for i := range out {
		out[i] = localMember{shared, i}
	}
	return out
}

type localGroup struct {
	mu     sync.Mutex
	size   int
	rounds map[string]*round
}

type round struct {
	messages [][]byte
	given    []bool
	missing  int
	complete chan struct{}
}

type localMember struct {
	*localGroup
	rank int
}

func (m localMember) Rank() int { return m.rank }
func (m localMember) Size() int { return m.size }

func (m localMember) Exchange(ctx context.Context, key string, message []byte) ([][]byte, error) {
	m.mu.Lock()
	r := m.rounds[key]
	if r == nil {
		r = &round{make([][]byte, m.size), make([]bool, m.size), m.size, make(chan struct{})}
		m.rounds[key] = r
	}
	if r.given[m.rank] {
		m.mu.Unlock()
		return nil, fmt.Errorf("checkpoint: process %d exchanges %q twice", m.rank, key)
	}
	r.messages[m.rank], r.given[m.rank] = slices.Clone(message), true
	if r.missing--; r.missing == 0 {
		close(r.complete)
	}
	m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-r.complete:
		return r.messages, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
