package hlo

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// KernelCost is what the author of a tile kernel says that one call costs.
type KernelCost struct {
	Flops, Bytes, Transcendentals float64
}

// KernelCost returns the cost estimate of a custom call to a tile kernel, and
// false for other instructions and for kernels without one.
func (i *Instruction) KernelCost() (KernelCost, bool) {
	if i.CustomCallTarget != TileKernel {
		return KernelCost{}, false
	}
	var c struct {
		Call struct {
			Cost *struct {
				Flops           json.Number `json:"flops"` // numbers or, as protobuf writes int64, strings
				Bytes           json.Number `json:"bytes_accessed"`
				Transcendentals json.Number `json:"transcendentals"`
			} `json:"cost_estimate"`
		} `json:"custom_call_config"`
	}
	if json.Unmarshal(i.BackendConfig, &c) != nil || c.Call.Cost == nil {
		return KernelCost{}, false
	}
	number := func(n json.Number) float64 {
		x, err := n.Float64()
		if err != nil {
			return 0
		}
		return x
	}
	e := c.Call.Cost
	return KernelCost{number(e.Flops), number(e.Bytes), number(e.Transcendentals)}, true
}

// TileKernel is the target of custom calls to tile kernels on TPU.
const TileKernel = "tpu_custom_call"

// KernelName returns the name of the tile kernel that a custom call calls: the one
// that its code has, if that is text, else the instruction's. It is "" for other
// instructions.
func (i *Instruction) KernelName() string {
	if i.CustomCallTarget != TileKernel {
		return ""
	}
	code := i.KernelCode()
	// The kernel is the first function; those behind it say where its blocks lie.
	if _, after, ok := strings.Cut(code, `sym_name = "`); ok {
		if name, _, ok := strings.Cut(after, `"`); ok {
			return name
		}
	}
	return i.Name
}

// KernelCode returns the code of the tile kernel that a custom call calls, text or
// not; "" for other instructions.
func (i *Instruction) KernelCode() string {
	if i.CustomCallTarget != TileKernel {
		return ""
	}
	var c struct {
		Call struct {
			Body string `json:"body"`
		} `json:"custom_call_config"`
	}
	if json.Unmarshal(i.BackendConfig, &c) != nil {
		return ""
	}
	code, err := base64.StdEncoding.DecodeString(c.Call.Body)
	if err != nil {
		return ""
	}
	return string(code)
}
