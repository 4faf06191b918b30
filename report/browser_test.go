package report

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/compare"
	"titan/internal/resulttest"
)

var screenshots = flag.String("screenshots", "", "write screenshots of the test's pages to this folder")

// phone is the narrowest screen that the page is made for.
const phone = 360

// The pages work in a real browser: nothing fails, nothing is asked of a network,
// what is shown is what the JSON says, themes change, a phone needs no sideways
// scrolling, and a served page follows its run.
func TestPagesInABrowser(t *testing.T) {
	findBrowser(t)
	b := openBrowser(t)
	dir := t.TempDir()
	run := resulttest.Run(t, filepath.Join(dir, "baseline"), resulttest.RunOptions{Resumed: true})
	other := resulttest.Run(t, filepath.Join(dir, "longer_sequences"), resulttest.RunOptions{SeqLen: 8192, Factor: 1.2, Loss: 0.2})
	faster := resulttest.Run(t, filepath.Join(dir, "faster"), resulttest.RunOptions{Factor: 1.3})
	plan := filepath.Join(dir, "plan.json")
	resulttest.WriteJSON(t, plan, resulttest.Plan())
	sweep := resulttest.Sweep(t, filepath.Join(dir, "weak"))
	for _, x := range []struct {
		name   string
		inputs []string
	}{{"run", []string{run}}, {"comparison", []string{run, faster, other, plan}}, {"plan", []string{plan}}, {"sweep", []string{sweep}}, {"scaling", []string{sweep, "llama3_8b_v6e"}}} {
		t.Run(x.name, func(t *testing.T) {
			b.t = t
			page := pageOf(t, x.inputs...)
			file := filepath.Join(dir, x.name+".html")
			html, err := page.HTML()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, html, 0o600))
			b.desktop()
			b.visit("file://" + file)
			require.Empty(t, b.complaints("file://"+file))
			b.checkFigures(page.Comparison)
			b.checkThemes()
			b.checkCharts(page)
			b.shoot(x.name + "-light")
			b.checkPhone()
			b.shoot(x.name + "-phone")
			require.Empty(t, b.complaints("file://"+file))
		})
	}
	t.Run("served", func(t *testing.T) {
		b.t = t
		b.desktop()
		b.follow(run)
	})
}

func pageOf(t *testing.T, paths ...string) *Page {
	t.Helper()
	var inputs []*compare.Input
	for _, p := range paths {
		in, _, err := compare.Load(p)
		require.NoError(t, err)
		inputs = append(inputs, in)
	}
	page, err := New(inputs, Options{Titan: "v0.1.0", Now: resulttest.Start})
	require.NoError(t, err)
	return page
}

func (b *browser) desktop() {
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false})
	b.scheme("light")
}

func (b *browser) scheme(name string) {
	b.do("Emulation.setEmulatedMedia", map[string]any{"media": "", "features": []map[string]any{{"name": "prefers-color-scheme", "value": name}}})
}

// checkFigures compares what is shown with the page's JSON and with the comparison.
func (b *browser) checkFigures(c *compare.Comparison) {
	t := b.t
	var shown []struct {
		Figure, Result, Value, Text string
		Visible                     bool
	}
	b.eval(`[...document.querySelectorAll("[data-figure]")].map(e => ({Figure: e.dataset.figure, Result: e.dataset.result, Value: e.dataset.value,
		Text: e.firstChild.textContent, Visible: e.checkVisibility()}))`, &shown)
	var data compare.Comparison
	b.eval(`JSON.parse(document.getElementById("data").textContent)`, &data)
	require.Len(t, data.Rows, len(c.Rows))
	known := 0
	for i, row := range data.Rows {
		for k, cell := range row.Cells {
			require.Equal(t, c.Rows[i].Cells[k].Value, cell.Value)
			if cell.Value == nil {
				continue
			}
			known++
			found := false
			for _, s := range shown {
				if s.Figure == row.Key && s.Result == strconv.Itoa(k) {
					found = true
					require.Equal(t, strconv.FormatFloat(*cell.Value, 'g', -1, 64), s.Value)
					require.Equal(t, cell.Text, s.Text)
					require.True(t, s.Visible, s.Figure)
				}
			}
			require.True(t, found, "%s of result %d is not shown", row.Key, k)
		}
	}
	require.Positive(t, known)
}

// colours are the page's ground and ink, the ink of text in charts, and of a curve.
func (b *browser) colours() []string {
	var out []string
	b.eval(`(() => { const of = (q, p) => { const e = document.querySelector(q); return e ? getComputedStyle(e)[p] : "none"; };
		return [of("body", "backgroundColor"), of("body", "color"), of("svg text", "fill"), of("svg .k0", "fill") + of("svg .s.k0", "stroke")]; })()`, &out)
	return out
}

func (b *browser) checkThemes() {
	t := b.t
	light := b.colours()
	b.scheme("dark") // the system's choice counts as long as the button was not used
	dark := b.colours()
	for i := range light {
		require.NotEqual(t, light[i], dark[i])
	}
	b.shoot(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:] + "-dark")
	b.eval(`document.getElementById("theme").click()`, new(any))
	require.Equal(t, light, b.colours())
	b.scheme("light")
	require.Equal(t, light, b.colours(), "the button's choice counts from then on")
	b.eval(`document.getElementById("theme").click()`, new(any))
	require.Equal(t, dark, b.colours())
	b.do("Emulation.setEmulatedMedia", map[string]any{"media": "print"})
	require.Equal(t, "rgb(255, 255, 255)", b.colours()[0], "paper is white")
	var hidden bool
	b.eval(`getComputedStyle(document.querySelector("nav")).display === "none"`, &hidden)
	require.True(t, hidden)
	b.scheme("light")
	b.eval(`document.getElementById("theme").click(), localStorage.clear()`, new(any))
}

// checkCharts: every chart is there once, drawn, and with a name for those who
// cannot see it.
func (b *browser) checkCharts(page *Page) {
	t := b.t
	var drawn []string
	b.eval(`[...document.querySelectorAll("figure")].filter(f => [...f.querySelectorAll("svg")].every(s => s.getAttribute("aria-label") && s.querySelectorAll("polyline,rect,circle").length)).map(f => f.id)`, &drawn)
	var want []string
	for _, c := range page.Charts() {
		want = append(want, c.Name)
	}
	require.Equal(t, want, drawn)
	require.NotEmpty(t, want)
	var stray []string
	b.eval(`[...document.querySelectorAll("svg *")].filter(e => [...e.attributes].some(a => /NaN|Infinity|undefined/.test(a.value))).map(e => e.outerHTML)`, &stray)
	require.Empty(t, stray)
}

// checkPhone: with everything open nothing sticks out, and text is large enough.
func (b *browser) checkPhone() {
	t := b.t
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": phone, "height": 740, "deviceScaleFactor": 2, "mobile": true})
	var widths [2]float64
	b.eval(`(document.querySelectorAll("details").forEach(d => d.open = true), [document.documentElement.scrollWidth, innerWidth])`, &widths)
	require.Equal(t, [2]float64{phone, phone}, widths, "the page scrolls sideways")
	var smallest float64
	b.eval(`Math.min(...[...document.querySelectorAll("svg text, td, th, p, li, .label")].filter(e => e.checkVisibility()).map(e => {
		const svg = e.closest("svg"), size = parseFloat(getComputedStyle(e).fontSize);
		return svg ? size * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : size; }))`, &smallest)
	require.GreaterOrEqual(t, smallest, 9.5, "text in CSS pixels")
	b.eval(`document.querySelectorAll("details").forEach(d => d.open = false)`, new(any))
}

// shoot writes a screenshot, if they are asked for.
func (b *browser) shoot(name string) {
	if *screenshots == "" {
		return
	}
	height, scale := 0.0, 0.7
	b.eval("Math.min(document.documentElement.scrollHeight, 1500)", &height)
	if b.width() <= phone {
		scale = 0.5
	}
	out := b.do("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": b.width(), "height": height, "scale": scale}})
	png, err := base64.StdEncoding.DecodeString(out["data"].(string))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644))
}

func (b *browser) width() (w float64) {
	b.eval("innerWidth", &w)
	return w
}

// follow serves a run's page, lets the run go on, and waits for the page to tell.
func (b *browser) follow(run string) {
	t := b.t
	s := &Server{Paths: []string{run}, Build: func() (*Page, error) {
		in, warnings, err := compare.Load(run)
		if err != nil {
			return nil, err
		}
		return New([]*compare.Input{in}, Options{Warnings: warnings, Now: time.Now()})
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	b.visit(fmt.Sprintf("http://%s/", l.Addr()))
	b.until(`document.querySelector('[data-figure="last_loss"]').textContent !== "1.234"`)
	f, err := os.OpenFile(filepath.Join(run, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = fmt.Fprintf(f, `{"kind":"train","step":41,"time":%q,"loss_metrics/global_avg_loss":1.234,"n_tokens_seen":2686976}`+"\n", resulttest.Start.Add(time.Hour).Format(time.RFC3339))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b.until(`document.querySelector('[data-figure="last_loss"]').textContent === "1.234"`)
	b.until(`JSON.parse(document.getElementById("data").textContent).rows.some(r => r.key === "last_loss" && r.cells[0].value === 1.234)`)
	for _, c := range b.complaints(fmt.Sprintf("http://%s/", l.Addr())) {
		require.Contains(t, c, fmt.Sprintf("request of http://%s/", l.Addr()), "only titan is asked")
	}
	stop()
	require.NoError(t, <-ended)
}
