package sweep

import (
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// text is what a writer wrote.
func text(t *testing.T, write func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, write(&b))
	return b.String()
}

func TestWrite(t *testing.T) {
	spec := onChips(32, 64, 100, 256, 2048)
	spec.MaxCompileChips = 256
	s := execute(t, t.TempDir(), spec, fakeOptions(""))
	published, err := Reference("qwen3_235b_v7x")
	require.NoError(t, err)

	table := text(t, func(b *strings.Builder) error { return s.WriteTable(b, published) })
	for _, want := range []string{
		`(?m)^qwen3_moe 235B-A22B, sequences of 4,096 tokens, bfloat16, on tpu7x, weak scaling, planned$`,
		`(?m)^32 +tpu7x:2x4x4 .* 100.0 of 90.0 GiB +does not fit$`,
		`(?m)^64 +tpu7x:4x4x4 +128 +dp_replicate=1 dp_shard=128 +2,048 +10.00 s +838,861 +6,554 +13,107 +65.5% +72.8% +100.0% +0 s \(0.0%\) +80.0 of 90.0 GiB +planned$`,
		`(?m)^64 of 100 .* impossible$`, `(?m)^256 .* 98.0% +200.0 ms \(2.0%\) .* planned$`,
		`(?m)^2048 +tpu7x:8x8x16\*2 .* extrapolated$`,
		`(?m)^8192 +tpu7x +16384 +262,144 +31.20 s +34,471,936 +2,104 +4,208 +27.1% +94.1% +published$`,
		`(?m)^note  chips-100: 100 chips cannot be had`, `(?m)^note  tpu7x-8x8x16-by-2: extrapolated: computation is`,
		`(?m)^note  tpu7x-2x4x4: does not fit: arguments`, `(?m)^note  weak scaling:`, `(?m)^note  published: Qwen3-235B-A22B`,
	} {
		require.Regexp(t, want, table)
	}
	require.NotContains(t, table, "NOT COMPARABLE")

	markdown := text(t, func(b *strings.Builder) error { return s.WriteMarkdown(b, published) })
	var widths []int
	for line := range strings.SplitSeq(markdown, "\n") {
		if strings.HasPrefix(line, "|") {
			widths = append(widths, strings.Count(line, "|"))
		}
	}
	require.Len(t, widths, 1+1+len(s.Points)+len(published.Points))
	for _, w := range widths {
		require.Equal(t, widths[0], w)
	}

	records, err := csv.NewReader(strings.NewReader(text(t, func(b *strings.Builder) error { return s.WriteCSV(b, published) }))).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1+len(s.Points)+len(published.Points))
	column := func(row int, name string) string {
		for i, h := range records[0] {
			if h == name {
				return records[row][i]
			}
		}
		t.Fatal(name)
		return ""
	}
	for i, p := range s.Points {
		require.Equal(t, p.ID, column(i+1, "id"))
		if p.StepSeconds > 0 {
			got, err := strconv.ParseFloat(column(i+1, "step_seconds"), 64)
			require.NoError(t, err)
			require.Equal(t, p.StepSeconds, got)
		} else {
			require.Empty(t, column(i+1, "step_seconds"))
		}
	}
	require.Equal(t, "0", column(2, "exposed_communication_seconds"))
	require.Equal(t, "published", column(7, "source"))
	require.Equal(t, "27.1", column(7, "mfu_percent_causal"))
}

// What is of something else is marked, in each respect.
func TestUnlike(t *testing.T) {
	published, err := Reference("qwen3_235b_v7x")
	require.NoError(t, err)
	s := points(t, Spec{Recipe: "llama3_8b", Source: Plan, Mode: Strong, Topologies: []string{"v6e:2x4"}})
	require.Len(t, s.unlike(published), 4) // model, chips, length, mode
	same := points(t, onChips(1024))
	require.Empty(t, same.unlike(published))
	same.Precision = "float8"
	require.Equal(t, []string{`NOT COMPARABLE: the precision: "float8" here, "bfloat16" there`}, same.unlike(published))
}

// Runs on virtual devices say what can be expected of them.
func TestWriteRuns(t *testing.T) {
	spec := onDevices(1, 2)
	spec.Vary = []Vary{{"training.local_batch_size", []string{"1", "2"}}}
	table := text(t, func(b *strings.Builder) error {
		return execute(t, t.TempDir(), spec, fakeOptions("")).WriteTable(b)
	})
	require.Regexp(t, `(?m)^LOCAL_BATCH_SIZE +DEVICES +MESH +SEQUENCES +STEP +TOKENS/S +A DEVICE +MFU CAUSAL +MFU FULL +EFFICIENCY`, table)
	require.Regexp(t, `(?m)^2 +2 +dp_replicate=1 dp_shard=2 +4 +1.10 s +931 +465 .* 90.9% +measured$`, table)
	require.Contains(t, table, "virtual devices share the cores")
	require.NotContains(t, table, "CHIPS")
}
