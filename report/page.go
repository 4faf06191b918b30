// Package report makes a page of results: a run, a plan, a sweep, or several of them
// compared. The page is one HTML file that needs nothing else.
//
//	page, err := report.New(inputs, report.Options{})
//	html, err := page.HTML()
package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"titan/compare"
	"titan/report/chart"
)

//go:embed page
var files embed.FS

// Page is a report, ready to be written.
type Page struct {
	Title, Subtitle string
	Warnings        []string
	Sections        []Section
	// Comparison has the page's figures; it is in the page as JSON.
	Comparison *compare.Comparison
	// Titan is the version, Made the time.
	Titan string
	Made  time.Time
	// Version changes with what the page shows, for a page that is served and
	// follows it; "": it is a file.
	Version string
}

// Section is a part of the page.
type Section struct {
	ID, Title, Text string
	Tiles           []Tile
	Tables          []Table
	Charts          []Chart
	List            []string
	Fold            bool // closed until asked for
}

// Tile is a figure that stands out.
type Tile struct {
	Label, Text, More string
	Loud              bool
	Figure
}

// Figure says which figure of the page's JSON something shows.
type Figure struct {
	Key    string // "" is none
	Result int
	Value  string // all digits
}

// Table is rows of cells; the first of a row is its name.
type Table struct {
	Caption, Class string
	Head           []string
	Rows           [][]Cell
}

// Cell is a cell of a table.
type Cell struct {
	Text, Class, Tip, Sign string
	Figure
}

// Chart is a drawing in two sizes.
type Chart struct {
	Name  string // of its file, and its anchor
	Title string
	Note  string
	Full  bool // as wide as the page
	Draw  func(chart.Size) *chart.Scene
}

// Wide is the drawing for screens.
func (c Chart) Wide() template.HTML { return template.HTML(c.Draw(c.size()).SVG()) }

// Narrow is the drawing for phones.
func (c Chart) Narrow() template.HTML { return template.HTML(c.Draw(chart.Narrow).SVG()) }

func (c Chart) size() chart.Size {
	if c.Full {
		return chart.Size{Width: 1100, Height: 300}
	}
	return chart.Size{Width: 540, Height: 280}
}

// HTML spells the page.
func (p *Page) HTML() ([]byte, error) {
	t, err := template.ParseFS(files, "page/page.html")
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	css, err := files.ReadFile("page/page.css")
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	js, err := files.ReadFile("page/page.js")
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	data, err := json.Marshal(p.Comparison) // escapes <, > and & by itself
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"Title": p.Title, "Subtitle": p.Subtitle, "Warnings": p.Warnings, "Sections": p.Sections, "Titan": p.Titan, "Version": p.Version,
		"Made": p.Made.UTC().Format("2006-01-02 15:04:05 UTC"), "CSS": template.CSS(css), "JS": template.JS(js), "Data": template.JS(data),
	})
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return b.Bytes(), nil
}

// Charts lists the drawings of the page; names are unique.
func (p *Page) Charts() []Chart {
	var out []Chart
	for _, s := range p.Sections {
		out = append(out, s.Charts...)
	}
	return out
}

// Drawings returns the charts as files: "svg" or "png".
func (p *Page) Drawings(format string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, c := range p.Charts() {
		scene := c.Draw(chart.Wide)
		if format == "svg" {
			out[c.Name+".svg"] = []byte(scene.SVG())
			continue
		}
		png, err := scene.PNG(2)
		if err != nil {
			return nil, fmt.Errorf("report: %s: %w", c.Name, err)
		}
		out[c.Name+".png"] = png
	}
	return out, nil
}

// figure says where in the JSON a value is.
func figure(key string, result int, value *float64) Figure {
	if value == nil {
		return Figure{}
	}
	return Figure{key, result, strconv.FormatFloat(*value, 'g', -1, 64)}
}

func cells(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, t := range texts {
		out[i].Text = t
	}
	return out
}

// slug makes a name of a file and of an anchor.
func slug(parts ...string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.Join(parts, "-")) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-")
}
