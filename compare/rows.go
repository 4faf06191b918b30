package compare

import (
	"slices"

	"titan/internal/human"
)

// Keys of figures.
const (
	TPSDevice     = "tokens_per_second_device"
	TPSChip       = "tokens_per_second_chip"
	MFUTorchTitan = "mfu_torchtitan_percent"
	MFUCausal     = "mfu_causal_percent"
	StepSeconds   = "step_seconds" // the median of a run, a prediction
	StepP95       = "step_p95_seconds"
	StepP99       = "step_p99_seconds"
	WarmSteps     = "warm_steps"
	MemoryBytes   = "memory_bytes"
	MemoryPercent = "memory_percent"
	Exposed       = "exposed_communication_seconds"
	FirstCompile  = "first_compile_seconds"
	Goodput       = "goodput_percent"
	TokensSeen    = "tokens_seen"
	LastLoss      = "last_loss"
	LossTokens    = "loss_at_equal_tokens"
	ValTokens     = "validation_loss_at_equal_tokens"
	LossTime      = "loss_at_equal_time"
	TargetTokens  = "tokens_to_target"
	TargetTime    = "seconds_to_target"
	TargetCost    = "cost_to_target"
	CostToken     = "cost_per_billion_tokens"
)

// Direction says which figures are better.
type Direction int

// Directions.
const (
	Neither Direction = iota // worth knowing, and no merit
	Higher
	Lower
)

// RowKind is a figure that results are compared by.
type RowKind struct {
	Key    string
	Label  string
	Better Direction
	Groups []Group
	Write  func(x float64) string
	// Derived figures depend on what a result is compared with.
	Derived bool
}

func (k RowKind) in(groups []Group) bool {
	return slices.ContainsFunc(k.Groups, func(g Group) bool { return slices.Contains(groups, g) })
}

// Rows are all figures, in the order of the table.
var Rows = []RowKind{
	{Key: TPSChip, Label: "tokens/s a chip", Better: Higher, Groups: []Group{Speed}, Write: human.Count},
	{Key: TPSDevice, Label: "tokens/s a device", Better: Higher, Groups: []Group{Speed, Device}, Write: human.Count},
	{Key: MFUTorchTitan, Label: "MFU (torchtitan)", Better: Higher, Groups: []Group{MFU}, Write: human.Percent},
	{Key: MFUCausal, Label: "MFU (causal)", Better: Higher, Groups: []Group{MFU}, Write: human.Percent},
	{Key: StepSeconds, Label: "time of a step", Better: Lower, Groups: []Group{StepTime}, Write: human.Seconds},
	{Key: StepP95, Label: "95% of steps within", Better: Lower, Groups: []Group{StepTime}, Write: human.Seconds},
	{Key: StepP99, Label: "99% of steps within", Better: Lower, Groups: []Group{StepTime}, Write: human.Seconds},
	{Key: WarmSteps, Label: "steps timed", Write: human.Count},
	{Key: Exposed, Label: "communication exposed", Better: Lower, Groups: []Group{StepTime}, Write: human.Seconds},
	{Key: MemoryBytes, Label: "memory a device", Better: Lower, Groups: []Group{Memory}, Write: human.Bytes},
	{Key: MemoryPercent, Label: "share of memory", Write: human.Percent},
	{Key: FirstCompile, Label: "first compile", Write: human.Seconds},
	{Key: Goodput, Label: "goodput", Better: Higher, Groups: []Group{Time}, Write: human.Percent},
	{Key: TokensSeen, Label: "tokens seen", Write: human.Count},
	{Key: LastLoss, Label: "last loss", Write: human.Short},
	{Key: LossTokens, Label: "loss at equal tokens", Better: Lower, Groups: []Group{Loss}, Write: human.Short, Derived: true},
	{Key: ValTokens, Label: "validation loss at equal tokens", Better: Lower, Groups: []Group{Loss}, Write: human.Short, Derived: true},
	{Key: LossTime, Label: "loss at equal time", Better: Lower, Groups: []Group{Time}, Write: human.Short, Derived: true},
	{Key: CostToken, Label: "cost of 10⁹ tokens", Better: Lower, Groups: []Group{Cost}, Write: human.Short},
	{Key: TargetTokens, Label: "tokens to the target loss", Better: Lower, Groups: []Group{Target}, Write: human.Count, Derived: true},
	{Key: TargetTime, Label: "time to the target loss", Better: Lower, Groups: []Group{Target, Time}, Write: human.Seconds, Derived: true},
	{Key: TargetCost, Label: "cost to the target loss", Better: Lower, Groups: []Group{Target, Cost}, Write: human.Short, Derived: true},
}
