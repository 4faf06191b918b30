package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/compare"
	"titan/internal/resulttest"
)

var (
	figureTag  = regexp.MustCompile(`data-figure="([^"]*)" data-result="(\d+)" data-value="([^"]*)"`)
	dataScript = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)
	outward    = regexp.MustCompile(`(?i)(src|href|action)="(?:https?:)?//|url\(|@import`)
)

// The page has the figures of its JSON, asks for nothing from outside, and takes
// what results are called for text.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	evil := resulttest.Run(t, filepath.Join(dir, "<script>alert(1)</script>"), resulttest.RunOptions{Resumed: true})
	other := resulttest.Run(t, filepath.Join(dir, "b"), resulttest.RunOptions{Factor: 2, Recipe: "[job2]\nx = \"</script><img src=x>\"\n"})
	page := pageOf(t, evil, other, resulttest.Sweep(t, filepath.Join(dir, "weak")))
	text, err := page.HTML()
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(text), "<script"), "the page's own: data and code")
	require.False(t, bytes.Contains(text, []byte("<img")))
	require.False(t, outward.Match(text), "%s", outward.Find(text))
	var data compare.Comparison
	require.NoError(t, json.Unmarshal(dataScript.FindSubmatch(text)[1], &data))
	require.Len(t, data.Results, 7)
	shown := map[string]bool{}
	for _, m := range figureTag.FindAllStringSubmatch(string(text), -1) {
		shown[html.UnescapeString(strings.Join(m[1:], " "))] = true
	}
	n := 0
	for _, r := range data.Rows {
		for i, cell := range r.Cells {
			if cell.Value != nil {
				n++
				require.True(t, shown[fmt.Sprintf("%s %d %v", r.Key, i, *cell.Value)], "%s of %d", r.Key, i)
			}
		}
	}
	require.Greater(t, n, 30)
	require.Len(t, shown, n, "and nothing else")
	names := map[string]bool{}
	for _, c := range page.Charts() {
		require.False(t, names[c.Name], "%s is there twice", c.Name)
		names[c.Name] = true
	}
	for _, name := range []string{"curves-loss-by-tokens", "curves-loss-by-time", "curves-a-loss", "curves-a-gradient-norm", "curves-a-mfu", "curves-a-step-times", "goodput-a-wall-time", "scaling-chips-efficiency", "steps-step-times"} {
		require.True(t, names[name], name)
	}
}

func TestPlanAndSweepPages(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.json")
	resulttest.WriteJSON(t, file, resulttest.Plan())
	for _, x := range []struct {
		path   string
		charts []string
		says   []string
	}{
		{file, []string{"step-parts", "step-collectives", "step-timeline", "memory-device"}, []string{"fits: 20.00 GiB of 31.00 GiB a device", "loop of 32 turns, 1.60 s", "layers.w_up", "v6e:2x4",
			"weighed were 84 combinations", "full, offload layer_in", "33.00 GiB, does not fit"}},
		{resulttest.Sweep(t, filepath.Join(dir, "weak")), []string{"scaling-chips-speed", "scaling-chips-total", "scaling-chips-efficiency", "scaling-chips-mfu-causal", "scaling-chips-mfu-torchtitan", "points-breakdown", "points-memory"},
			[]string{"weak scaling: the work of a device stays the same", "128: the step does not fit", "98.3%"}},
		{"qwen3_235b_v7x", []string{"scaling-chips-speed", "scaling-chips-total", "scaling-chips-efficiency", "scaling-chips-mfu-causal"}, []string{"a device is a TensorCore", "94.1%"}},
	} {
		page := pageOf(t, x.path)
		var names []string
		for _, c := range page.Charts() {
			names = append(names, c.Name)
		}
		require.Equal(t, x.charts, names)
		text, err := page.HTML()
		require.NoError(t, err)
		for _, s := range x.says {
			require.True(t, strings.Contains(html.UnescapeString(string(text)), s), s)
		}
	}
}

func TestDrawings(t *testing.T) {
	page := pageOf(t, resulttest.Run(t, filepath.Join(t.TempDir(), "a"), resulttest.RunOptions{Steps: 12}))
	svg, err := page.Drawings("svg")
	require.NoError(t, err)
	pngs, err := page.Drawings("png")
	require.NoError(t, err)
	require.Len(t, svg, len(page.Charts()))
	for name, text := range svg {
		require.True(t, bytes.HasPrefix(text, []byte("<svg xmlns=")), name)
		picture, err := png.Decode(bytes.NewReader(pngs[strings.TrimSuffix(name, ".svg")+".png"]))
		require.NoError(t, err)
		require.Equal(t, 1440, picture.Bounds().Dx())
	}
}

// Whatever the bytes of a run's folder are, there is a page, with a warning for
// what is missing.
func TestPagesOfDamagedFolders(t *testing.T) {
	dir := resulttest.Run(t, filepath.Join(t.TempDir(), "run"), resulttest.RunOptions{Resumed: true, Steps: 30})
	random := rand.New(rand.NewPCG(5, 6))
	for _, name := range []string{"run.json", "metrics.jsonl", "recipe.toml"} {
		file := filepath.Join(dir, name)
		whole, err := os.ReadFile(file)
		require.NoError(t, err)
		for i := range 16 {
			damaged := slices.Clone(whole)
			if n := random.IntN(len(whole)); i%2 == 0 {
				damaged = damaged[:n]
			} else {
				copy(damaged[n:], "9e999")
			}
			require.NoError(t, os.WriteFile(file, damaged, 0o600))
			in, warnings, err := compare.Load(dir)
			require.NoError(t, err)
			page, err := New([]*compare.Input{in}, Options{Warnings: warnings, Now: resulttest.Start})
			require.NoError(t, err)
			text, err := page.HTML()
			require.NoError(t, err, "%s %d", name, i)
			require.False(t, bytes.Contains(text, []byte("NaN")))
			for _, w := range warnings {
				require.True(t, strings.Contains(html.UnescapeString(string(text)), w), w)
			}
		}
		require.NoError(t, os.WriteFile(file, whole, 0o600))
	}
}

// A served page is made again when, and only when, its files have changed.
func TestServer(t *testing.T) {
	dir := resulttest.Run(t, filepath.Join(t.TempDir(), "run"), resulttest.RunOptions{Steps: 12})
	built := 0
	s := &Server{Paths: []string{dir}, Build: func() (*Page, error) {
		built++
		return pageOf(t, dir), nil
	}}
	get := func() (string, string) {
		w := httptest.NewRecorder()
		s.page(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusOK, w.Code)
		body, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		v := httptest.NewRecorder()
		s.tell(v, httptest.NewRequest(http.MethodGet, "/version", nil))
		return string(body), v.Body.String()
	}
	first, version := get()
	require.True(t, strings.Contains(first, `data-version="`+version+`"`))
	again, _ := get()
	require.True(t, first == again)
	require.Equal(t, 1, built)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "checkpoint", "step-1"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint", "step-1", "shard.safetensors"), []byte("x"), 0o600))
	get()
	require.Equal(t, 1, built, "checkpoints are no part of a report")
	f, err := os.OpenFile(filepath.Join(dir, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("{}\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, changed := get()
	require.NotEqual(t, version, changed)
	require.Equal(t, 2, built)
}
