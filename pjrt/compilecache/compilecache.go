// Package compilecache keeps compiled programs on disk, so that the second
// start of the same program loads what the first compiled.
//
//	cache := compilecache.OpenDefault()
//	exe, out, err := cache.Compile(client, stablehlo, options)
//	fmt.Println(out) // "loaded from the compile cache in 0.13s (666 KiB)"
//
// An entry is found by everything its code depends on: the program, the
// options, the plugin's content, the devices, the host's processor and the
// environment variables that XLA reads. It is checked before the plugin sees
// it, since plugins accept any bytes without a word. A damaged entry is compiled
// anew and replaced. The cache never fails a compilation: what it cannot read
// or write costs the caching only, and the outcome says why.
//
// Several processes may use one folder at once, also over a network file system:
// entries appear by renaming and are never changed.
package compilecache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"titan/pjrt"
)

// EnvVar names the folder to use instead of the user's cache; "off" turns the
// cache off.
const EnvVar = "TITAN_COMPILE_CACHE"

// DefaultMaxBytes is how large the folder may grow.
const DefaultMaxBytes = 10 << 30

// Cache is a folder of compiled programs.
type Cache struct {
	// MaxBytes bounds the entries together: when one is added, those that were
	// used longest ago go. The entry just added stays whatever its size.
	MaxBytes int64

	dir string // "" for none
	off string // why, if dir is ""
}

// Dir returns the folder of the cache: what the environment says, else
// titan/compiled in the user's cache folder; "" if it is turned off.
func Dir() (string, error) {
	switch d := os.Getenv(EnvVar); d {
	case "off":
		return "", nil
	case "":
	default:
		return filepath.Abs(d)
	}
	c, err := os.UserCacheDir()
	if err == nil && !filepath.IsAbs(c) {
		err = fmt.Errorf("%s is relative", c)
	}
	if err != nil {
		return "", fmt.Errorf("no folder for the compile cache: %w; set HOME, XDG_CACHE_HOME or %s to an absolute path", err, EnvVar)
	}
	return filepath.Join(c, "titan", "compiled"), nil
}

// Open returns the cache in a folder, which is made when it is first written
// to. An empty dir stands for no cache: Compile then always compiles.
func Open(dir string) *Cache {
	c := &Cache{MaxBytes: DefaultMaxBytes, dir: dir}
	if dir == "" {
		c.off = "the compile cache is off"
	}
	return c
}

// OpenDefault returns the cache in the folder that [Dir] gives. Without one it
// is a cache that is off, and its outcomes say why.
func OpenDefault() *Cache {
	dir, err := Dir()
	c := Open(dir)
	if err != nil {
		c.off = err.Error()
	}
	return c
}

// Path returns the folder, "" if the cache is off.
func (c *Cache) Path() string { return c.dir }

// Outcome tells what Compile did.
type Outcome struct {
	// Hit says that the program was loaded and not compiled.
	Hit bool
	// Why says why it was not a hit, and if it could not be stored why not.
	Why string
	// CompileTime, LoadTime and StoreTime are what the parts took: compiling;
	// reading, checking and loading the entry; serializing and writing it.
	CompileTime, LoadTime, StoreTime time.Duration
	// Bytes is the size of the entry, 0 if there is none.
	Bytes int64
	// Stored says that the program was compiled and is in the cache now.
	Stored bool
	// Key is the entry's name; empty if the cache is off.
	Key string
}

// String is the outcome for the log.
func (o Outcome) String() string {
	if o.Hit {
		return fmt.Sprintf("loaded from the compile cache in %.2fs (%d KiB)", o.LoadTime.Seconds(), o.Bytes>>10)
	}
	s := fmt.Sprintf("compiled in %.2fs", o.CompileTime.Seconds())
	if o.Stored {
		s += fmt.Sprintf(", stored in the compile cache (%d KiB)", o.Bytes>>10)
	}
	if o.Why != "" {
		s += ": " + o.Why
	}
	return s
}

// why adds a reason.
func (o *Outcome) why(format string, args ...any) {
	if o.Why != "" {
		o.Why += "; "
	}
	o.Why += fmt.Sprintf(format, args...)
}

// Compile returns the program as [pjrt.Client.Compile] would, loaded from the
// cache if it is there. It fails only where compiling does.
//
// A loaded program is equal to a compiled one in all that can be asked of it:
// signature, donation, memory accounting, optimized HLO, fingerprint.
func (c *Cache) Compile(client *pjrt.Client, code []byte, o pjrt.CompileOptions) (*pjrt.LoadedExecutable, Outcome, error) {
	var out Outcome
	if c.dir == "" {
		out.why("%s", c.off)
		exe, err := out.compile(client, code, o)
		return exe, out, err
	}
	key, err := c.key(client, code, o)
	if err != nil { // the plugin's file cannot be read, or the client is closed
		out.why("not cached: %v", err)
		exe, err := out.compile(client, code, o)
		return exe, out, err
	}
	out.Key = key
	if exe := c.load(client, &out); exe != nil {
		return exe, out, nil
	}
	exe, err := out.compile(client, code, o)
	if err != nil {
		return nil, out, err
	}
	start := time.Now()
	n, err := c.store(targetOf(client), exe.Executable, key)
	out.StoreTime = time.Since(start)
	if err != nil {
		out.why("not stored: %v", err)
		return exe, out, nil
	}
	out.Bytes, out.Stored = n, true
	if err := c.evict(key); err != nil {
		out.why("old entries were not removed: %v", err)
	}
	return exe, out, nil
}

func (o *Outcome) compile(client *pjrt.Client, code []byte, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	start := time.Now()
	exe, err := client.Compile(code, opts)
	o.CompileTime = time.Since(start)
	return exe, err
}

// load returns the entry's program, or nil and why not in out.
func (c *Cache) load(client *pjrt.Client, out *Outcome) *pjrt.LoadedExecutable {
	start := time.Now()
	path := c.file(out.Key)
	head, blob, err := c.read(out.Key, out)
	if err != nil {
		return nil
	}
	exe, err := client.Load(blob)
	if err == nil {
		if err = head.describes(exe); err != nil {
			err = errors.Join(err, exe.Close())
		}
	}
	if err != nil {
		out.why("the cached entry %s could not be loaded: %v", filepath.Base(path), err)
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // marks the use; on a read-only folder nothing is evicted either
	out.Hit, out.LoadTime, out.Bytes = true, time.Since(start), int64(len(blob))
	return exe
}

// read returns an entry that is whole. Otherwise out says why there is none.
func (c *Cache) read(key string, out *Outcome) (header, []byte, error) {
	path := c.file(key)
	head, blob, err := readEntry(path, key)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR): // storing says what the folder is
		out.why("not in the compile cache yet")
	case err != nil:
		out.why("the cached entry %s is unusable: %v", filepath.Base(path), err)
	}
	return head, blob, err
}

// store writes a compiled program and returns its size.
func (c *Cache) store(t target, exe *pjrt.Executable, key string) (int64, error) {
	blob, err := exe.Serialize()
	if err != nil {
		return 0, err
	}
	head, err := newHeader(t, exe, key)
	if err != nil {
		return 0, err
	}
	data, err := encodeEntry(head, blob)
	if err != nil {
		return 0, err
	}
	return int64(len(blob)), c.write(c.file(key), data)
}
