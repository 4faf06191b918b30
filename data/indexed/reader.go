package indexed

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
)

// A Dataset is an open dataset, mapped into memory. Its tokens form one stream
// of Tokens() tokens, cut into Documents() documents. It may be used by several
// goroutines.
type Dataset struct {
	prefix    string
	dtype     DType
	sequences int64
	documents int64
	tokens    int64

	mu       sync.RWMutex // guards the mappings against Close
	idx, bin []byte
}

// Open maps the dataset at the prefix (a name with .bin or .idx does too) and
// checks its index against itself and against the size of the .bin file. Errors
// name the file and what is wrong with it.
func Open(prefix string) (*Dataset, error) {
	prefix = strings.TrimSuffix(strings.TrimSuffix(prefix, ".idx"), ".bin")
	d := &Dataset{prefix: prefix}
	var err error
	if d.idx, err = mapPath(prefix + ".idx"); err != nil {
		if _, statErr := os.Stat(prefix + ".bin" + partial); statErr == nil && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; the dataset is still being written, or its writer was killed: prepare it again", err)
		}
		return nil, fmt.Errorf("dataset %s: %w", prefix, err)
	}
	if err := d.guard(d.checkIndex); err != nil {
		d.Close()
		return nil, fmt.Errorf("dataset index %s.idx: %w", prefix, err)
	}
	if d.bin, err = mapPath(prefix + ".bin"); err != nil {
		d.Close()
		return nil, fmt.Errorf("dataset %s: %w", prefix, err)
	}
	if want := d.tokens * int64(d.dtype.Size()); int64(len(d.bin)) != want {
		have := len(d.bin)
		d.Close()
		return nil, fmt.Errorf("dataset %s.bin has %d bytes where its index has %d tokens of %s, %d bytes: it is truncated or belongs to another index",
			prefix, have, d.tokens, d.dtype, want)
	}
	return d, nil
}

func mapPath(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	if st.Size() > math.MaxInt {
		return nil, fmt.Errorf("%s is too large for this machine's address space", path)
	}
	b, err := mapFile(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return b, nil
}

// checkIndex reads the header and checks all of the index.
func (d *Dataset) checkIndex() error {
	b := d.idx
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return errors.New("not an index of a Megatron-Core dataset (it does not start with MMIDIDX)")
	}
	if len(b) < headerSize {
		return fmt.Errorf("truncated: %d bytes, the header alone has %d", len(b), headerSize)
	}
	if v := binary.LittleEndian.Uint64(b[9:]); v != version {
		return fmt.Errorf("format version %d, want %d", v, version)
	}
	d.dtype = DType(b[17])
	if d.dtype.Size() == 0 {
		return fmt.Errorf("holds %s, not tokens", d.dtype)
	}
	n, m := binary.LittleEndian.Uint64(b[18:]), binary.LittleEndian.Uint64(b[26:])
	if n == 0 || m < 2 {
		return errors.New("the dataset has no documents")
	}
	// Behind the document indices there may be one mode byte a sequence.
	body := uint64(len(b) - headerSize)
	if n > body/12 || m > body/8 || 12*n+8*m > body {
		return fmt.Errorf("truncated: %d bytes for %d sequences and %d documents", len(b), n, m-1)
	}
	if extra := body - 12*n - 8*m; extra != 0 && extra != n {
		return fmt.Errorf("%d bytes too long for %d sequences and %d documents", extra, n, m-1)
	}
	d.sequences, d.documents = int64(n), int64(m)-1
	size := int64(d.dtype.Size())
	for i := range d.sequences {
		l := int64(int32(binary.LittleEndian.Uint32(b[headerSize+4*int(i):])))
		if l < 0 {
			return fmt.Errorf("damaged: sequence %d has length %d", i, l)
		}
		if at := d.pointer(i); at != d.tokens*size {
			return fmt.Errorf("damaged, or written by other software: sequence %d starts at byte %d, want %d, where the one before ends", i, at, d.tokens*size)
		}
		d.tokens += l
	}
	if d.tokens == 0 {
		return errors.New("the dataset has no tokens")
	}
	last := int64(0)
	for i := range d.documents + 1 {
		s := d.docSequence(i)
		if s < last || s > d.sequences || i == 0 && s != 0 {
			return fmt.Errorf("damaged: document %d starts at sequence %d of %d", i, s, d.sequences)
		}
		last = s
	}
	if last != d.sequences {
		return fmt.Errorf("damaged: the documents end at sequence %d of %d", last, d.sequences)
	}
	return nil
}

// pointer returns the offset of a sequence in the .bin file, in bytes.
func (d *Dataset) pointer(seq int64) int64 {
	at := int64(headerSize) + 4*d.sequences + 8*seq
	return int64(binary.LittleEndian.Uint64(d.idx[at:]))
}

// docSequence returns the first sequence of a document.
func (d *Dataset) docSequence(doc int64) int64 {
	at := int64(headerSize) + 12*d.sequences + 8*doc
	return int64(binary.LittleEndian.Uint64(d.idx[at:]))
}

// docStart returns the place of a document in the stream; that of the document
// behind the last is the end of the stream.
func (d *Dataset) docStart(doc int64) int64 {
	s := d.docSequence(doc)
	if s == d.sequences {
		return d.tokens
	}
	return d.pointer(s) / int64(d.dtype.Size())
}

// Prefix returns the name that the dataset was opened by.
func (d *Dataset) Prefix() string { return d.prefix }

// DType returns the type of the tokens on disk.
func (d *Dataset) DType() DType { return d.dtype }

// Tokens returns the length of the stream.
func (d *Dataset) Tokens() int64 { return d.tokens }

// Documents returns the number of documents.
func (d *Dataset) Documents() int64 { return d.documents }

// Document returns where a document starts and ends in the stream.
func (d *Dataset) Document(doc int64) (start, end int64, err error) {
	if doc < 0 || doc >= d.documents {
		return 0, 0, fmt.Errorf("dataset %s: document %d, but there are %d", d.prefix, doc, d.documents)
	}
	err = d.access(func() error {
		start, end = d.docStart(doc), d.docStart(doc+1)
		return nil
	})
	return start, end, err
}

// Read copies the tokens of the stream from at on into dst.
func (d *Dataset) Read(dst []int32, at int64) error {
	if at < 0 || at > d.tokens || int64(len(dst)) > d.tokens-at {
		return fmt.Errorf("dataset %s: tokens %d to %d, but there are %d", d.prefix, at, at+int64(len(dst)), d.tokens)
	}
	return d.access(func() error {
		size := int64(d.dtype.Size())
		d.dtype.decode(dst, d.bin[at*size:(at+int64(len(dst)))*size])
		return nil
	})
}

// Starts appends the places in [from, to) of the stream where documents start.
func (d *Dataset) Starts(dst []int64, from, to int64) ([]int64, error) {
	err := d.access(func() error {
		doc := int64(sort.Search(int(d.documents), func(i int) bool { return d.docStart(int64(i)) >= from }))
		for ; doc < d.documents; doc++ {
			at := d.docStart(doc)
			if at >= to {
				break
			}
			// Documents without tokens share their place with the next.
			if n := len(dst); n == 0 || dst[n-1] != at {
				dst = append(dst, at)
			}
		}
		return nil
	})
	return dst, err
}

// DocumentAt returns the document that holds a place of the stream.
func (d *Dataset) DocumentAt(at int64) (doc int64, err error) {
	err = d.access(func() error {
		doc = int64(sort.Search(int(d.documents), func(i int) bool { return d.docStart(int64(i)+1) > at }))
		return nil
	})
	return doc, err
}

// Fingerprint returns a hash of the index: type, lengths and documents.
func (d *Dataset) Fingerprint() (string, error) {
	var sum [sha256.Size]byte
	err := d.access(func() error {
		sum = sha256.Sum256(d.idx)
		return nil
	})
	return hex.EncodeToString(sum[:]), err
}

// access runs f while the files are mapped.
func (d *Dataset) access(f func() error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.bin == nil {
		return fmt.Errorf("dataset %s: used after Close", d.prefix)
	}
	if err := d.guard(f); err != nil {
		return fmt.Errorf("dataset %s: %w", d.prefix, err)
	}
	return nil
}

// guard turns a memory fault into an error: so the kernel reports a mapped file
// that somebody truncates, or a disk that fails.
func (d *Dataset) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if fault, ok := p.(interface{ Addr() uintptr }); ok {
				err = fmt.Errorf("reading the mapped file failed at address %#x: the file was truncated while in use, or its disk fails", fault.Addr())
				return
			}
			panic(p)
		}
	}()
	return f()
}

// Close unmaps the files. Later use is an error.
func (d *Dataset) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, b := range []*[]byte{&d.idx, &d.bin} {
		if *b != nil {
			errs = append(errs, unmapFile(*b))
			*b = nil
		}
	}
	return errors.Join(errs...)
}
