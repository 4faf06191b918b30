package chart

import (
	"bytes"
	"encoding/xml"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/internal/human"
)

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		axis Axis
		data []float64
		want []float64
	}{
		{Axis{}, []float64{0, 10}, []float64{0, 2, 4, 6, 8, 10}},
		{Axis{}, []float64{-1.2, 3.4}, []float64{-1, 0, 1, 2, 3}},
		{Axis{Zero: true}, []float64{7, 9}, []float64{0, 2, 4, 6, 8}},
		{Axis{Zero: true, Binary: true}, []float64{3 << 30}, []float64{0, 1 << 30, 2 << 30, 3 << 30}},
		{Axis{Log: true}, []float64{1, 2000}, []float64{1, 10, 100, 1000}},
		{Axis{Log: true}, []float64{8, 300}, []float64{10, 20, 50, 100, 200}},
		{Axis{Ticks: []float64{1, 7}}, []float64{1, 7}, []float64{1, 7}},
	} {
		require.InDeltaSlice(t, c.want, newScale(c.axis, c.data, 0, 100).ticks(5), 1e-9)
	}
}

func TestScaleNeverCollapses(t *testing.T) {
	for _, data := range [][]float64{nil, {5}, {0, 0}, {math.NaN(), math.Inf(1)}, {-3, -3}, {1e-300, 1e300}} {
		for _, log := range []bool{false, true} {
			s := newScale(Axis{Log: log}, data, 0, 100)
			require.Less(t, s.low, s.high)
			require.LessOrEqual(t, len(s.ticks(5)), 1000)
		}
	}
}

// scenes are charts of all kinds.
func scenes(size Size, values []float64) []*Scene {
	x := make([]float64, len(values))
	for i := range x {
		x[i] = float64(i)
	}
	return []*Scene{
		Lines{Title: "<loss> & more", X: Axis{Label: "step"}, Series: []Series{{Name: "a<b", X: x, Y: values}, {Name: "dash", Dash: true, Dots: true, X: x, Y: values}}, Marks: []Mark{{2, "resumed"}}}.Draw(size),
		Lines{X: Axis{Log: true, Ticks: x}, Y: Axis{Log: true}, Series: []Series{{X: x, Y: values}}}.Draw(size),
		Histogram{Values: values, X: Axis{Write: human.Seconds}, Marks: []Mark{{1, "p50"}}}.Draw(size),
		Bars{Bars: []Bar{{Label: strings.Repeat("long ", 40), Parts: []Part{{"x", 3}, {"y", math.NaN()}, {"z", -1}}, Limit: 9}, {Label: "empty"}}}.Draw(size),
		Timeline{Seconds: 4, Lanes: []Lane{{"step", []Span{{0, 1, "matmul", "m", false}, {1, 3, "loop", "l", true}}}}, Write: human.Seconds}.Draw(size),
	}
}

var bad = regexp.MustCompile(`="[^"]*(NaN|Inf|e\+)`)

// Whatever the values are, a chart is a well-formed document with finite places
// inside of it, and a picture.
func TestChartsOfAnyValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	sets := [][]float64{nil, {1}, {3, 3, 3}, {math.NaN()}, {math.Inf(1), 2, math.Inf(-1)}, {-5, 0, 5}, {1e-12, 1e12}}
	long := make([]float64, 20000)
	for i := range long {
		long[i] = random.NormFloat64()
	}
	for _, values := range append(sets, long) {
		for _, size := range []Size{Wide, Narrow} {
			for i, s := range scenes(size, values) {
				svg := s.SVG()
				require.False(t, bad.MatchString(svg), "chart %d of %v", i, values[:min(len(values), 5)])
				require.Less(t, len(svg), 1<<20)
				d := xml.NewDecoder(strings.NewReader(svg))
				var err error
				for err == nil {
					_, err = d.Token()
				}
				require.Equal(t, io.EOF, err)
				for _, sh := range s.shapes {
					for _, p := range sh.points {
						require.True(t, p.x >= -1 && p.x <= s.Size.Width+1 && p.y >= -1 && p.y <= s.Size.Height+1, "%v of chart %d lies outside", sh, i)
					}
				}
			}
		}
	}
}

// Of a long curve the extremes stay.
func TestThinKeepsExtremes(t *testing.T) {
	p := make([]point, 50000)
	for i := range p {
		p[i] = point{float64(i), math.Sin(float64(i))}
	}
	p[12345].y, p[40000].y = 99, -99
	q := thin(p)
	require.LessOrEqual(t, len(q), maxPoints)
	require.Contains(t, q, p[12345])
	require.Contains(t, q, p[40000])
	for i := 1; i < len(q); i++ {
		require.Less(t, q[i-1].x, q[i].x)
	}
}

func TestPNGShowsWhatIsDrawn(t *testing.T) {
	s := &Scene{Size: Size{40, 20}}
	s.rect(SeriesRole(0), 0, 0, 20, 20, "")
	s.line(SeriesRole(1), 4, false, point{25, 0}, point{25, 20})
	s.line(SeriesRole(2), 4, true, point{35, 0}, point{35, 20})
	b, err := s.PNG(2)
	require.NoError(t, err)
	picture, err := png.Decode(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, 80, picture.Bounds().Dx())
	at := func(x, y int) color.Color { return color.RGBAModel.Convert(picture.At(x, y)) }
	require.Equal(t, SeriesRole(0).colour(), at(20, 20))
	require.Equal(t, SeriesRole(1).colour(), at(50, 20))
	require.Equal(t, Ground.colour(), at(60, 20))
	require.Equal(t, SeriesRole(2).colour(), at(70, 4))
	require.Equal(t, Ground.colour(), at(70, 14), "between two dashes")
	// An SVG and a PNG have the same colours by default.
	require.Contains(t, s.SVG(), `class="f k0" fill="#0072b2"`)
}
