package runs

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
)

// logFile appends to the log of a run. A nil one takes everything and keeps nothing.
type logFile struct{ f *os.File }

// openLog opens a log, with its folders, to go on behind whatever is there: the line
// that a killed process had begun is ended.
func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			_, err = f.WriteString("\n")
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &logFile{f}, nil
}

func (l *logFile) name() string { return filepath.Base(l.f.Name()) }

func (l *logFile) append(lines []byte) error {
	if l == nil || l.f == nil {
		return nil
	}
	_, err := l.f.Write(lines)
	return err
}

func (l *logFile) close() {
	if l != nil && l.f != nil {
		_ = l.f.Close() // what was written is with the system already
		l.f = nil
	}
}

// escape is a control sequence of a terminal, as colours are.
var escape = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

// plain returns a copy of text without what only a terminal understands.
func plain(text []byte) []byte { return escape.ReplaceAll(text, nil) }
