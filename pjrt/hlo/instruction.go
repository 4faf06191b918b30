package hlo

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Instruction is one operation. Fields that an operation does not have are zero.
type Instruction struct {
	ID       int64
	Name     string
	Opcode   string // such as "dot", "fusion", "all-gather-start"
	Shape    Shape
	Operands []*Instruction
	// ControlPredecessors must run before, though no value is passed.
	ControlPredecessors []*Instruction
	// Called lists the called computations: the body and then the condition of
	// a while, the branches of a conditional.
	Called          []*Computation
	Parent          *Computation
	ParameterNumber int
	TupleIndex      int    // of a get-tuple-element
	Dims            []int  // the dimensions attribute: of a gather, reduce, transpose
	FusionKind      string // such as "kLoop"
	Dot             *DotDims
	Conv            *Convolution

	// Collectives.
	ChannelID          int64
	ReplicaGroups      [][]int // device positions; nil means one group of all
	UseGlobalDeviceIDs bool    // groups are positions in the assignment
	SourceTargetPairs  [][2]int
	CustomCallTarget   string
	// OperandAliases lists outputs of a custom call that reuse an operand.
	OperandAliases []OperandAlias
	// BackendConfig holds the compiler's notes, usually JSON.
	BackendConfig      []byte
	FrontendAttributes map[string]string
	Sharding           *Sharding
	Metadata           Metadata

	stackFrame  int
	constant    int64 // value of a scalar integer constant
	hasConstant bool
	comparison  string // direction of a compare: "LT", "GE"
}

// DotDims are the dimension numbers of a contraction.
type DotDims struct{ LHSContract, RHSContract, LHSBatch, RHSBatch []int }

// OperandAlias says that an output of a custom call is an operand.
type OperandAlias struct {
	OutputIndex  []int
	Operand      int
	OperandIndex []int
}

// Metadata tells where an instruction comes from.
type Metadata struct {
	OpType, OpName string
	SourceFile     string
	SourceLine     int
}

var collectives = map[string]bool{
	"all-gather": true, "all-reduce": true, "reduce-scatter": true, "all-to-all": true, "ragged-all-to-all": true,
	"collective-permute": true, "collective-broadcast": true,
}

// Collective returns the kind of a collective instruction, such as "all-gather" for both
// "all-gather" and "all-gather-start"; "" for other instructions, also for the
// end of an asynchronous collective. To list what a run does use
// [Module.Collectives].
func (i *Instruction) Collective() string {
	if k := strings.TrimSuffix(i.Opcode, "-start"); collectives[k] {
		return k
	}
	return ""
}

// Body returns the body of a while loop, else nil.
func (i *Instruction) Body() *Computation {
	if i.Opcode == "while" && len(i.Called) == 2 {
		return i.Called[0]
	}
	return nil
}

// Condition returns the condition of a while loop, else nil.
func (i *Instruction) Condition() *Computation {
	if i.Opcode == "while" && len(i.Called) == 2 {
		return i.Called[1]
	}
	return nil
}

// TripCount returns how often a while loop runs, from the compiler's note or
// from the loop itself if it counts between constants.
func (i *Instruction) TripCount() (int64, bool) {
	if i.Opcode != "while" {
		return 0, false
	}
	if n, ok := i.notedTripCount(); ok {
		return n, true
	}
	return i.inferTripCount()
}

func (i *Instruction) notedTripCount() (int64, bool) {
	var c struct {
		KnownTripCount *struct {
			N json.RawMessage `json:"n"` // a number or, as protobuf writes int64, a string
		} `json:"known_trip_count"`
	}
	if json.Unmarshal(i.BackendConfig, &c) != nil || c.KnownTripCount == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.Trim(string(c.KnownTripCount.N), `"`), 10, 64)
	return n, err == nil && n >= 0
}

// EstimatedCycles returns the TPU compiler's estimate for a fusion or a simple
// operation, if it noted one. Of what runs on another unit of the chip (gathers on
// a sparse core) it says that it does not know.
func (i *Instruction) EstimatedCycles() (int64, bool) {
	var c struct {
		WindowConfig *struct {
			EstimatedCycles json.RawMessage `json:"estimated_cycles"`
		} `json:"window_config"`
	}
	if json.Unmarshal(i.BackendConfig, &c) != nil || c.WindowConfig == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.Trim(string(c.WindowConfig.EstimatedCycles), `"`), 10, 64)
	return n, err == nil && n != math.MaxInt64
}
