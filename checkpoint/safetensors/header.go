package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"titan/dtype"
)

const (
	prefixSize    = 8           // the length of the header, little-endian
	maxHeaderSize = 100_000_000 // what the reference implementation accepts
	metadataKey   = "__metadata__"
)

// header is a checked header.
type header struct {
	tensors  []Info // by offset
	metadata map[string]string
	size     int64 // of the prefix and the header: where the data starts
}

// readHeader reads and checks the header of a file of fileSize bytes.
func readHeader(name string, r io.ReaderAt, fileSize int64) (*header, error) {
	bad := func(format string, args ...any) error {
		return &FormatError{File: name, Reason: fmt.Sprintf(format, args...)}
	}
	if fileSize < prefixSize {
		return nil, bad("%d bytes are too few for a safetensors file; it is truncated or something else", fileSize)
	}
	var prefix [prefixSize]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("safetensors: %s: reading the header: %w", name, err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	switch {
	case n > maxHeaderSize:
		return nil, bad("the header claims %d bytes, more than the %d allowed; this is not a safetensors file, or it is damaged", n, maxHeaderSize)
	case int64(n) > fileSize-prefixSize:
		return nil, bad("truncated: the header claims %d bytes, the file has %d", n, fileSize)
	}
	raw := make([]byte, n)
	if _, err := r.ReadAt(raw, prefixSize); err != nil && !(errors.Is(err, io.EOF) && int64(n) == fileSize-prefixSize) {
		return nil, fmt.Errorf("safetensors: %s: reading the header: %w", name, err)
	}
	h, err := parseHeader(name, raw)
	if err != nil {
		return nil, err
	}
	return h, h.place(name, fileSize)
}

// place checks that the tensors fill the file exactly, and makes their offsets
// count from its start.
func (h *header) place(file string, fileSize int64) error {
	slices.SortStableFunc(h.tensors, func(a, b Info) int {
		if a.Offset != b.Offset {
			return cmpInt64(a.Offset, b.Offset)
		}
		return cmpInt64(a.Size, b.Size) // empty tensors stand before their neighbour
	})
	data := fileSize - h.size
	var end int64
	last := ""
	for i := range h.tensors {
		t := &h.tensors[i]
		switch {
		case t.Offset < end:
			return &FormatError{file, t.Name, fmt.Sprintf("its bytes from %d overlap those of %q, which end at %d", t.Offset, last, end)}
		case t.Offset > end:
			return &FormatError{file, t.Name, fmt.Sprintf("bytes %d to %d before it belong to no tensor", end, t.Offset)}
		case t.Size > data-t.Offset:
			return &FormatError{file, t.Name, fmt.Sprintf("truncated: its bytes end at %d, the file holds %d bytes of data", t.Offset+t.Size, data)}
		}
		end = t.Offset + t.Size
		t.Offset += h.size
		last = t.Name
	}
	if end != data {
		return &FormatError{File: file, Reason: fmt.Sprintf("%d bytes at the end of the file belong to no tensor", data-end)}
	}
	return nil
}

func cmpInt64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// parseHeader decodes the JSON. It walks the tokens itself because duplicate
// keys must be seen. Offsets in the result still count from the data.
func parseHeader(file string, raw []byte) (*header, error) {
	bad := func(err error) error {
		return &FormatError{File: file, Reason: "the header is not valid: " + describeJSON(err)}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	h := &header{size: prefixSize + int64(len(raw))}
	seen := map[string]bool{}
	err := object(dec, func(key string) error {
		if seen[key] {
			return &FormatError{file, key, "the name stands twice in the header"}
		}
		seen[key] = true
		if key == metadataKey {
			h.metadata = map[string]string{}
			return object(dec, func(k string) error {
				v, err := dec.Token()
				if err != nil {
					return err
				}
				s, ok := v.(string)
				if !ok {
					return fmt.Errorf("metadata %q is not a string", k)
				}
				if _, ok := h.metadata[k]; ok {
					return fmt.Errorf("metadata %q stands twice", k)
				}
				h.metadata[k] = s
				return nil
			})
		}
		t, err := parseTensor(file, key, dec)
		h.tensors = append(h.tensors, t)
		return err
	})
	var format *FormatError
	switch {
	case errors.As(err, &format):
		return nil, err
	case err != nil:
		return nil, bad(err)
	}
	if rest := bytes.TrimRight(raw[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, bad(errors.New("something follows its closing brace"))
	}
	return h, nil
}

func parseTensor(file, name string, dec *json.Decoder) (Info, error) {
	t := Info{Entry: Entry{Name: name}}
	bad := func(format string, args ...any) error {
		return &FormatError{file, name, fmt.Sprintf(format, args...)}
	}
	var offsets []int
	seen := map[string]bool{}
	err := object(dec, func(key string) error {
		if seen[key] {
			return bad("%q stands twice in its header", key)
		}
		seen[key] = true
		switch key {
		case "dtype":
			v, err := dec.Token()
			if err != nil {
				return err
			}
			s, ok := v.(string)
			if !ok {
				return bad("its dtype is not a string")
			}
			if t.DType, ok = parseDType(s); !ok {
				return bad("unknown element type %q; known: %s", s, knownDTypes())
			}
			return nil
		case "shape":
			var err error
			if t.Shape, err = numbers(dec); err != nil {
				return bad("its shape: %s", describeJSON(err))
			}
			return nil
		case "data_offsets":
			var err error
			if offsets, err = numbers(dec); err != nil {
				return bad("its data_offsets: %s", describeJSON(err))
			}
			return nil
		}
		var skip json.RawMessage // as the reference implementation does
		return dec.Decode(&skip)
	})
	if err != nil {
		return t, err
	}
	for _, key := range []string{"dtype", "shape", "data_offsets"} {
		if !seen[key] {
			return t, bad("its header has no %q", key)
		}
	}
	size, ok := byteSize(t.DType, t.Shape)
	switch {
	case !ok:
		return t, bad("shape %v is too large", t.Shape)
	case len(offsets) != 2:
		return t, bad("data_offsets has %d numbers; it must have two", len(offsets))
	case offsets[0] > offsets[1] || offsets[1] > maxBytes:
		return t, bad("data_offsets %v are out of range", offsets)
	case int64(offsets[1]-offsets[0]) != size:
		return t, bad("data_offsets %v span %d bytes, but %s of shape %v needs %d", offsets, offsets[1]-offsets[0], t.DType.Safetensors(), t.Shape, size)
	}
	t.Offset, t.Size = int64(offsets[0]), size
	return t, nil
}

// parseDType knows only the spellings of the format, unlike dtype.Parse.
func parseDType(s string) (dtype.DType, bool) {
	for d := dtype.Bool; d.Valid(); d++ {
		if d.Safetensors() == s {
			return d, true
		}
	}
	return dtype.Invalid, false
}

func knownDTypes() string {
	var names []string
	for d := dtype.Bool; d.Valid(); d++ {
		names = append(names, d.Safetensors())
	}
	return strings.Join(names, ", ")
}

// object calls f for each key of the JSON object that follows; f consumes the
// value.
func object(dec *json.Decoder, f func(key string) error) error {
	if err := delim(dec, '{'); err != nil {
		return err
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("found %v instead of a name", t)
		}
		if err := f(key); err != nil {
			return err
		}
	}
	return delim(dec, '}')
}

// numbers returns the JSON list of numbers from 0 that follows.
func numbers(dec *json.Decoder) ([]int, error) {
	if err := delim(dec, '['); err != nil {
		return nil, err
	}
	out := []int{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, fmt.Errorf("found %v instead of a number", t)
		}
		i, err := strconv.ParseUint(n.String(), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole number that fits", n)
		}
		out = append(out, int(i))
	}
	return out, delim(dec, ']')
}

func delim(dec *json.Decoder, want json.Delim) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("found %v instead of %v at byte %d", t, want, dec.InputOffset())
	}
	return nil
}

func describeJSON(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends in the middle of its JSON"
	}
	return err.Error()
}

// encodeHeader returns the prefix and header of a file, padded so that the data
// starts at a multiple of eight, and the entries with their places.
func encodeHeader(entries []Entry, metadata map[string]string) ([]byte, []Info, error) {
	var b bytes.Buffer
	b.Write(make([]byte, prefixSize))
	b.WriteByte('{')
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if len(metadata) > 0 {
		b.WriteString(`"` + metadataKey + `":`)
		if err := enc.Encode(metadata); err != nil { // sorts its keys
			return nil, nil, err
		}
		b.Truncate(b.Len() - 1)
	}
	infos := make([]Info, len(entries))
	seen := make(map[string]bool, len(entries))
	var offset int64
	for i, e := range entries {
		size, ok := byteSize(e.DType, e.Shape)
		switch {
		case !e.DType.Valid():
			return nil, nil, fmt.Errorf("tensor %q has no valid element type", e.Name)
		case !ok || size > maxBytes-offset:
			return nil, nil, fmt.Errorf("tensor %q: shape %v is negative or too large", e.Name, e.Shape)
		case e.Name == "" || e.Name == metadataKey || !utf8.ValidString(e.Name):
			return nil, nil, fmt.Errorf("%q cannot be the name of a tensor", e.Name)
		case seen[e.Name]:
			return nil, nil, fmt.Errorf("two tensors are named %q", e.Name)
		}
		seen[e.Name] = true
		if b.Len() > prefixSize+1 {
			b.WriteByte(',')
		}
		if err := enc.Encode(e.Name); err != nil {
			return nil, nil, err
		}
		b.Truncate(b.Len() - 1)
		fmt.Fprintf(&b, `:{"dtype":"%s","shape":[`, e.DType.Safetensors())
		for d, s := range e.Shape {
			if d > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(s))
		}
		fmt.Fprintf(&b, `],"data_offsets":[%d,%d]}`, offset, offset+size)
		infos[i] = Info{Entry: Entry{e.Name, e.DType, slices.Clone(e.Shape)}, Offset: offset, Size: size}
		offset += size
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len()-prefixSize > maxHeaderSize {
		return nil, nil, fmt.Errorf("the header of %d tensors is %d bytes, more than the %d a reader accepts; write more files", len(entries), b.Len()-prefixSize, maxHeaderSize)
	}
	raw := b.Bytes()
	binary.LittleEndian.PutUint64(raw, uint64(len(raw)-prefixSize))
	for i := range infos {
		infos[i].Offset += int64(len(raw))
	}
	return raw, infos, nil
}
