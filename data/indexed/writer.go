package indexed

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

const (
	magic      = "MMIDIDX\x00\x00"
	version    = 1
	headerSize = len(magic) + 8 + 1 + 8 + 8
	partial    = ".partial"
)

// A Writer writes one dataset, document by document. It belongs to one
// goroutine. After an error only Abort is of use.
type Writer struct {
	prefix  string
	dtype   DType
	bin     *os.File
	buf     *bufio.Writer
	sum     hash.Hash
	scratch []byte
	lengths []int32
	tokens  int64
	summary *Summary
	done    bool
	written []string // partial files to rename, in order
}

// Summary tells what a finished Writer wrote.
type Summary struct {
	Documents int64
	Tokens    int64
	BinBytes  int64
	BinSHA256 string // in hexadecimal
}

// Create starts a dataset at the prefix. It fails if there is one already,
// unless overwrite is set, and if another process is writing there. The old
// dataset stays until Commit.
func Create(prefix string, dtype DType, overwrite bool) (*Writer, error) {
	fail := func(err error) (*Writer, error) { return nil, fmt.Errorf("dataset %s: %w", prefix, err) }
	if dtype.Size() == 0 {
		return fail(fmt.Errorf("cannot hold tokens as %s", dtype))
	}
	_, err := os.Stat(prefix + ".idx")
	switch {
	case err == nil && !overwrite:
		return fail(errors.New("it exists already; choose another name, or allow it to be overwritten (--overwrite)"))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fail(err)
	}
	if err := os.MkdirAll(filepath.Dir(prefix), 0o777); err != nil {
		return fail(err)
	}
	bin, err := openLocked(prefix + ".bin" + partial)
	if err != nil {
		return fail(err)
	}
	w := &Writer{prefix: prefix, dtype: dtype, bin: bin, sum: sha256.New()}
	w.buf = bufio.NewWriterSize(io.MultiWriter(bin, w.sum), 1<<20)
	return w, nil
}

// openLocked creates the file, or takes over one that nobody is writing, and
// locks it until it is closed.
func openLocked(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("another process is writing it (%s is locked)", path)
		}
		// Whoever had it locked may have renamed it meanwhile.
		have, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if there, err := os.Stat(path); err != nil || !os.SameFile(have, there) {
			f.Close()
			continue
		}
		if err := f.Truncate(0); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
}

// Append adds a document. An empty one is left out: it would hold no token.
func (w *Writer) Append(doc []int32) error {
	if w.done || w.summary != nil {
		return fmt.Errorf("dataset %s: Append after Finish", w.prefix)
	}
	if len(doc) == 0 {
		return nil
	}
	n := len(w.lengths)
	if len(doc) > math.MaxInt32 {
		return fmt.Errorf("dataset %s: document %d has %d tokens; the format ends at %d", w.prefix, n, len(doc), math.MaxInt32)
	}
	for i, t := range doc {
		if t < 0 || t > w.dtype.max() {
			return fmt.Errorf("dataset %s: document %d, token %d: id %d does not fit into %s", w.prefix, n, i, t, w.dtype)
		}
	}
	w.scratch = w.dtype.appendTokens(w.scratch[:0], doc)
	if _, err := w.buf.Write(w.scratch); err != nil {
		return fmt.Errorf("dataset %s: %w", w.prefix, err)
	}
	w.lengths = append(w.lengths, int32(len(doc)))
	w.tokens += int64(len(doc))
	return nil
}

// Finish writes the index; everything is on disk then, under partial names. A
// dataset without documents is an error.
func (w *Writer) Finish() (Summary, error) {
	if w.summary != nil {
		return *w.summary, nil
	}
	fail := func(err error) (Summary, error) {
		return Summary{}, fmt.Errorf("dataset %s: %w", w.prefix, err)
	}
	if w.done {
		return fail(errors.New("Finish after Abort"))
	}
	if len(w.lengths) == 0 {
		return fail(errors.New("no document has any token; a dataset needs at least one"))
	}
	if err := w.buf.Flush(); err != nil {
		return fail(err)
	}
	if err := w.bin.Sync(); err != nil {
		return fail(err)
	}
	w.written = []string{".bin"}
	if err := w.add(".idx", w.writeIndex); err != nil {
		return fail(err)
	}
	w.summary = &Summary{
		Documents: int64(len(w.lengths)), Tokens: w.tokens, BinBytes: w.tokens * int64(w.dtype.Size()),
		BinSHA256: hex.EncodeToString(w.sum.Sum(nil)),
	}
	return *w.summary, nil
}

// Attach adds a file PREFIX+suffix that is committed with the dataset, between
// Finish and Commit.
func (w *Writer) Attach(suffix string, data []byte) error {
	if w.done || w.summary == nil {
		return fmt.Errorf("dataset %s: Attach outside Finish and Commit", w.prefix)
	}
	err := w.add(suffix, func(f io.Writer) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("dataset %s: %w", w.prefix, err)
	}
	return nil
}

func (w *Writer) add(suffix string, write func(io.Writer) error) error {
	f, err := os.Create(w.prefix + suffix + partial)
	if err != nil {
		return err
	}
	w.written = append(w.written, suffix)
	b := bufio.NewWriterSize(f, 1<<20)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (w *Writer) writeIndex(out io.Writer) error {
	n := len(w.lengths)
	head := append([]byte(magic), make([]byte, headerSize-len(magic))...)
	binary.LittleEndian.PutUint64(head[9:], version)
	head[17] = byte(w.dtype)
	binary.LittleEndian.PutUint64(head[18:], uint64(n))
	binary.LittleEndian.PutUint64(head[26:], uint64(n+1))
	if _, err := out.Write(head); err != nil {
		return err
	}
	var b [8]byte
	for _, l := range w.lengths {
		binary.LittleEndian.PutUint32(b[:], uint32(l))
		if _, err := out.Write(b[:4]); err != nil {
			return err
		}
	}
	at := int64(0)
	for _, l := range w.lengths {
		binary.LittleEndian.PutUint64(b[:], uint64(at))
		if _, err := out.Write(b[:]); err != nil {
			return err
		}
		at += int64(l) * int64(w.dtype.Size())
	}
	for i := range n + 1 {
		binary.LittleEndian.PutUint64(b[:], uint64(i))
		if _, err := out.Write(b[:]); err != nil {
			return err
		}
	}
	return nil
}

// Commit gives the files their names. The index comes last, so a dataset is
// there as a whole or not at all.
func (w *Writer) Commit() error {
	if w.done {
		return fmt.Errorf("dataset %s: Commit after Commit or Abort", w.prefix)
	}
	if _, err := w.Finish(); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("dataset %s: %w", w.prefix, err) }
	// An old index must never stand beside new tokens.
	if err := os.Remove(w.prefix + ".idx"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	for _, suffix := range w.written {
		if suffix == ".idx" {
			continue
		}
		if err := os.Rename(w.prefix+suffix+partial, w.prefix+suffix); err != nil {
			return fail(err)
		}
	}
	if err := syncDir(w.prefix); err != nil {
		return fail(err)
	}
	if err := os.Rename(w.prefix+".idx"+partial, w.prefix+".idx"); err != nil {
		return fail(err)
	}
	if err := syncDir(w.prefix); err != nil {
		return fail(err)
	}
	w.done = true
	return w.bin.Close()
}

// Abort removes what was written. After Commit it does nothing.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	os.Remove(w.prefix + ".bin" + partial)
	for _, suffix := range w.written {
		os.Remove(w.prefix + suffix + partial)
	}
	w.bin.Close()
}

func syncDir(prefix string) error {
	d, err := os.Open(filepath.Dir(prefix))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
