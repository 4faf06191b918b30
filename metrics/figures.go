package metrics

import (
	"encoding/json"
	"math"
	"slices"
)

// Figures is a [Summary] in the form that is kept: of the steps of one process,
// from its start to its end or, while it runs, to the last time it was written.
type Figures struct {
	Steps      int   `json:"steps"` // done by this process
	FirstStep  int64 `json:"first_step"`
	LastStep   int64 `json:"last_step"`
	Tokens     int64 `json:"tokens"` // of these steps, without padding
	Padding    int64 `json:"padding"`
	TokensSeen int64 `json:"tokens_seen"` // since the first step of training
	Skipped    int64 `json:"skipped_steps"`

	FirstLoss      Number `json:"first_loss"`
	LastLoss       Number `json:"last_loss"`
	ValidationLoss Number `json:"validation_loss"`
	ValidationStep int64  `json:"validation_step"` // 0: there was none

	MemoryActive   int64 `json:"memory_active_bytes"` // the most of one device; 0: unknown
	MemoryReserved int64 `json:"memory_reserved_bytes"`
	MemoryLimit    int64 `json:"memory_limit_bytes"`

	All  Throughput `json:"all"`  // over all steps
	Warm Throughput `json:"warm"` // without the first steps of the process
	// StepTime is that of the warm steps.
	StepTime StepTimes `json:"step_time"`

	// FirstCompile is the time to have the programs before the first step, in
	// seconds: traced, and compiled or loaded from the compile cache.
	FirstCompile float64 `json:"first_compile_s"`
	// Recompiles counts programs that were made after the first step, because a
	// shape had changed.
	Recompiles       int     `json:"recompiles"`
	InputStalls      int64   `json:"input_stalls"` // steps before which the devices waited for a batch
	CheckpointStalls int     `json:"checkpoint_stalls"`
	Goodput          Goodput `json:"goodput"`
}

// Throughput is a rate over some steps of a process. TFLOPs and MFU are by
// TorchTitan's convention, the others by the causal one.
type Throughput struct {
	Steps        int     `json:"steps"` // 0: nothing was measured
	Seconds      float64 `json:"seconds"`
	TPS          float64 `json:"tps"`    // tokens a second and device
	TFLOPs       float64 `json:"tflops"` // TFLOP/s a device; 0: unknown
	TFLOPsCausal float64 `json:"tflops_causal"`
	HasMFU       bool    `json:"has_mfu"`
	MFU          float64 `json:"mfu_percent"`
	MFUCausal    float64 `json:"mfu_causal_percent"`
}

func throughput(w *Window, r Rates) Throughput {
	return Throughput{
		Steps: w.Steps, Seconds: w.Seconds, TPS: r.TPS, TFLOPs: r.TFLOPs[TorchTitan], TFLOPsCausal: r.TFLOPs[Causal],
		HasMFU: r.HasMFU, MFU: r.MFU[TorchTitan], MFUCausal: r.MFU[Causal],
	}
}

// StepTimes says how long steps took, in seconds, without pauses. Percentiles are
// by nearest rank: times that were measured.
type StepTimes struct {
	Steps int     `json:"steps"` // 0: nothing was measured
	Mean  float64 `json:"mean_s"`
	P50   float64 `json:"p50_s"`
	P95   float64 `json:"p95_s"`
	P99   float64 `json:"p99_s"`
	Max   float64 `json:"max_s"`
}

// TimesOf measures the times of steps, in seconds and in any order.
func TimesOf(seconds []float64) StepTimes {
	n := len(seconds)
	if n == 0 {
		return StepTimes{}
	}
	s := slices.Sorted(slices.Values(seconds))
	var sum float64
	for _, x := range s {
		sum += x
	}
	at := func(p float64) float64 { return s[max(0, int(math.Ceil(p/100*float64(n)))-1)] }
	return StepTimes{n, sum / float64(n), at(50), at(95), at(99), s[n-1]}
}

// Goodput says what became of wall time, in seconds: Productive and the values of
// Lost add up to Wall.
type Goodput struct {
	Wall       float64          `json:"wall_s"`
	Productive float64          `json:"productive_s"` // in steps that changed the model, and whose result was kept
	Lost       map[Kind]float64 `json:"lost_s"`       // by cause
}

// Percent is the productive share of wall time.
func (g Goodput) Percent() float64 { return percent(g.Productive, g.Wall) }

// Lose moves time from what was productive to a cause of loss: no more than there
// is. It returns the rest.
func (g *Goodput) Lose(k Kind, seconds float64) {
	seconds = min(max(seconds, 0), g.Productive)
	if seconds > 0 {
		g.Productive -= seconds
		g.add(k, seconds)
	}
}

// Waste adds time of a cause to the wall time.
func (g *Goodput) Waste(k Kind, seconds float64) {
	if seconds > 0 {
		g.Wall += seconds
		g.add(k, seconds)
	}
}

// Merge adds what became of another time.
func (g *Goodput) Merge(o Goodput) {
	g.Wall += o.Wall
	g.Productive += o.Productive
	for k, x := range o.Lost {
		g.add(k, x)
	}
}

func (g *Goodput) add(k Kind, seconds float64) {
	if g.Lost == nil {
		g.Lost = map[Kind]float64{}
	}
	g.Lost[k] += seconds
}

// Number is a figure of which JSON says null where it is not finite.
type Number float64

// MarshalJSON writes null for what is not finite.
func (n Number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as NaN.
func (n *Number) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}
