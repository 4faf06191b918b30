package source

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// BadRecord is a record that is no document: malformed, or not valid UTF-8.
type BadRecord struct {
	Path string
	Line int64  // 1-based line of a text or JSONL file, row of a Parquet file
	Unit string // "line" or "row"
	Err  error
}

func (b *BadRecord) Error() string {
	if b.Unit == "row" {
		return fmt.Sprintf("%s: row %d: %v", b.Path, b.Line, b.Err)
	}
	return fmt.Sprintf("%s:%d: %v", b.Path, b.Line, b.Err)
}

func (b *BadRecord) Unwrap() error { return b.Err }

// A Chunk is a stretch of the input that one worker turns into documents.
type Chunk struct {
	// Input is the index of the input that the chunk comes from.
	Input int
	// Bytes is the size of the chunk on disk or, for a compressed JSONL file,
	// its share of it.
	Bytes int64

	opts  *Options
	files []File // text: whole files, still to be read
	file  File   // others
	first int64  // line or row number of the first record
	lines []byte
	rows  [][]byte // nil where the column is null
}

// Files returns the number of files that begin in the chunk.
func (c *Chunk) Files() int {
	if c.files != nil {
		return len(c.files)
	}
	if c.first == 1 {
		return 1
	}
	return 0
}

// Documents calls doc with each document in order, and bad with each record that
// is none. The text is valid only during the call. Documents stops at the first
// error that either returns, or at a file that cannot be read.
func (c *Chunk) Documents(doc func(text []byte) error, bad func(*BadRecord) error) error {
	each := func(path string, line int64, unit string, text []byte, err error) error {
		if err == nil {
			if at := invalidUTF8(text); at >= 0 {
				if unit == "line" && c.files != nil {
					line += int64(bytes.Count(text[:at], []byte("\n")))
				}
				err = fmt.Errorf("not valid UTF-8 at byte %d of the document (%#02x)", at, text[at])
			}
		}
		if err != nil {
			return bad(&BadRecord{Path: path, Line: line, Unit: unit, Err: err})
		}
		return doc(text)
	}
	for i := range c.files {
		text, err := readText(&c.files[i])
		if err != nil {
			return err
		}
		if err := each(c.files[i].Path, 1, "line", text, nil); err != nil {
			return err
		}
	}
	line := c.first
	for rest := c.lines; len(rest) > 0; line++ {
		var record []byte
		record, rest, _ = bytes.Cut(rest, []byte("\n"))
		record = bytes.TrimSpace(record)
		if len(record) == 0 {
			continue
		}
		text, err := jsonField(record, c.opts.field())
		if err := each(c.file.Path, line, "line", text, err); err != nil {
			return err
		}
	}
	for i, text := range c.rows {
		var err error
		if text == nil {
			err = fmt.Errorf("column %q is null", c.opts.field())
		}
		if err := each(c.file.Path, c.first+int64(i), "row", text, err); err != nil {
			return err
		}
	}
	return nil
}

// invalidUTF8 returns the offset of the first byte that is not part of valid
// UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
}

var errTooLong = errors.New("longer than 1 GiB; cut it into documents")

// maxDocument is the largest record, in bytes.
const maxDocument = 1 << 30
