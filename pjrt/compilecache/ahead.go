package compilecache

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"time"

	"titan/pjrt"
)

// Ahead is what is known of a program that was compiled for devices that are not
// here.
type Ahead struct {
	Memory pjrt.MemoryStats
	// HLO is the compiled module, for package hlo.
	HLO []byte
	// CompileTime is what compiling took, when it was done, CPUTime the processor time
	// of all threads of the process meanwhile (0: not known).
	CompileTime, CPUTime time.Duration
	// CodeBytes is the size of the serialized program.
	CodeBytes int64
}

// CompileFor compiles a program for a topology and stores it, so that the devices
// of that topology load it when they start with the same program: a client with
// them has the same key. It stores what it returns, too; the next call for the same
// program reads that and compiles nothing.
//
// located is the same program with the lines it comes from, which then stand in the
// HLO; the key goes by code. As for Compile, the cache never makes it fail.
func (c *Cache) CompileFor(t *pjrt.Topology, code, located []byte, o pjrt.CompileOptions) (*Ahead, Outcome, error) {
	var out Outcome
	to := target{plugin: t.Plugin(), platform: t.Platform(), version: t.PlatformVersion(), devices: t.Devices()}
	if c.dir == "" {
		out.why("%s", c.off)
	} else if key, err := c.keyFor(to, code, o); err != nil {
		out.why("not cached: %v", err)
	} else {
		out.Key = key
		if a := c.described(&out); a != nil {
			return a, out, nil
		}
	}
	start, cpu := time.Now(), cpuTime()
	exe, err := t.Compile(located, o)
	out.CompileTime, cpu = time.Since(start), cpuTime()-cpu
	if err != nil {
		return nil, out, err
	}
	defer exe.Close()
	a := &Ahead{CompileTime: out.CompileTime, CPUTime: cpu}
	if a.Memory, err = exe.MemoryStats(); err != nil {
		return nil, out, err
	}
	if _, a.HLO, err = exe.OptimizedProgram(); err != nil {
		return nil, out, err
	}
	if out.Key == "" {
		return a, out, nil
	}
	start = time.Now()
	a.CodeBytes, err = c.storeAhead(to, exe, a, out.Key)
	out.StoreTime = time.Since(start)
	if err != nil {
		out.why("not stored: %v", err)
		return a, out, nil
	}
	out.Bytes, out.Stored = a.CodeBytes, true
	if err := c.evict(out.Key); err != nil {
		out.why("old entries were not removed: %v", err)
	}
	return a, out, nil
}

// aboutKey is the key of the entry that describes a program.
func aboutKey(key string) string {
	sum := sha256.Sum256([]byte("about " + key))
	return hex.EncodeToString(sum[:])
}

func (c *Cache) storeAhead(t target, exe *pjrt.Executable, a *Ahead, key string) (int64, error) {
	n, err := c.store(t, exe, key)
	if err != nil {
		return 0, err
	}
	a.CodeBytes = n
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(a); err != nil {
		return n, err
	}
	about := aboutKey(key)
	head, err := newHeader(t, exe, about)
	if err != nil {
		return n, err
	}
	head.Name = "about " + head.Name
	data, err := encodeEntry(head, b.Bytes())
	if err != nil {
		return n, err
	}
	return n, c.write(c.file(about), data)
}

// described returns what is stored about a program that is stored, too.
func (c *Cache) described(out *Outcome) *Ahead {
	start := time.Now()
	for _, key := range []string{out.Key, aboutKey(out.Key)} {
		_, blob, err := c.read(key, out)
		if err != nil {
			return nil
		}
		if key == out.Key {
			continue
		}
		var a Ahead
		if err := gob.NewDecoder(bytes.NewReader(blob)).Decode(&a); err != nil {
			out.why("what the compile cache says of it is unusable: %v", err)
			return nil
		}
		out.Hit, out.LoadTime, out.Bytes = true, time.Since(start), a.CodeBytes
		return &a
	}
	return nil
}

// Remember returns what was worked out of a program for a topology, by make, and
// stored; what names it. As for Compile, the cache never makes it fail.
func (c *Cache) Remember(t *pjrt.Topology, code []byte, o pjrt.CompileOptions, what string, make func() ([]byte, error)) ([]byte, error) {
	if c.dir == "" {
		return make()
	}
	to := target{plugin: t.Plugin(), platform: t.Platform(), version: t.PlatformVersion(), devices: t.Devices()}
	key, err := c.keyFor(to, code, o)
	if err != nil {
		return make()
	}
	sum := sha256.Sum256([]byte(what + " of " + key))
	key = hex.EncodeToString(sum[:])
	if _, known, err := readEntry(c.file(key), key); err == nil {
		return known, nil
	}
	out, err := make()
	if err != nil {
		return nil, err
	}
	head := header{Key: key, Name: what, Platform: to.platform, Plugin: to.plugin.Path(), Created: time.Now().UTC().Truncate(time.Second)}
	if data, err := encodeEntry(head, out); err == nil && c.write(c.file(key), data) == nil {
		_ = c.evict(key)
	}
	return out, nil
}
