package prepare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"titan/data/indexed"
	"titan/data/manifest"
	"titan/data/source"
	"titan/data/tokenizer"
)

const llama3 = "../tokenizer/testdata/llama3"

func put(t testing.TB, path string, data []byte) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, data, 0o666))
}

// document i, with something of everything.
func document(rng *rand.Rand, i int) string {
	words := []string{"func", "return x", "\n\t", " the", "quick ", "é", "日本", "123", "\r\n", "<|", `"\`, "  "}
	var b strings.Builder
	fmt.Fprintf(&b, "doc %d ", i)
	for range rng.IntN(300) {
		b.WriteString(words[rng.IntN(len(words))])
	}
	return b.String()
}

// read returns the documents of a dataset as text, boundary tokens removed.
func read(t testing.TB, prefix string, tok *tokenizer.Tokenizer, m *manifest.Manifest) []string {
	d, err := indexed.Open(prefix)
	require.NoError(t, err)
	defer d.Close()
	require.Equal(t, m.Tokens, d.Tokens())
	require.Equal(t, m.Documents, d.Documents())
	var out []string
	for i := range d.Documents() {
		start, end, err := d.Document(i)
		require.NoError(t, err)
		ids := make([]int32, end-start)
		require.NoError(t, d.Read(ids, start))
		require.Equal(t, m.Before, ids[:len(m.Before)])
		require.Equal(t, m.Behind, ids[len(ids)-len(m.Behind):])
		out = append(out, tok.Decode(ids[len(m.Before):len(ids)-len(m.Behind)], false))
	}
	return out
}

// The same documents as text files, JSONL and Parquet, plain and compressed,
// come out the same and in order.
func TestFormats(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 4))
	tok, err := tokenizer.Load(llama3)
	require.NoError(t, err)
	var docs []string
	type row struct {
		ID   int64  `parquet:"id"`
		Text string `parquet:"content"`
	}
	var rows []row
	var jsonl bytes.Buffer
	// Enough for several chunks.
	for i := range 3000 {
		d := document(rng, i)
		docs = append(docs, d)
		rows = append(rows, row{int64(i), d})
		line, err := json.Marshal(map[string]any{"id": i, "content": d, "meta": map[string]any{"content": []int{1}}})
		require.NoError(t, err)
		jsonl.Write(append(line, '\n'))
		put(t, filepath.Join(dir, "txt", fmt.Sprintf("%02d", i/100), fmt.Sprintf("%05d.txt", i)), []byte(d))
	}
	require.Greater(t, jsonl.Len(), 2<<20)
	put(t, filepath.Join(dir, "a.jsonl"), jsonl.Bytes())
	var gz, zst, pq bytes.Buffer
	zw := gzip.NewWriter(&gz)
	zw.Write(jsonl.Bytes())
	require.NoError(t, zw.Close())
	put(t, filepath.Join(dir, "a.jsonl.gz"), gz.Bytes())
	zs, err := zstd.NewWriter(&zst)
	require.NoError(t, err)
	zs.Write(jsonl.Bytes())
	require.NoError(t, zs.Close())
	put(t, filepath.Join(dir, "a.jsonl.zst"), zst.Bytes())
	pw := parquet.NewGenericWriter[row](&pq, parquet.MaxRowsPerRowGroup(700), parquet.Compression(&parquet.Zstd))
	_, err = pw.Write(rows)
	require.NoError(t, err)
	require.NoError(t, pw.Close())
	put(t, filepath.Join(dir, "a.parquet"), pq.Bytes())

	var sum string
	for _, input := range []string{"a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet", "txt", "txt/**/*.txt"} {
		for _, workers := range []int{1, 3, 8} {
			out := filepath.Join(dir, "out", fmt.Sprint(strings.Trim(filepath.Base(input), "*"), workers), "d")
			var last Progress
			res, err := Run(t.Context(), Options{
				Inputs: []string{filepath.Join(dir, input)}, Source: source.Options{Field: "content"}, Tokenizer: llama3, Output: out,
				Workers: workers, Progress: func(p Progress) { last = p }, Overwrite: true,
			})
			require.NoError(t, err, input)
			m := res.Train
			require.Equal(t, last.TotalBytes, last.Bytes, input)
			require.Equal(t, m.Tokens, last.Tokens)
			require.Equal(t, last.Bytes, m.Sources[0].Bytes)
			require.EqualValues(t, map[bool]int{true: 3000, false: 1}[strings.HasPrefix(input, "txt")], m.Sources[0].Files)
			if sum == "" {
				sum = m.BinSHA256
				require.Equal(t, docs, read(t, out, tok, m))
				bos, _ := tok.ID("<|begin_of_text|>")
				eos, _ := tok.ID("<|end_of_text|>")
				require.Equal(t, []int32{bos}, m.Before)
				require.Equal(t, []int32{eos}, m.Behind)
			}
			require.Equal(t, sum, m.BinSHA256, "%s with %d workers", input, workers)
			back, err := manifest.Read(out)
			require.NoError(t, err)
			require.Equal(t, m, back)
		}
	}
}

func TestBadRecords(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.jsonl"), []byte(`{"text":"one"}
{"text":"two"

{"other":"three"}
{"text":4}
{"text":""}
[1]
{"text":"bad `+"\xff"+`"}
{"text":"five","text":"si\u0078"}
`))
	put(t, filepath.Join(dir, "b.txt"), []byte("line\nline\n\xfe\n"))
	o := Options{Inputs: []string{filepath.Join(dir, "*")}, Tokenizer: llama3, Output: filepath.Join(dir, "out", "d")}
	_, err := Run(t.Context(), o)
	require.ErrorContains(t, err, "a.jsonl:2: not JSON")
	require.ErrorContains(t, err, "skipped")
	var bad *source.BadRecord
	require.ErrorAs(t, err, &bad)
	left, _ := os.ReadDir(filepath.Join(dir, "out"))
	require.Empty(t, left, "something half-written is left")

	for text, want := range map[string]string{
		`{"other":"three"}`: `a.jsonl:1: no field "text"`, `{"text":4}`: `not a string but 4`, `[1]`: "want a JSON object",
		"{\"text\":\"x\xff\"}": "not valid UTF-8 at byte 10", `{"text":null}`: "null",
	} {
		put(t, filepath.Join(dir, "c", "a.jsonl"), []byte(text))
		o := o
		o.Inputs = []string{filepath.Join(dir, "c")}
		_, err = Run(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
	o2 := o
	o2.Inputs = []string{filepath.Join(dir, "b.txt")}
	_, err = Run(t.Context(), o2)
	require.ErrorContains(t, err, "b.txt:3: not valid UTF-8 at byte 10")

	o.SkipBad = true
	res, err := Run(t.Context(), o)
	require.NoError(t, err)
	s := res.Train.Sources[0]
	require.EqualValues(t, []int64{2, 6, 1, 2}, []int64{s.Documents, s.Skipped, s.Empty, s.Files})
	tok, err := tokenizer.Load(llama3)
	require.NoError(t, err)
	require.Equal(t, []string{"one", "six"}, read(t, o.Output, tok, res.Train))
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "exists already")
	require.Contains(t, res.String(), "6 records skipped")
}

func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(bytes.Repeat([]byte(`{"text":"some text"}`+"\n"), 1000))
	require.NoError(t, w.Close())
	type row struct{ N int64 }
	var pq bytes.Buffer
	require.NoError(t, parquet.Write(&pq, []row{{1}}))
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut.jsonl.gz":   {gz.Bytes()[:gz.Len()-20], "cut.jsonl.gz: damaged gz file: the file ends early"},
		"no.jsonl.gz":    {[]byte("text"), "no.jsonl.gz: not a gzip file"},
		"no.jsonl.zst":   {[]byte("text text"), "no.jsonl.zst: damaged zst file"},
		"cut.txt.gz":     {gz.Bytes()[:50], "cut.txt.gz: damaged gz file"},
		"no.parquet":     {[]byte("PAR1 but not really PAR1"), "no.parquet: not a Parquet file"},
		"column.parquet": {pq.Bytes(), `no column "text"; the file has N`},
		"a.parquet.gz":   {nil, "unpack the file"},
		"empty.txt":      {nil, "no document has any token"},
		"empty.jsonl":    {nil, "no document has any token"},
	} {
		put(t, filepath.Join(dir, name), c.data)
		out := filepath.Join(dir, "out", "d")
		_, err := Run(t.Context(), Options{Inputs: []string{filepath.Join(dir, name)}, Tokenizer: llama3, Output: out, SkipBad: true})
		require.ErrorContains(t, err, c.want, name)
		left, _ := os.ReadDir(filepath.Dir(out))
		require.Empty(t, left)
	}
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "in", "a.txt"), []byte("x <|end_of_text|> y"))
	put(t, filepath.Join(dir, "in", ".hidden"), []byte("z"))
	put(t, filepath.Join(dir, "in", "b.md"), []byte("w"))
	base := Options{Inputs: []string{filepath.Join(dir, "in")}, Tokenizer: llama3, Output: filepath.Join(dir, "d"), Overwrite: true}
	for want, change := range map[string]func(*Options){
		"no input":                 func(o *Options) { o.Inputs = nil },
		"no file matches":          func(o *Options) { o.Source.Include = []string{"*.py"} },
		"malformed":                func(o *Options) { o.Source.Include = []string{"["} },
		`format "csv"`:             func(o *Options) { o.Source.Format = "csv" },
		"no such file":             func(o *Options) { o.Inputs = []string{dir + "/none.txt"} },
		"none/tokenizer.json":      func(o *Options) { o.Tokenizer = dir + "/none/tokenizer.json" },
		`EOS token "<eos>"`:        func(o *Options) { o.EOS = "<eos>" },
		`BOS token "nope"`:         func(o *Options) { o.BOS = "nope" },
		"validation share":         func(o *Options) { o.Validation = 1 },
		`output ""`:                func(o *Options) { o.Output = "" },
		"_validation: no document": func(o *Options) { o.Validation = 1e-9 },
	} {
		o := base
		change(&o)
		_, err := Run(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
	tok, err := tokenizer.Load(llama3)
	require.NoError(t, err)
	eos, _ := tok.ID("<|end_of_text|>")
	count := func(o Options) (n, all int) {
		_, err := Run(t.Context(), o)
		require.NoError(t, err)
		d, err := indexed.Open(o.Output)
		require.NoError(t, err)
		defer d.Close()
		ids := make([]int32, d.Tokens())
		require.NoError(t, d.Read(ids, 0))
		for _, id := range ids {
			if id == eos {
				n++
			}
		}
		return n, len(ids)
	}
	o := base
	o.Source.Include = []string{"*.txt"}
	n, _ := count(o)
	require.Equal(t, 2, n) // the forged one and the true one
	o.PlainSpecial, o.EOS = true, None
	n, all := count(o)
	require.Equal(t, 0, n)
	o.BOS = None
	_, fewer := count(o)
	require.Equal(t, all-1, fewer)
}

// The split is a partition, near its share, the same for equal documents, and
// the same whatever the workers.
func TestValidationSplit(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	all := map[string]int{}
	for i := range 4000 {
		d := fmt.Sprintf("document %d", i%3000)
		all[d]++
		fmt.Fprintf(&b, "{\"text\":%q}\n", d)
	}
	put(t, filepath.Join(dir, "a.jsonl"), b.Bytes())
	tok, err := tokenizer.Load(llama3)
	require.NoError(t, err)
	var sums []string
	for _, workers := range []int{1, 4} {
		o := Options{Inputs: []string{filepath.Join(dir, "a.jsonl")}, Tokenizer: llama3, Output: filepath.Join(dir, fmt.Sprint("d", workers)),
			Validation: 0.1, Seed: 7, Workers: workers}
		res, err := Run(t.Context(), o)
		require.NoError(t, err)
		train, valid := read(t, o.Output, tok, res.Train), read(t, o.Output+ValidationSuffix, tok, res.Validation)
		require.InDelta(t, 400, len(valid), 100)
		side, seen := map[string]string{}, map[string]int{}
		for name, docs := range map[string][]string{"train": train, "valid": valid} {
			for _, d := range docs {
				seen[d]++
				require.True(t, side[d] == "" || side[d] == name, "%q on both sides", d)
				side[d] = name
			}
		}
		require.Equal(t, all, seen)
		sums = append(sums, res.Train.BinSHA256+res.Validation.BinSHA256)
	}
	require.Equal(t, sums[0], sums[1])
}

func TestCancel(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		put(t, filepath.Join(dir, "in", fmt.Sprint(i)), bytes.Repeat([]byte("some text "), 20000))
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Options{Inputs: []string{filepath.Join(dir, "in")}, Tokenizer: llama3, Output: filepath.Join(dir, "out", "d"),
		Progress: func(Progress) { cancel() }})
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	left, _ := os.ReadDir(filepath.Join(dir, "out"))
	require.Empty(t, left)
}
