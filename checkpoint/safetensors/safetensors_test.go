package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/dtype"
	"titan/sharding"
)

// frame puts a header and data into the form of a file.
func frame(header, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func openBytes(raw []byte) (*File, error) {
	return New("x.safetensors", bytes.NewReader(raw), int64(len(raw)))
}

// referenceBytes repeats the rule of make_reference.py.
func referenceBytes(i, n int, isBool bool) []byte {
	out := make([]byte, n)
	for k := range out {
		out[k] = byte(17*i + 31*k)
		if isBool {
			out[k] = byte((17*i + 31*k) % 2)
		}
	}
	return out
}

var referenceOrder = []string{"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
	"float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"}

// The file written by the Python package is read, and written again to the byte.
func TestReferenceFile(t *testing.T) {
	const path = "testdata/reference.safetensors"
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	require.Len(t, f.Tensors(), 16)
	shapes := [][]int{{}, {0}, {3}, {2, 3}, {2, 1, 5}}
	values := map[string][]byte{}
	for i, name := range referenceOrder {
		info, err := f.Tensor("t." + name)
		require.NoError(t, err)
		want, err := dtype.Parse(name)
		require.NoError(t, err)
		require.Equal(t, want, info.DType)
		require.Equal(t, shapes[i%5], info.Shape)
		got, err := f.Bytes("t." + name)
		require.NoError(t, err)
		require.Equal(t, referenceBytes(i, int(info.Size), name == "bool"), slices.Clone(got), name)
		values["t."+name] = got
		require.Zero(t, info.Offset%int64(info.DType.Size()), "%s is not aligned", name)
	}
	odd := `quote " slash \ <&> é`
	values[odd], err = f.Bytes(odd)
	require.NoError(t, err)
	require.Equal(t, []byte{7}, values[odd])

	entries := f.Entries()
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	Sort(entries)
	var out bytes.Buffer
	w, err := NewWriter(&out, entries, f.Metadata())
	require.NoError(t, err)
	for _, e := range entries {
		_, err := w.Write(values[e.Name])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
	size, err := FileSize(entries, f.Metadata())
	require.NoError(t, err)
	require.EqualValues(t, len(want), size)
}

func TestBadHeaders(t *testing.T) {
	const a = `"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`
	for _, c := range []struct{ name, header, data, want string }{
		{"overlap", `{` + a + `,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, "123456", `tensor "b": its bytes from 2 overlap those of "a", which end at 4`},
		{"same bytes", `{` + a + `,"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "1234", `overlap those of "a"`},
		{"hole", `{` + a + `,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, "123412341234", `tensor "b": bytes 4 to 8 before it belong to no tensor`},
		{"trailing bytes", `{` + a + `}`, "12345", "1 bytes at the end of the file belong to no tensor"},
		{"truncated data", `{` + a + `}`, "123", `tensor "a": truncated: its bytes end at 4, the file holds 3`},
		{"out of range", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[9223372036854775800,9223372036854775804]}}`, "1234", `tensor "a": data_offsets`},
		{"beyond int64", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}}`, "1234", `tensor "a": its data_offsets: 18446744073709551616 is not a whole number that fits`},
		{"negative offset", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, "1234", `tensor "a": its data_offsets: -4`},
		{"backwards", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, "1234", `data_offsets [4 0] are out of range`},
		{"one offset", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}}`, "1234", "data_offsets has 1 numbers"},
		{"wrong size", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, "1234", `span 4 bytes, but F32 of shape [2] needs 8`},
		{"shape overflow", `{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}}`, "1234", "too large"},
		{"negative shape", `{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, "1234", `tensor "a": its shape: -1`},
		{"fractional shape", `{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}`, "1234", `1.0 is not a whole number`},
		{"text in shape", `{"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}}`, "1234", `found 1 instead of a number`},
		{"dtype", `{"a":{"dtype":"Q4_0","shape":[1],"data_offsets":[0,4]}}`, "1234", `tensor "a": unknown element type "Q4_0"; known: BOOL, I8`},
		{"dtype spelling of others", `{"a":{"dtype":"float32","shape":[1],"data_offsets":[0,4]}}`, "1234", `unknown element type "float32"`},
		{"no dtype", `{"a":{"shape":[1],"data_offsets":[0,4]}}`, "1234", `tensor "a": its header has no "dtype"`},
		{"no offsets", `{"a":{"dtype":"F32","shape":[1]}}`, "1234", `has no "data_offsets"`},
		{"duplicate tensor", `{` + a + `,"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, "12345678", `tensor "a": the name stands twice`},
		{"duplicate field", `{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, "1234", `"dtype" stands twice`},
		{"duplicate metadata", `{"__metadata__":{"x":"1","x":"2"}}`, "", `metadata "x" stands twice`},
		{"metadata type", `{"__metadata__":{"x":1}}`, "", `metadata "x" is not a string`},
		{"not an object", `[1]`, "", "found [ instead of {"},
		{"not JSON", `PK\x03\x04`, "", "the header is not valid"},
		{"cut JSON", `{"a":{"dtype":"F32"`, "", "ends in the middle of its JSON"},
		{"two objects", `{}{}`, "", "something follows its closing brace"},
		{"empty header", ``, "", "ends in the middle of its JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := openBytes(frame(c.header, c.data))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "x.safetensors")
			var format *FormatError
			require.ErrorAs(t, err, &format)
		})
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"huge header":   {append(binary.LittleEndian.AppendUint64(nil, 1<<62), '{'), "claims 4611686018427387904 bytes, more than"},
		"longer header": {append(binary.LittleEndian.AppendUint64(nil, 100), '{', '}'), "truncated: the header claims 100 bytes, the file has 10"},
		"too short":     {[]byte("{}"), "2 bytes are too few"},
		"empty":         {nil, "0 bytes are too few"},
	} {
		_, err := openBytes(c.raw)
		require.ErrorContains(t, err, c.want, name)
	}
	for _, header := range []string{`{}`, ` {} `, `{"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}}`, `{"a":{"dtype":"F32","x":{"y":[]},"shape":[0],"data_offsets":[0,0]}}`} {
		_, err := openBytes(frame(header, ""))
		require.NoError(t, err, "the reference implementation accepts %s", header)
	}
}

// Whatever happens to the bytes of a file, opening it ends with an error or with
// tensors that lie inside the file and do not overlap.
func TestMutatedFiles(t *testing.T) {
	good, err := os.ReadFile("testdata/reference.safetensors")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	accepted := 0
	for range 20000 {
		raw := slices.Clone(good)
		for range 1 + rng.IntN(3) {
			i := rng.IntN(1200)
			switch rng.IntN(4) {
			case 0:
				raw[i] = byte(rng.Uint32())
			case 1:
				raw[i] = `0123456789{}[],":`[rng.IntN(17)]
			case 2:
				raw = slices.Delete(raw, i, i+rng.IntN(20))
			case 3:
				raw = slices.Insert(raw, i, raw[rng.IntN(1100):][:rng.IntN(20)]...)
			}
		}
		f, err := openBytes(raw)
		if err != nil {
			require.ErrorContains(t, err, "x.safetensors")
			continue
		}
		accepted++
		end := f.h.size
		for _, info := range f.Tensors() {
			require.Equal(t, end, info.Offset)
			require.Equal(t, info.Bytes(), info.Size)
			end += info.Size
		}
		require.EqualValues(t, len(raw), end)
	}
	require.Positive(t, accepted, "no mutation was harmless, so the mutations test too little")
}

func randomEntry(rng *rand.Rand, name string) Entry {
	e := Entry{Name: name, DType: order[rng.IntN(len(order))], Shape: []int{}}
	for range rng.IntN(5) {
		e.Shape = append(e.Shape, rng.IntN(7))
	}
	return e
}

func randomRegion(rng *rand.Rand, shape []int) sharding.Region {
	r := sharding.Whole(shape)
	for d, s := range shape {
		r.Offset[d] = rng.IntN(s + 1)
		r.Size[d] = rng.IntN(s - r.Offset[d] + 1)
	}
	return r
}

// plain hides everything but ReadAt, and counts the bytes read.
type plain struct {
	r    *os.File
	read int
}

func (p *plain) ReadAt(b []byte, off int64) (int, error) {
	p.read += len(b)
	return p.r.ReadAt(b, off)
}

// Files of random tensors, written by region with random chunks, give every
// region back, mapped or not.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	dir := t.TempDir()
	for round := range 40 {
		path := filepath.Join(dir, fmt.Sprint(round))
		var entries []Entry
		values := map[string][]byte{}
		for i := range rng.IntN(6) {
			e := randomEntry(rng, fmt.Sprintf("t%d", i))
			entries = append(entries, e)
			v := make([]byte, e.Bytes())
			for k := range v {
				v[k] = byte(rng.Uint32())
			}
			values[e.Name] = v
		}
		out, err := os.Create(path)
		require.NoError(t, err)
		w, err := NewWriter(out, entries, map[string]string{"round": fmt.Sprint(round)})
		require.NoError(t, err)
		for _, e := range entries {
			chunk := 1 + rng.IntN(100)
			require.NoError(t, w.WriteFrom(e.Name, chunk, func(r sharding.Region, dst []byte) error {
				require.LessOrEqual(t, len(dst), max(chunk, e.DType.Size()))
				return sharding.CopyRegion(dst, r, values[e.Name], sharding.Whole(e.Shape), e.DType.Size())
			}))
		}
		require.NoError(t, w.Close())
		require.NoError(t, out.Close())

		mapped, err := Open(path)
		require.NoError(t, err)
		file, err := os.Open(path)
		require.NoError(t, err)
		st, err := file.Stat()
		require.NoError(t, err)
		read, err := New(path, &plain{r: file}, st.Size())
		require.NoError(t, err)
		for _, e := range entries {
			for range 10 {
				r := randomRegion(rng, e.Shape)
				want := make([]byte, r.Elements()*e.DType.Size())
				require.NoError(t, sharding.CopyRegion(want, r, values[e.Name], sharding.Whole(e.Shape), e.DType.Size()))
				for _, f := range []*File{mapped, read} {
					got := make([]byte, len(want))
					require.NoError(t, f.ReadRegion(e.Name, r, got))
					require.Equal(t, want, got, "%v %v", e, r)
				}
			}
			whole, err := read.Bytes(e.Name)
			require.NoError(t, err)
			require.Equal(t, values[e.Name], whole)
		}
		require.NoError(t, mapped.Close())
		require.NoError(t, file.Close())
	}
}

// Reading a scattered region of a large tensor without mmap neither reads it all
// nor element by element.
func TestRegionOfLargeTensor(t *testing.T) {
	e := Entry{"w", dtype.U8, []int{3, 8, 2, 1 << 20}} // 48 MiB, rows of 1 MiB
	path := filepath.Join(t.TempDir(), "large")
	require.NoError(t, WriteFile(path, []Entry{e}, nil, func(_ string, r sharding.Region, dst []byte) error {
		for i := range dst {
			dst[i] = byte(r.Offset[1]*31 + r.Offset[2]*7 + r.Offset[0]*3 + (r.Offset[3]+i)>>16)
		}
		return nil
	}))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	st, err := file.Stat()
	require.NoError(t, err)
	p := &plain{r: file}
	f, err := New(path, p, st.Size())
	require.NoError(t, err)
	p.read = 0
	r := sharding.Region{Offset: []int{1, 2, 1, 5}, Size: []int{2, 3, 1, 1 << 16}}
	dst := make([]byte, r.Elements())
	require.NoError(t, f.ReadRegion("w", r, dst))
	require.Less(t, p.read, 13<<20)
	mapped, err := Open(path)
	require.NoError(t, err)
	defer mapped.Close()
	want := make([]byte, len(dst))
	require.NoError(t, mapped.ReadRegion("w", r, want))
	require.True(t, bytes.Equal(want, dst))
}

func TestReadErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	zero := func(string, sharding.Region, []byte) error { return nil }
	require.NoError(t, WriteFile(path, []Entry{{"model.norm.weight", dtype.BF16, []int{4, 1 << 20}}}, nil, zero))
	f, err := Open(path)
	require.NoError(t, err)
	_, err = f.Tensor("model.norm.weigth")
	require.ErrorContains(t, err, `did you mean "model.norm.weight"?`)
	region := func(o, s []int) sharding.Region { return sharding.Region{Offset: o, Size: s} }
	dst := make([]byte, 8)
	require.ErrorContains(t, f.ReadRegion("model.norm.weight", region([]int{0}, []int{4}), dst), "the ranks differ")
	require.ErrorContains(t, f.ReadRegion("model.norm.weight", region([]int{4, 0}, []int{1, 4}), dst), "reaches outside")
	require.ErrorContains(t, f.ReadRegion("model.norm.weight", region([]int{-1, 0}, []int{1, 4}), dst), "reaches outside")
	require.ErrorContains(t, f.ReadRegion("model.norm.weight", region([]int{0, 0}, []int{1, 5}), dst), "is 10 bytes, the buffer has 8")

	// The file shrinks under the mapping: an error, not the end of the process.
	require.NoError(t, os.Truncate(path, 4096))
	require.ErrorContains(t, f.ReadRegion("model.norm.weight", region([]int{3, 0}, []int{1, 4}), dst), "shortened while it was open")
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.ErrorContains(t, f.ReadRegion("model.norm.weight", region([]int{3, 0}, []int{1, 4}), dst), "the file is closed")
	_, err = f.Bytes("model.norm.weight")
	require.ErrorContains(t, err, "the file is closed")

	_, err = Open(path)
	require.ErrorContains(t, err, "truncated")
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
	_, err = Open(path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// short accepts n bytes and then, without an error, nothing more.
type short struct{ n int }

func (s *short) Write(p []byte) (int, error) {
	n := min(len(p), s.n)
	s.n -= n
	return n, nil
}

func TestWriterErrors(t *testing.T) {
	two := []Entry{{"a", dtype.F32, []int{2}}, {"b", dtype.U8, []int{3}}}
	start := func(entries []Entry) *Writer {
		w, err := NewWriter(io.Discard, entries, nil)
		require.NoError(t, err)
		return w
	}
	w := start(two)
	_, err := w.Write(make([]byte, 5))
	require.NoError(t, err)
	require.ErrorContains(t, w.Close(), `incomplete: tensor "a" has 5 of 8 bytes, and 1 tensors follow`)
	_, err = w.Write(make([]byte, 4))
	require.ErrorContains(t, err, `tensor "a" (f32[2]) needs 8 bytes, was given at least 9`)
	require.Error(t, w.Close(), "an error stays")

	w = start(two)
	fill := func(sharding.Region, []byte) error { return nil }
	require.ErrorContains(t, w.WriteFrom("c", 8, fill), `no tensor "c"`)
	require.ErrorContains(t, w.WriteFrom("b", 8, fill), `tensor "b" is written out of turn; "a" stands at byte 0 of 8`)
	w = start(two)
	require.ErrorContains(t, w.WriteFrom("a", 4, func(sharding.Region, []byte) error { return errors.New("device lost") }), `region [0:1] of tensor "a": device lost`)
	require.ErrorContains(t, w.Close(), "device lost")
	w = start(two)
	require.NoError(t, w.WriteFrom("a", 8, fill))
	require.NoError(t, w.WriteFrom("b", 8, fill))
	require.NoError(t, w.Close())
	_, err = w.Write([]byte{1})
	require.ErrorContains(t, err, "more than the tensors of the header need")

	for _, c := range []struct {
		entries []Entry
		want    string
	}{
		{[]Entry{{"a", dtype.F32, nil}, {"a", dtype.F32, nil}}, `two tensors are named "a"`},
		{[]Entry{{"", dtype.F32, nil}}, "cannot be the name"},
		{[]Entry{{"__metadata__", dtype.F32, nil}}, "cannot be the name"},
		{[]Entry{{"\xff", dtype.F32, nil}}, "cannot be the name"},
		{[]Entry{{"a", dtype.Invalid, nil}}, "no valid element type"},
		{[]Entry{{"a", dtype.F32, []int{-1}}}, "negative or too large"},
		{[]Entry{{"a", dtype.F32, []int{1 << 40, 1 << 40}}}, "negative or too large"},
	} {
		_, err := NewWriter(io.Discard, c.entries, nil)
		require.ErrorContains(t, err, c.want)
	}
	for n := range 100 { // wherever the writer below stops, somebody notices
		w, err := NewWriter(&short{n}, two[:1], nil)
		if err == nil {
			err = w.WriteFrom("a", 8, fill)
		}
		if size, _ := FileSize(two[:1], nil); int64(n) < size {
			require.ErrorIs(t, err, io.ErrShortWrite)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestWriteFileLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.safetensors")
	entries := []Entry{{"a", dtype.F32, []int{2}}}
	err := WriteFile(path, entries, nil, func(string, sharding.Region, []byte) error { return errors.New("no") })
	require.ErrorContains(t, err, path)
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestOpenModel(t *testing.T) {
	zero := func(string, sharding.Region, []byte) error { return nil }
	entry := func(name string) Entry { return Entry{name, dtype.F32, []int{2}} }
	write := func(dir, name string, tensors ...string) {
		var entries []Entry
		for _, n := range tensors {
			entries = append(entries, entry(n))
		}
		require.NoError(t, WriteFile(filepath.Join(dir, name), entries, nil, zero))
	}
	index := func(dir, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, IndexName), []byte(text), 0o644))
	}
	dir := t.TempDir()
	write(dir, ShardName(0, 2), "a", "stray")
	write(dir, ShardName(1, 2), "b")
	_, err := OpenModel(dir)
	require.ErrorContains(t, err, "no "+IndexName)
	index(dir, `{"metadata":{"total_size":16},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`)
	s, err := OpenModel(dir)
	require.NoError(t, err)
	require.Equal(t, []Entry{entry("a"), entry("b")}, s.Entries())
	require.Equal(t, []string{"stray in model-00001-of-00002.safetensors"}, s.Unlisted())
	require.Len(t, s.Files(), 2)
	_, err = s.Tensor("stray")
	require.ErrorContains(t, err, "no tensor")
	require.NoError(t, s.ReadRegion("b", sharding.Whole([]int{2}), make([]byte, 8)))
	raw, err := s.Bytes("a")
	require.NoError(t, err)
	require.Len(t, raw, 8)
	require.NoError(t, s.Close())
	s, err = OpenModel(filepath.Join(dir, ShardName(1, 2)))
	require.NoError(t, err)
	require.Len(t, s.Entries(), 1)
	require.NoError(t, s.Close())

	for text, want := range map[string]string{
		`{"weight_map":{"a":"model-00002-of-00002.safetensors"}}`:                                        `tensor "a": the index places it in model-00002-of-00002.safetensors, which does not have it`,
		`{"weight_map":{"a":"gone.safetensors"}}`:                                                        "gone.safetensors is missing; it holds a",
		`{"weight_map":{"a":"../a.safetensors"}}`:                                                        `"../a.safetensors" is not the name of a file beside the index`,
		`{"weight_map":{"a":"model-00001-of-00002.safetensors","a":"model-00001-of-00002.safetensors"}}`: "listed twice",
		`{"weight_map":{"a":1}}`:                                                                         "not a string",
		`{"metadata":{}}`:                                                                                `no "weight_map"`,
		`{"weight_map":{"a":`:                                                                            "ends in the middle",
	} {
		index(dir, text)
		_, err := OpenModel(dir)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, IndexName)
	}

	empty := t.TempDir()
	_, err = OpenModel(empty)
	require.ErrorContains(t, err, "has neither")
	require.NoError(t, os.WriteFile(filepath.Join(empty, "pytorch_model.bin"), nil, 0o644))
	_, err = OpenModel(empty)
	require.ErrorContains(t, err, "convert them")
	write(empty, "adapter.safetensors", "x")
	s, err = OpenModel(empty)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(s.Path(), "adapter.safetensors"))
	require.NoError(t, s.Close())
}
