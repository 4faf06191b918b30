package source

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// readParquet emits the values of one column in chunks of rows.
func readParquet(f File, o *Options, emit func(*Chunk) error) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	err = guard(func() error { return parquetColumn(file, f, o, emit) })
	var bad *BadRecord
	if err == nil || errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("%s: %w", f.Path, err)
}

func parquetColumn(file *os.File, f File, o *Options, emit func(*Chunk) error) error {
	pf, err := parquet.OpenFile(file, f.Size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return fmt.Errorf("not a Parquet file, or a damaged one: %w", err)
	}
	name := o.field()
	leaf, ok := pf.Schema().Lookup(name)
	if !ok {
		leaf, ok = pf.Schema().Lookup(strings.Split(name, ".")...)
	}
	if !ok {
		var names []string
		for _, path := range pf.Schema().Columns() {
			names = append(names, strings.Join(path, "."))
		}
		return fmt.Errorf("no column %q; the file has %s", name, strings.Join(names, ", "))
	}
	if k := leaf.Node.Type().Kind(); leaf.MaxRepetitionLevel > 0 || k != parquet.ByteArray && k != parquet.FixedLenByteArray {
		return fmt.Errorf("column %q holds %s, not one string a row", name, leaf.Node.Type())
	}
	col := columnReader{f: f, o: o, emit: emit, row: 1, total: max(pf.NumRows(), 1)}
	for _, g := range pf.RowGroups() {
		if err := col.readGroup(g.ColumnChunks()[leaf.ColumnIndex]); err != nil {
			return err
		}
	}
	return col.flush()
}

// columnReader gathers values into chunks.
type columnReader struct {
	f     File
	o     *Options
	emit  func(*Chunk) error
	rows  [][]byte
	size  int   // bytes in rows
	row   int64 // number of the first row in rows
	total int64 // rows of the file
	given int64 // bytes of the file accounted for
}

func (c *columnReader) readGroup(chunk parquet.ColumnChunk) error {
	pages := chunk.Pages()
	defer pages.Close()
	var values [256]parquet.Value
	for {
		page, err := pages.ReadPage()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		r := page.Values()
		for {
			n, err := r.ReadValues(values[:])
			for _, v := range values[:n] {
				if err := c.add(v); err != nil {
					return err
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
		parquet.Release(page)
	}
}

func (c *columnReader) add(v parquet.Value) error {
	var text []byte
	if !v.IsNull() {
		// The value belongs to the page.
		text = append([]byte{}, v.ByteArray()...)
	}
	if len(text) > maxDocument {
		return &BadRecord{Path: c.f.Path, Line: c.row + int64(len(c.rows)), Unit: "row", Err: errTooLong}
	}
	c.rows = append(c.rows, text)
	c.size += len(text)
	if c.size >= chunkBytes {
		return c.flush()
	}
	return nil
}

func (c *columnReader) flush() error {
	if len(c.rows) == 0 && c.row > 1 {
		return nil
	}
	next := c.row + int64(len(c.rows))
	// Progress in bytes of the file goes by rows.
	share := int64(float64(c.f.Size) * float64(next-1) / float64(c.total))
	chunk := &Chunk{Input: c.f.Input, Bytes: share - c.given, opts: c.o, file: c.f, first: c.row, rows: c.rows}
	c.given, c.row, c.rows, c.size = share, next, nil, 0
	return c.emit(chunk)
}
