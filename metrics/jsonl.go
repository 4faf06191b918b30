package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// appender appends whole records to a file: one that fails half-way is taken
// back, so that the next one begins where it must.
type appender struct {
	f    file
	size int64 // of whole records
}

// file is what an appender needs of an *os.File.
type file interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
	Name() string
}

// openAppender opens or creates a file, with its folders, for appending behind
// whole records: keep returns where those end.
func openAppender(path string, keep func(*os.File) (int64, error)) (*appender, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	size, err := keep(f)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &appender{f, size}, nil
}

func (a *appender) append(record []byte) error {
	n, err := a.f.WriteAt(record, a.size)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, a.f.Truncate(a.size))
		}
		return err
	}
	a.size += int64(n)
	return nil
}

func (a *appender) close() error { return errors.Join(a.f.Sync(), a.f.Close()) }

// jsonSink writes a JSON object a line.
type jsonSink struct{ *appender }

func openJSON(path string) (*jsonSink, error) {
	a, err := openAppender(path, wholeLines)
	if err != nil {
		return nil, err
	}
	return &jsonSink{a}, nil
}

// wholeLines returns where the last line ends; behind it is what a process that
// was killed had begun. A file that does not look like metrics is an error: it
// must not be cut.
func wholeLines(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return 0, err
	}
	first := make([]byte, 1)
	if _, err := f.ReadAt(first, 0); err != nil {
		return 0, err
	}
	if first[0] != '{' {
		return 0, errors.New("this is no file of JSON lines; move it away, or name another in metrics.save_json_file")
	}
	const block = 1 << 16
	buf := make([]byte, block)
	for end := st.Size(); end > 0; {
		start := max(0, end-block)
		n, err := f.ReadAt(buf[:end-start], start)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

func (s *jsonSink) name() string { return s.f.Name() }

func (s *jsonSink) write(e Event) error { return s.append(jsonLine(e)) }

// jsonLine spells an event as a line. A figure that is not finite is null: JSON
// has no other word for it.
func jsonLine(e Event) []byte {
	b := fmt.Appendf(nil, `{"kind":%q,"step":%d,"time":%q`, e.Kind, e.Step, e.Time.UTC().Format(time.RFC3339Nano))
	for _, s := range e.Scalars {
		name, err := json.Marshal(s.Name)
		if err != nil {
			continue // a string always encodes
		}
		b = append(append(append(b, ','), name...), ':')
		if !finite(s.Value) {
			b = append(b, "null"...)
			continue
		}
		if v := int64(s.Value); float64(v) == s.Value && max(v, -v) < 1<<53 {
			b = strconv.AppendInt(b, v, 10) // not 1e+06
			continue
		}
		b = strconv.AppendFloat(b, s.Value, 'g', -1, 64)
	}
	for _, c := range e.Counts {
		b = appendArray(b, c.Name, c.N)
	}
	for _, l := range e.Lists {
		b = appendArray(b, l.Name, l.Values)
	}
	return append(b, "}\n"...)
}

func appendArray(b []byte, name string, values []float64) []byte {
	key, err := json.Marshal(name)
	if err != nil {
		return b // a string always encodes
	}
	return append(append(append(append(b, ','), key...), ':'), jsonArray(values)...)
}
