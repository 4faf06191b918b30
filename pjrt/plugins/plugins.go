// Package plugins finds and installs PJRT plugins, the shared libraries through
// which titan compiles and runs programs.
//
// A plugin comes from a pinned wheel, fetched by pip, checked by its sha256 and
// unpacked into the user's cache; or from a path that the user names:
//
//	path, err := plugins.Find("cpu") // $TITAN_PLUGIN_CPU, else the cache
//	var missing *plugins.NotInstalledError
//	if errors.As(err, &missing) { … missing.Command() … }
//	path, err = plugins.Install(ctx, "cpu", plugins.InstallOptions{})
package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// NotInstalledError says that a plugin is not in the cache.
type NotInstalledError struct{ Name string }

// Command is what installs the plugin.
func (e *NotInstalledError) Command() string { return "titan plugin install " + e.Name }

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("the %s plugin is not installed; run `%s`, or set %s to the path of a PJRT plugin library", e.Name, e.Command(), EnvVar(e.Name))
}

// DamagedError says that an installed library is not what was installed.
type DamagedError struct{ Name, Path, What string }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the %s plugin %s %s; run `titan plugin install --force %s`", e.Name, e.Path, e.What, e.Name)
}

// EnvVar is the environment variable that overrides the named plugin's path.
func EnvVar(name string) string { return "TITAN_PLUGIN_" + strings.ToUpper(name) }

// Find returns the path of the named plugin's library: that in its environment
// variable, else the pinned version in the cache. The size is checked against
// what was installed; see Verify for the content.
func Find(name string) (string, error) {
	w, err := Pinned(name)
	if err != nil {
		return "", err
	}
	if p := os.Getenv(EnvVar(name)); p != "" {
		return Override(p, "environment variable "+EnvVar(name))
	}
	dir, err := pluginDir(name)
	if err != nil {
		return "", err
	}
	return check(w, filepath.Join(dir, w.dirName()))
}

// Override checks a library path given by the user; where says by what.
func Override(path, where string) (string, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s names the plugin %s: %w", where, path, errors.Unwrap(err))
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("%s names the plugin %s, which is not a file", where, path)
	}
	return filepath.Abs(path)
}

// Dir is the folder that plugins are installed under.
func Dir() (string, error) {
	c, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder for plugins: %w; set HOME or XDG_CACHE_HOME (to an absolute path)", err)
	}
	if !filepath.IsAbs(c) {
		return "", fmt.Errorf("the cache folder %s is relative; set HOME or XDG_CACHE_HOME to an absolute path", c)
	}
	return filepath.Join(c, "titan", "plugins"), nil
}

func pluginDir(name string) (string, error) {
	d, err := Dir()
	return filepath.Join(d, name), err
}

// dirName is the folder of one version: other versions may lie beside it.
func (w Wheel) dirName() string { return w.Version + "-" + w.SHA256[:8] }

func (w Wheel) library() string { return filepath.Base(filepath.FromSlash(w.Member)) }

const manifestName = "manifest.json"

// manifest is what was unpacked, kept beside the library.
type manifest struct {
	Package, Version, Library, SHA256 string
	Size                              int64
}

func readManifest(dir string) (manifest, error) {
	var m manifest
	raw, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(raw, &m)
}

// check returns the library in dir if it looks as it was installed.
func check(w Wheel, dir string) (string, error) {
	path := filepath.Join(dir, w.library())
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", &NotInstalledError{w.Plugin}
	} else if err != nil {
		return "", fmt.Errorf("looking for the %s plugin: %w", w.Plugin, err)
	}
	m, err := readManifest(dir)
	if err != nil {
		return "", &DamagedError{w.Plugin, path, "has no readable " + manifestName}
	}
	if m.SHA256 != w.LibrarySHA256 || m.Size != w.LibrarySize {
		return "", &DamagedError{w.Plugin, path, "is not the pinned one by its " + manifestName}
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return "", &DamagedError{w.Plugin, path, "is missing"}
	case st.Size() != m.Size:
		return "", &DamagedError{w.Plugin, path, fmt.Sprintf("has %d bytes instead of %d", st.Size(), m.Size)}
	}
	return path, nil
}

// Status describes one plugin.
type Status struct {
	Name    string `json:"name"`
	Pinned  string `json:"pinned"`           // package and version
	Source  string `json:"source,omitempty"` // "cache" or the environment variable
	Path    string `json:"path,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// List describes all plugins.
func List() []Status {
	var out []Status
	for _, w := range pinned {
		s := Status{Name: w.Plugin, Pinned: w.Package + " " + w.Version, Source: "cache"}
		if os.Getenv(EnvVar(w.Plugin)) != "" {
			s.Source = EnvVar(w.Plugin)
		}
		path, err := Find(w.Plugin)
		s.Path = path
		if err != nil {
			s.Problem, s.Source = err.Error(), ""
		}
		out = append(out, s)
	}
	return out
}

// Verify reads the whole installed library and compares its sha256 with the one
// recorded at installation. A library named by the user has nothing to compare.
func Verify(name string) error {
	path, err := Find(name)
	if err != nil || os.Getenv(EnvVar(name)) != "" {
		return err
	}
	m, err := readManifest(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return &DamagedError{name, path, "cannot be read: " + err.Error()}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != m.SHA256 {
		return &DamagedError{name, path, fmt.Sprintf("has sha256 %s instead of %s", got, m.SHA256)}
	}
	return nil
}

// Remove deletes all installed versions of a plugin, once no other process is
// installing it.
func Remove(ctx context.Context, name string) error {
	if _, err := Pinned(name); err != nil {
		return err
	}
	dir, err := pluginDir(name)
	if err != nil {
		return err
	}
	if err := remove(ctx, dir); errors.Is(err, fs.ErrNotExist) {
		return &NotInstalledError{name}
	} else if err != nil {
		return fmt.Errorf("removing the %s plugin: %w", name, err)
	}
	return nil
}

// remove empties a plugin's folder; fs.ErrNotExist if nothing is there.
func remove(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	unlock, err := lock(ctx, dir, io.Discard)
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.Name() == lockName { // held, and another process may be waiting for it
			continue
		}
		found = true
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if !found {
		return fs.ErrNotExist
	}
	return nil
}
