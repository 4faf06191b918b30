package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// chunkBytes is the aimed-at size of a chunk: small enough to keep all workers
// busy, large enough to make handing over cheap.
const chunkBytes = 1 << 20

// read cuts the files into chunks and emits them in order.
func read(ctx context.Context, files []File, o *Options, emit func(*Chunk) error) error {
	var texts *Chunk
	flush := func() error {
		c := texts
		texts = nil
		if c == nil {
			return nil
		}
		return emit(c)
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.Format == Text {
			if texts != nil && (texts.Bytes+f.Size > chunkBytes || texts.Input != f.Input) {
				if err := flush(); err != nil {
					return err
				}
			}
			if texts == nil {
				texts = &Chunk{Input: f.Input, opts: o}
			}
			texts.files = append(texts.files, f)
			texts.Bytes += f.Size
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		reader := readLines
		if f.Format == Parquet {
			reader = readParquet
		}
		if err := reader(f, o, emit); err != nil {
			return err
		}
	}
	return flush()
}

// open returns the unpacked content of a file, and a count of the bytes taken
// from disk so far.
func open(f *File) (r io.ReadCloser, taken func() int64, err error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, nil, err
	}
	count := &countingReader{r: file}
	taken = func() int64 { return count.n }
	fail := func(err error) (io.ReadCloser, func() int64, error) {
		file.Close()
		return nil, nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	switch f.Compression {
	case "gz":
		z, err := gzip.NewReader(count)
		if err != nil {
			return fail(fmt.Errorf("not a gzip file: %w", err))
		}
		return &readCloser{z, file.Close}, taken, nil
	case "zst":
		// Synchronous: the count stays exact, and workers have the other cores.
		z, err := zstd.NewReader(count, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<31))
		if err != nil {
			return fail(err)
		}
		return &readCloser{z, func() error { z.Close(); return file.Close() }}, taken, nil
	}
	return &readCloser{count, file.Close}, taken, nil
}

type readCloser struct {
	io.Reader
	close func() error
}

func (r *readCloser) Close() error { return r.close() }

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// readText returns the whole content of a text file.
func readText(f *File) ([]byte, error) {
	if f.Compression == "" {
		if f.Size > maxDocument {
			return nil, fmt.Errorf("%s: %w", f.Path, errTooLong)
		}
		return os.ReadFile(f.Path)
	}
	r, _, err := open(f)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = errTooLong
	}
	if err != nil {
		return nil, unpackError(f, err)
	}
	return data, nil
}

func unpackError(f *File, err error) error {
	if f.Compression != "" && !errors.Is(err, errTooLong) {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file ends early")
		}
		return fmt.Errorf("%s: damaged %s file: %w", f.Path, f.Compression, err)
	}
	return fmt.Errorf("%s: %w", f.Path, err)
}

// readLines emits the lines of a JSONL file in chunks of whole lines.
func readLines(f File, o *Options, emit func(*Chunk) error) error {
	r, taken, err := open(&f)
	if err != nil {
		return err
	}
	defer r.Close()
	in := bufio.NewReaderSize(r, chunkBytes)
	line, given := int64(1), int64(0)
	for {
		buf := make([]byte, 0, chunkBytes+chunkBytes/4)
		var end error
		for len(buf) < chunkBytes && end == nil {
			var part []byte
			start := len(buf)
			for {
				part, end = in.ReadSlice('\n')
				buf = append(buf, part...)
				if !errors.Is(end, bufio.ErrBufferFull) {
					break
				}
				if len(buf)-start > maxDocument {
					return &BadRecord{Path: f.Path, Line: line + int64(bytes.Count(buf[:start], []byte("\n"))), Unit: "line", Err: errTooLong}
				}
			}
		}
		if end != nil && end != io.EOF {
			return unpackError(&f, end)
		}
		if len(buf) > 0 || line == 1 {
			c := &Chunk{Input: f.Input, Bytes: taken() - given, opts: o, file: f, first: line, lines: buf}
			given += c.Bytes
			line += int64(bytes.Count(buf, []byte("\n")))
			if err := emit(c); err != nil {
				return err
			}
		}
		if end != nil {
			return nil
		}
	}
}
