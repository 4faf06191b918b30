package report

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"titan/configs"
)

// Server shows a page that is made again when what it is about has changed.
type Server struct {
	// Build makes the page.
	Build func() (*Page, error)
	// Paths are what the page is about: folders and files.
	Paths []string

	mu      sync.Mutex
	version string
	html    []byte
}

// Serve answers on a listener until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /version", s.tell)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	html, _, err := s.current()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(html) // who asked may be gone
}

func (s *Server) tell(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(Fingerprint(s.Paths))) // who asked may be gone
}

// current returns the page, made again if something has changed.
func (s *Server) current() ([]byte, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Fingerprint(s.Paths)
	if now == s.version {
		return s.html, now, nil
	}
	p, err := s.Build()
	if err != nil {
		return nil, "", err
	}
	p.Version = now
	html, err := p.HTML()
	if err != nil {
		return nil, "", err
	}
	s.version, s.html = now, html
	return html, now, nil
}

// deep is how many folders below a path are looked at: a sweep's points have the
// files of their runs there.
const deep = 3

// Fingerprint changes with the files that results are read from: their names, sizes
// and times. Checkpoints and traces, which are large and no part of a report, do
// not count.
func Fingerprint(paths []string) string {
	h := fnv.New64a()
	for _, root := range paths {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // it is not there now, and may be later
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return nil
			}
			if d.IsDir() {
				if depth(rel) > deep {
					return fs.SkipDir
				}
				return nil
			}
			switch filepath.Ext(path) {
			case ".json", ".jsonl", ".toml":
			default:
				if rel != "." {
					return nil
				}
			}
			if st, err := d.Info(); err == nil && filepath.Base(path) != configs.RunLock {
				fmt.Fprintf(h, "%s %d %d\n", path, st.Size(), st.ModTime().UnixNano())
			}
			return nil
		})
	}
	return strconv.FormatUint(h.Sum64(), 16)
}

func depth(rel string) int {
	n := 0
	for _, r := range rel {
		if r == os.PathSeparator {
			n++
		}
	}
	return n
}
