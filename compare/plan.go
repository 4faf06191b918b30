package compare

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"titan/configs"
	"titan/mesh"
	"titan/plan"
	"titan/runs"
	"titan/sweep"
)

// FromPlan takes what a plan predicts.
func FromPlan(p *plan.Report) *Result {
	r := &Result{Name: p.Model, Kind: Plan, Basis: Basis{}, Figures: map[string]float64{}, Chips: p.Chips, Devices: p.Devices, Mesh: p.Mesh}
	r.predictedOn(p.Topology, p.Devices/max(p.Chips, 1))
	if p.RecipeTOML != "" {
		values, err := configs.Values([]byte(p.RecipeTOML))
		if err != nil {
			r.note(err.Error())
		}
		r.Recipe = values
		r.fromRecipe()
	}
	r.Basis[Evidence], r.Basis[Platform] = string(predicted), tpu
	r.Basis[Effort] = p.Effort
	r.Basis[Model] = modelName(p.Model, r.Recipe, p.Parameters)
	r.Basis[SeqLen] = strconv.Itoa(p.SeqLen)
	r.Basis[StepTokens] = strconv.FormatInt(p.Tokens, 10)
	r.Basis[Flops] = strconv.FormatFloat(p.FlopsPerToken.Causal, 'f', 0, 64)
	r.padding(0)
	r.memory(float64(p.Memory.Needed), float64(p.Memory.Limit))
	if !p.Memory.Fits {
		r.note("it does not fit: " + p.Memory.Why)
	}
	r.set(TPSDevice, p.TokensPerSecond)
	r.set(TPSChip, p.TokensPerSecondChip)
	r.set(MFUCausal, p.MFU.Causal)
	r.set(MFUTorchTitan, p.MFU.Full)
	if q := p.Prediction; q != nil {
		r.set(StepSeconds, q.Seconds)
		exposed := 0.0
		for _, t := range q.Transfers {
			exposed += t.Exposed
		}
		r.set(Exposed, exposed)
		if q.Seconds > 0 {
			r.note(fmt.Sprintf("the step is expected between %.3g and %.3g s", q.Low, q.High))
		}
	}
	r.set(FirstCompile, p.Compile.Seconds)
	r.priced()
	r.conventions()
	return r
}

const tpu = "tpu"

// predictedOn notes the devices of a topology.
func (r *Result) predictedOn(topology string, perChip int) {
	if t, err := mesh.ParseTopology(topology); err == nil {
		perChip = t.DevicesPerChip()
	}
	r.Basis[PerChip] = strconv.Itoa(perChip)
}

// fromPoint takes a point of the sweep in dir, with what its run or plan tells.
func fromPoint(s *sweep.Sweep, p *sweep.Point, dir string) (*Result, []string) {
	r := &Result{Kind: Run, Basis: Basis{}, Figures: map[string]float64{}}
	var warnings []string
	inside := func(rel string) (string, bool) {
		return filepath.Join(dir, rel), rel != "" && filepath.IsLocal(rel) && exists(filepath.Join(dir, rel))
	}
	if path, ok := inside(p.RunDir); ok && p.Source == sweep.Run {
		run, found, err := runs.Open(path)
		for _, w := range found {
			warnings = append(warnings, filepath.Join(path, w.String()))
		}
		if err != nil {
			warnings = append(warnings, err.Error())
		} else {
			r = fromRun(run)
		}
	}
	if path, ok := inside(p.PlanFile); ok && p.Source == sweep.Plan {
		if q, err := readPlan(path); err != nil {
			warnings = append(warnings, err.Error())
		} else {
			r = FromPlan(q)
		}
	}
	r.fromPoint(s, p)
	return r, warnings
}

// fromPoint lets the sweep's own figures count where it has them.
func (r *Result) fromPoint(s *sweep.Sweep, p *sweep.Point) {
	r.Name = pointName(p)
	r.Devices = p.Devices
	if r.Chips = p.Chips; p.Chips == 0 {
		r.Chips = 1
	}
	r.Mesh = p.MeshString()
	switch p.Source {
	case sweep.Run:
		r.Kind, r.Basis[Evidence] = Run, string(measuredHere)
	case sweep.Plan:
		r.Kind, r.Basis[Evidence] = Plan, string(predicted)
	case sweep.Extrapolated:
		r.Kind, r.Basis[Evidence] = Extrapolated, string(extrapolated)
		r.note(p.Rule)
	}
	r.Basis[Effort] = "default"
	if s.Quick && p.Source != sweep.Run {
		r.Basis[Effort] = "quick"
	}
	r.Basis[Platform] = tpu
	if s.Kind == cpu {
		r.Basis[Platform], r.Basis[PerChip] = cpu, "virtual devices"
	} else if p.Chips > 0 {
		r.Basis[PerChip] = strconv.Itoa(p.Devices / p.Chips)
	}
	def := func(a Aspect, v string) {
		if _, ok := r.Basis[a]; !ok && v != "" {
			r.Basis[a] = v
		}
	}
	def(Model, s.Model)
	def(Precision, s.Precision)
	if s.SeqLen > 0 {
		def(SeqLen, strconv.Itoa(s.SeqLen))
	}
	if p.Source != sweep.Run {
		def(Padding, "0.0") // plans know none
	}
	if p.Tokens > 0 {
		r.Basis[StepTokens] = strconv.FormatInt(p.Tokens, 10)
	}
	r.set(TPSDevice, p.TPSDevice)
	r.set(TPSChip, p.TPSChip)
	if p.Chips == 0 {
		r.set(TPSChip, p.TPS)
	}
	if p.MFU != nil {
		r.set(MFUCausal, p.MFU.Causal)
		r.set(MFUTorchTitan, p.MFU.Full)
	}
	r.set(StepSeconds, p.StepSeconds)
	r.set(StepP95, p.P95Seconds)
	if p.Source == sweep.Run && s.Steps > s.Warmup {
		r.set(WarmSteps, float64(s.Steps-s.Warmup))
	}
	r.memory(float64(p.Memory), float64(p.Limit))
	if p.Exposed != nil {
		r.set(Exposed, *p.Exposed)
	}
	if p.Loss != nil {
		r.set(LastLoss, *p.Loss)
	}
	if p.Asked != 0 && p.Asked != p.Chips {
		r.note(fmt.Sprintf("%d chips were asked for, %d are used", p.Asked, p.Chips))
	}
	r.note(p.Adapted)
	r.priced()
	r.conventions()
}

// failedPoint is a point without figures.
func failedPoint(s *sweep.Sweep, p *sweep.Point, path string) *Result {
	r := &Result{Path: path, Basis: Basis{}, Figures: map[string]float64{}}
	r.fromPoint(s, &sweep.Point{Values: p.Values, Chips: p.Chips, Devices: p.Devices, Mesh: p.Mesh, Tokens: p.Tokens, Source: p.Source})
	r.State = string(p.Status)
	r.Figures = map[string]float64{}
	why, _, _ := strings.Cut(p.Error, "\n")
	r.note(r.Name + ": " + why)
	return r
}

func pointName(p *sweep.Point) string {
	if v := p.ValuesString(); v != "" {
		return fmt.Sprintf("%s, %s", size(p.Chips, p.Devices), v)
	}
	return size(p.Chips, p.Devices)
}

// size says how large a machine is.
func size(chips, devices int) string {
	switch {
	case chips == 1:
		return "1 chip"
	case chips > 1:
		return fmt.Sprintf("%d chips", chips)
	case devices == 1:
		return "1 device"
	}
	return fmt.Sprintf("%d devices", devices)
}

// fromSeries takes the points of a published series.
func fromSeries(s *sweep.Series, path string) []*Result {
	var out []*Result
	for _, p := range s.Points {
		r := &Result{
			Name: s.Name + ", " + size(p.Chips, p.Devices), Path: path, Kind: Published, Chips: p.Chips, Devices: p.Devices,
			Basis: Basis{
				Evidence: string(measuredElsewhere), Platform: tpu, Effort: "default", Model: s.Model, SeqLen: strconv.Itoa(s.SeqLen),
				PerChip: strconv.Itoa(p.Devices / max(p.Chips, 1)),
			},
			Figures: map[string]float64{},
		}
		if s.Precision != "" {
			r.Basis[Precision] = s.Precision
		}
		if p.GlobalBatch > 0 {
			r.Basis[StepTokens] = strconv.Itoa(p.GlobalBatch * s.SeqLen)
		}
		r.set(TPSDevice, p.TPSDevice)
		r.set(TPSChip, p.TPSChip)
		r.set(StepSeconds, p.StepSeconds)
		if m := s.ByConvention(p); m != nil {
			r.set(MFUCausal, m.Causal)
			r.set(MFUTorchTitan, m.Full)
		}
		r.conventions()
		r.note("published: " + s.Source)
		out = append(out, r)
	}
	return out
}
