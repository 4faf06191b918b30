package hlo

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Ring is a phase of a collective: devices in a ring pass parts of the array on, each
// to the next.
type Ring struct {
	// Side is the side of the torus along which the ring lies, 0 for x; -1 if it winds
	// through the slice.
	Side int
	// Torus says that the links of the side close to a ring.
	Torus bool
	// Backward is the direction.
	Backward bool
	// Devices is how many are in the ring, 0 where the compiler does not say: all
	// along the side.
	Devices int
}

// Strategy is how the compiler for TPU lets the sparse cores carry out a collective.
type Strategy struct {
	// Colors are equal shares of the array, which travel at the same time, each in
	// phases one after another. A gather runs through them in this order.
	Colors [][]Ring
	// Next and Previous are each device's neighbours, by device id, in the ring of a
	// strategy of one phase; nil where the compiler does not list them.
	Next, Previous []int
}

// Strategy returns the compiler's note on how a collective is carried out, and false
// where there is none.
func (i *Instruction) Strategy() (Strategy, bool) {
	var c struct {
		Offload map[string]json.RawMessage `json:"collective_offload_config"`
	}
	if json.Unmarshal(i.BackendConfig, &c) != nil {
		return Strategy{}, false
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Offload)) {
		if !strings.HasSuffix(kind, "_offload_config") {
			continue
		}
		var o offload
		if json.Unmarshal(c.Offload[kind], &o) != nil || len(o.Rings.Colors) == 0 {
			return Strategy{}, false
		}
		return o.strategy()
	}
	return Strategy{}, false
}

// offload is what the compiler notes, as far as it is used here.
type offload struct {
	Rings struct {
		Colors []struct {
			Phases []struct {
				Type    string `json:"ring_type"`
				Devices string `json:"core_count"` // int64, as protobuf writes it
				Side    string `json:"ring_dim"`
				Listed  string `json:"explicit_strategy_ring_dim"` // the side, if neighbours are listed
			} `json:"phase_rings"`
		} `json:"color_strategies"`
	} `json:"ici_strategy_config"`
	Constants struct {
		Literals []int `json:"constant_literals"`
	} `json:"constant_propagation_config"`
}

const (
	unidirectional = "ICI_RING_TYPE_UNIDIR_"
	sideOf         = "ICI_RING_DIM_"
)

func (o *offload) strategy() (s Strategy, ok bool) {
	winding := 0
	for _, color := range o.Rings.Colors {
		var phases []Ring
		for _, p := range color.Phases {
			r := Ring{Side: -1}
			switch p.Type {
			case unidirectional + "CW":
			case unidirectional + "CCW":
				r.Backward = true
			default:
				return Strategy{}, false
			}
			if p.Devices != "" {
				n, err := strconv.Atoi(p.Devices)
				if err != nil || n < 1 {
					return Strategy{}, false
				}
				r.Devices = n
			}
			if name, found := strings.CutPrefix(p.Side+p.Listed, sideOf); found {
				letter, kind, _ := strings.Cut(name, "_")
				if r.Side = strings.Index("XYZ", letter); r.Side < 0 || len(letter) != 1 {
					return Strategy{}, false
				}
				r.Torus = kind == "TORUS"
			} else if winding++; r.Devices == 0 {
				return Strategy{}, false
			}
			phases = append(phases, r)
		}
		if len(phases) != len(o.Rings.Colors[0].Phases) || len(phases) == 0 {
			return Strategy{}, false
		}
		s.Colors = append(s.Colors, phases)
	}
	if len(s.Colors) == 0 {
		return Strategy{}, false
	}
	if len(s.Colors[0]) > 1 {
		return s, winding == 0
	}
	s.Next, s.Previous = neighbours(o.Constants.Literals)
	return s, winding == 0 || s.Next != nil
}

// neighbours reads the compiler's list: for each device its place in the ring, the
// next device, the one before and where a list of places begins, -1 if there is none;
// then that list.
func neighbours(list []int) (next, previous []int) {
	const row = 4
	end := len(list)
	if end >= row && list[row-1] >= 0 {
		end = min(end, list[row-1])
	}
	if end == 0 || end%row != 0 {
		return nil, nil
	}
	n := end / row
	for at := 0; at < end; at += row {
		if list[at+1] < 0 || list[at+1] >= n || list[at+2] < 0 || list[at+2] >= n {
			return nil, nil
		}
		next, previous = append(next, list[at+1]), append(previous, list[at+2])
	}
	return next, previous
}
