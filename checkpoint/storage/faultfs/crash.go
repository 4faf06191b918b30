package faultfs

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// sector is the smallest part of a torn write that is stored whole, in bytes.
const sector = 16

// Crashed returns a new file system in a state that the disk may be in if the
// machine stops now. What was pending survives at random; with a nil rng, none
// of it does.
func (f *FS) Crashed(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := 0.0
	if rng != nil {
		// Also states with nearly all or nearly nothing kept.
		keep = []float64{0.05, 0.5, 0.5, 0.95, 1}[rng.IntN(5)]
	}
	s := survivor{rng: rng, keep: keep, seen: map[*node]*node{}}
	out := New()
	out.root = s.node(f.root)
	return out
}

// Killed returns a new file system as other processes find it when this process
// is killed but the machine runs on: everything is seen, and what was not synced
// may still be lost in a later crash.
func (f *FS) Killed() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := New()
	out.free = f.free
	out.root = clone(f.root, map[*node]*node{})
	return out
}

func clone(n *node, seen map[*node]*node) *node {
	if n == nil {
		return nil
	}
	if done, ok := seen[n]; ok {
		return done
	}
	out := &node{dir: n.dir, data: slices.Clone(n.data), onDisk: slices.Clone(n.onDisk), writes: slices.Clone(n.writes), charged: n.charged}
	seen[n] = out
	names := func(m map[string]*node) map[string]*node {
		c := make(map[string]*node, len(m))
		for name, child := range m {
			c[name] = clone(child, seen)
		}
		return c
	}
	if n.dir {
		out.children, out.durable = names(n.children), names(n.durable)
		for _, c := range n.changes {
			out.changes = append(out.changes, names(c))
		}
	}
	return out
}

type survivor struct {
	rng  *rand.Rand
	keep float64
	seen map[*node]*node
}

func (s *survivor) coin() bool { return s.rng != nil && s.rng.Float64() < s.keep }

func (s *survivor) node(n *node) *node {
	if done, ok := s.seen[n]; ok {
		return done
	}
	out := &node{dir: n.dir}
	s.seen[n] = out
	if !n.dir {
		out.data = slices.Clone(n.onDisk)
		for _, w := range n.writes {
			s.write(out, w)
		}
		out.onDisk = slices.Clone(out.data)
		return out
	}
	names := maps.Clone(n.durable)
	for _, c := range n.changes {
		if s.coin() {
			for _, name := range slices.Sorted(maps.Keys(c)) {
				set(names, name, c[name])
			}
		}
	}
	out.children = map[string]*node{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out.children[name] = s.node(names[name])
	}
	out.durable = maps.Clone(out.children)
	return out
}

// write stores a write whole, in part, or not at all.
func (s *survivor) write(n *node, w write) {
	store := func(from, to int) { n.data = put(n.data, w.off+from, w.data[from:to]) }
	if s.rng == nil {
		return
	}
	if s.coin() {
		store(0, len(w.data))
		return
	}
	if s.rng.IntN(2) == 0 {
		return
	}
	for from := 0; from < len(w.data); from += sector {
		if s.rng.IntN(2) == 0 {
			store(from, min(from+sector, len(w.data)))
		}
	}
}

// Dump lists every file with its size and every directory, for failure messages.
func (f *FS) Dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	var walk func(n *node, prefix string)
	walk = func(n *node, prefix string) {
		for _, name := range slices.Sorted(maps.Keys(n.children)) {
			c := n.children[name]
			b.WriteString(prefix + name)
			if c.dir {
				b.WriteString("/\n")
				walk(c, prefix+"  ")
				continue
			}
			b.WriteString("\n")
		}
	}
	walk(f.root, "")
	return b.String()
}

// Corrupt changes the durable content of a file; it is for tests that damage
// what was saved. It reports whether the file exists.
func (f *FS) Corrupt(name string, change func([]byte) []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil || n.dir {
		return false
	}
	n.data = change(slices.Clone(n.data))
	n.onDisk, n.writes = slices.Clone(n.data), nil
	return true
}
