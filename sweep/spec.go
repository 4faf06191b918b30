package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"titan/configs"
)

// Spec says what is swept.
type Spec struct {
	Name   string
	Recipe string   // a path or the name of a built-in recipe
	Set    []string // over it, for all points
	Mode   Mode
	Source Source // Run or Plan

	// Of these, one at most: numbers of chips, for which real shapes are chosen;
	// numbers of virtual devices; or topologies. Without any, all points have the
	// machines of the recipe.
	Chips      []int
	Devices    []int
	Topologies []string
	// Kind is that of the chips, "" for that of the recipe's topology.
	Kind string
	// MaxSlice is the most chips of a slice, beyond which there are several; 0: 1,024
	// or those of the recipe's slice, if that has more.
	MaxSlice int

	Vary []Vary

	Steps, Warmup   int // of runs
	Quick           bool
	Extrapolate     bool
	MaxCompileChips int
}

// Vary is a key of the recipe and the values that it takes.
type Vary struct {
	Key    string
	Values []string
}

// mostDevices is far beyond any machine.
const mostDevices = 1 << 20

// mostPoints is far beyond what anybody waits for.
const mostPoints = 1000

// New returns the points of a sweep, smallest first for each combination of
// values. Points that cannot be are Impossible; a sweep of such points alone is an
// error, as are mistakes in the recipe itself.
func New(spec Spec) (*Sweep, error) {
	base, _, err := configs.Load(spec.Recipe, spec.Set)
	if err != nil {
		return nil, err
	}
	sizes, err := spec.sizes(base)
	if err != nil {
		return nil, err
	}
	if err := spec.checkVary(sizes[0].own()); err != nil {
		return nil, err
	}
	grid := combinations(spec.Vary)
	if n := len(grid) * len(sizes); n > mostPoints {
		return nil, fmt.Errorf("sweep: %d points are more than %d; vary less", n, mostPoints)
	}
	s := &Sweep{
		Schema: Schema, Name: spec.Name, Mode: spec.Mode, Source: spec.Source, Recipe: spec.Recipe, Set: spec.Set, Hash: base.Hash(),
		Model: base.Model.Name + " " + base.Model.Flavor, SeqLen: base.Training.SeqLen, Precision: precision(base), Kind: sizes[0].kind(base),
		Quick: spec.Quick, Extrapolate: spec.Extrapolate, MaxCompileChips: spec.MaxCompileChips, Started: time.Now().UTC(),
	}
	if spec.Source == Run {
		s.Steps, s.Warmup = spec.Steps, spec.Warmup
	}
	for _, v := range spec.Vary {
		s.Keys = append(s.Keys, v.Key)
	}
	possible := false
	for _, values := range grid {
		for _, at := range sizes {
			p := spec.point(base, values, at)
			p.ID = s.freeID(p.name())
			if other := s.same(&p); other != "" && p.Status == Pending {
				p.Status, p.Error = Impossible, "is the same as "+other
				if p.Asked > 0 {
					p.Error = fmt.Sprintf("%d chips cannot be had; the next fewer, %d, are those of %s", p.Asked, p.Chips, other)
				}
			}
			possible = possible || p.Status != Impossible
			s.Points = append(s.Points, p)
		}
	}
	if !possible {
		return nil, fmt.Errorf("sweep: no point is possible; the first, %s: %s", s.Points[0].ID, s.Points[0].Error)
	}
	s.markExtrapolated()
	return s, nil
}

// precision names the element type of products.
func precision(r *configs.Recipe) string {
	if r.Quantize.Linear.Float8.Enable {
		return "float8"
	}
	return r.Training.MixedPrecisionParam
}

// same returns the point that has the same recipe as p, "" if there is none.
func (s *Sweep) same(p *Point) string {
	for _, q := range s.Points {
		if slices.Equal(q.Set, p.Set) {
			return q.ID
		}
	}
	return ""
}

// freeID makes a name differ from those of other points.
func (s *Sweep) freeID(name string) string {
	for n, id := 2, name; ; n++ {
		if !slices.ContainsFunc(s.Points, func(p Point) bool { return p.ID == id }) {
			return id
		}
		id = fmt.Sprintf("%s-%d", name, n)
	}
}

// maxName bounds the name of a point's folder.
const maxName = 100

// name is what a point is called: its machines and values, as a folder can be.
func (p *Point) name() string {
	var parts []string
	switch {
	case p.Asked > 0:
		parts = append(parts, fmt.Sprintf("chips-%d", p.Asked))
	case p.Chips > 0 && p.Topology != "":
		parts = append(parts, strings.NewReplacer(":", "-", "*", "-by-").Replace(p.Topology))
	case p.Devices > 0:
		parts = append(parts, fmt.Sprintf("devices-%d", p.Devices))
	}
	for _, v := range p.Values {
		parts = append(parts, v.Key[strings.LastIndexByte(v.Key, '.')+1:]+"-"+v.Value)
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, strings.Join(parts, "_"))
	if clean = strings.Trim(clean[:min(len(clean), maxName)], "._"); clean == "" {
		return "point"
	}
	return clean
}

// checkVary refuses keys that a sweep sets itself: points would be told apart by
// values that they do not have. own says that machines are those of the recipe.
func (s Spec) checkVary(own bool) error {
	for _, v := range s.Vary {
		switch {
		case v.Key == "job.dump_folder":
			return fmt.Errorf("sweep: %s cannot be varied: every point has a folder of its own", v.Key)
		case s.Source == Run && v.Key == "training.steps":
			return fmt.Errorf("sweep: %s cannot be varied: all points have the steps of the sweep (--steps)", v.Key)
		case s.Source == Run && (v.Key == "metrics.enable_json" || v.Key == "metrics.save_json_file"):
			return fmt.Errorf("sweep: %s cannot be varied: the figures of a point are read from there", v.Key)
		case !own && (v.Key == "mesh.devices" || v.Key == "mesh.topology" || v.Key == "mesh.platform"):
			return fmt.Errorf("sweep: %s cannot be varied beside numbers of devices or chips, or topologies, which set it: leave one of them out", v.Key)
		}
	}
	return nil
}

// combinations returns all combinations of values, the last key changing fastest.
func combinations(vary []Vary) [][]Value {
	out := [][]Value{nil}
	for _, v := range vary {
		var next [][]Value
		for _, have := range out {
			for _, value := range v.Values {
				next = append(next, append(slices.Clone(have), Value{v.Key, value}))
			}
		}
		out = next
	}
	return out
}

// ParseVary reads "section.key=a,b,c". Commas inside brackets, braces and quotes
// belong to a value.
func ParseVary(text string) (Vary, error) {
	bad := func(format string, args ...any) (Vary, error) {
		return Vary{}, fmt.Errorf("sweep: vary %q: %s; write section.key=a,b,c", text, fmt.Sprintf(format, args...))
	}
	key, list, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" || !strings.Contains(key, ".") {
		return bad("there is no section.key before =")
	}
	v := Vary{Key: key}
	depth, quote, from := 0, rune(0), 0
	for i, r := range list + "," {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '[' || r == '{':
			depth++
		case r == ']' || r == '}':
			depth--
		case r == ',' && depth == 0:
			value := strings.TrimSpace(list[from:i])
			switch {
			case value == "":
				return bad("a value is empty")
			case slices.Contains(v.Values, value):
				return bad("%s is given twice", value)
			}
			v.Values = append(v.Values, value)
			from = i + 1
		}
	}
	if from <= len(list) {
		return bad("a bracket or a quote is not closed")
	}
	return v, nil
}

// ParseCounts reads "64,128,256". Three dots, or …, between the second and the last
// number go on as the numbers before them began: by their ratio, or else by their
// difference. The numbers come back ascending.
func ParseCounts(text string) ([]int, error) {
	bad := func(format string, args ...any) ([]int, error) {
		return nil, fmt.Errorf("sweep: counts %q: %s; write 64,128,256 or 64,128,...,8192", text, fmt.Sprintf(format, args...))
	}
	var out []int
	goOn := false
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "..." || part == "…" {
			if len(out) < 2 || goOn {
				return bad("dots need two numbers before them")
			}
			goOn = true
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > mostDevices {
			return bad("%q is no number from 1 to %d", part, mostDevices)
		}
		if goOn {
			between, err := fill(out[len(out)-2], out[len(out)-1], n)
			if err != nil {
				return bad("%v", err)
			}
			out, goOn = append(out, between...), false
		}
		if slices.Contains(out, n) {
			return bad("%d is given twice", n)
		}
		out = append(out, n)
	}
	if goOn {
		return bad("there is no number behind the dots")
	}
	slices.Sort(out)
	return out, nil
}

// fill returns the numbers between b and end, which the series that a and b begin
// reaches.
func fill(a, b, end int) ([]int, error) {
	if b <= a || end <= b {
		return nil, errors.New("numbers around dots must ascend")
	}
	var out []int
	if ratio := b / a; ratio*a == b && ratio > 1 {
		n := b
		for n < end {
			if n *= ratio; n < end {
				out = append(out, n)
			}
		}
		if n == end {
			return out, nil
		}
		out = nil
	}
	if (end-b)%(b-a) != 0 || (end-b)/(b-a) > mostPoints {
		return nil, fmt.Errorf("%d,%d,... does not lead to %d", a, b, end)
	}
	for n := b + b - a; n < end; n += b - a {
		out = append(out, n)
	}
	return out, nil
}
