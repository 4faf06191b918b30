package compilecache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// pluginNote remembers the sha256 of a plugin's file, which takes a fifth of a
// second to compute for the 200 MB of the CPU plugin, with what shows whether
// the file is still the same.
type pluginNote struct {
	Path   string `json:"path"`
	State  string `json:"state"`
	SHA256 string `json:"sha256"`
}

// settled is how long ago a file must have changed for its times to tell
// versions apart: more than the clock tick of any file system.
var settled = 2 * time.Second

// PluginSHA256 is the sha256 of a plugin's file, in hexadecimal; the cache, which may
// be nil, remembers it.
func (c *Cache) PluginSHA256(path string) (string, error) {
	if c == nil || c.dir == "" {
		return fileSum(path)
	}
	return c.pluginSum(path)
}

// pluginSum is the sha256 of the file at path, from a note if there is a valid
// one.
func (c *Cache) pluginSum(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	id := sha256.Sum256([]byte(path))
	file := filepath.Join(c.dir, "plugins", hex.EncodeToString(id[:16])+".json")
	state, changed := fileState(st)
	if state != "" {
		var n pluginNote
		if raw, err := os.ReadFile(file); err == nil && json.Unmarshal(raw, &n) == nil &&
			n.Path == path && n.State == state && len(n.SHA256) == 2*sha256.Size {
			return n.SHA256, nil
		}
	}
	sum, err := fileSum(path)
	if err != nil {
		return "", err
	}
	// A file that changed just now may change again without its times showing it.
	if state != "" && time.Since(changed) > settled {
		if raw, err := json.Marshal(pluginNote{path, state, sum}); err == nil {
			_ = c.write(file, raw) // without the note it is hashed again
		}
	}
	return sum, nil
}

func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, f, make([]byte, 1<<20)); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
