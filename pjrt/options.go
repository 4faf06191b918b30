package pjrt

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Optimization effort levels of the TPU compiler. The zero value is the
// compiler's default.
const (
	LevelO0 = 9
	LevelO1 = 19
	LevelO2 = 29
)

// CompileOptions configures a compilation.
type CompileOptions struct {
	// Replicas and Partitions are the extents of the device assignment; 0 means
	// 1. With SPMD partitioning a program over n devices has n partitions.
	Replicas, Partitions int
	// Shardy says that shardings are those of the sdy dialect; otherwise they
	// are mhlo.sharding attributes.
	Shardy bool
	// DeviceIDs assigns devices: DeviceIDs[replica*Partitions+partition]. nil
	// takes the first devices of the client or topology, in its order.
	DeviceIDs []int
	// OptLevel and MemoryFittingLevel are effort levels of the TPU compiler:
	// 0 for its default, LevelO0, LevelO1, LevelO2.
	OptLevel, MemoryFittingLevel int
	// Flags overrides debug options of XLA by name, without "--": bool, int,
	// float64 or string.
	Flags map[string]any
}

func (o CompileOptions) size() (replicas, partitions int) {
	return max(1, o.Replicas), max(1, o.Partitions)
}

// check refuses assignments the plugins would accept silently. known lists the
// devices there are.
func (o CompileOptions) check(known []*Device, where string) ([]int, error) {
	if o.Replicas < 0 || o.Partitions < 0 {
		return nil, fmt.Errorf("pjrt: compile: %d replicas × %d partitions", o.Replicas, o.Partitions)
	}
	r, n := o.size()
	if r > len(known) || n > len(known) || r*n > len(known) {
		return nil, fmt.Errorf("pjrt: compile: %d replicas × %d partitions need %d devices, %s has %d", r, n, r*n, where, len(known))
	}
	if o.DeviceIDs == nil {
		ids := make([]int, r*n)
		for i := range ids {
			ids[i] = known[i].ID
		}
		return ids, nil
	}
	if len(o.DeviceIDs) != r*n {
		return nil, fmt.Errorf("pjrt: compile: %d device ids for %d replicas × %d partitions", len(o.DeviceIDs), r, n)
	}
	exists := make(map[int]bool, len(known))
	for _, d := range known {
		exists[d.ID] = true
	}
	seen := make(map[int]int, len(o.DeviceIDs))
	for i, id := range o.DeviceIDs {
		if !exists[id] {
			return nil, fmt.Errorf("pjrt: compile: device id %d at position %d is not one of the %d devices of %s", id, i, len(known), where)
		}
		if j, dup := seen[id]; dup {
			return nil, fmt.Errorf("pjrt: compile: device id %d stands at positions %d and %d of the assignment", id, j, i)
		}
		seen[id] = i
	}
	return o.DeviceIDs, nil
}

// Field numbers of xla.CompileOptionsProto and the messages in it.
const (
	fieldBuildOptions = 3
	fieldEnvOverrides = 7

	fieldDeviceOrdinal    = 1
	fieldNumReplicas      = 4
	fieldNumPartitions    = 5
	fieldUseSPMD          = 6
	fieldDeviceAssignment = 9
	fieldUseShardy        = 19
	fieldOptLevel         = 24
	fieldMemoryFitting    = 25
)

// marshal encodes o with the assignment ids as an xla.CompileOptionsProto.
func (o CompileOptions) marshal(ids []int) ([]byte, error) {
	r, n := o.size()
	var build []byte
	build = appendInt(build, fieldDeviceOrdinal, -1) // unset
	build = appendInt(build, fieldNumReplicas, int64(r))
	build = appendInt(build, fieldNumPartitions, int64(n))
	build = appendBool(build, fieldUseSPMD, true)
	assign := appendInt(appendInt(nil, 1, int64(r)), 2, int64(n))
	for p := range n { // one ComputationDevice per partition
		var list []byte
		for k := range r {
			list = protowire.AppendVarint(list, uint64(ids[k*n+p]))
		}
		assign = appendMessage(assign, 3, appendMessage(nil, 1, list))
	}
	build = appendMessage(build, fieldDeviceAssignment, assign)
	build = appendBool(build, fieldUseShardy, o.Shardy)
	if o.OptLevel != 0 {
		build = appendInt(build, fieldOptLevel, int64(o.OptLevel))
	}
	if o.MemoryFittingLevel != 0 {
		build = appendInt(build, fieldMemoryFitting, int64(o.MemoryFittingLevel))
	}
	out := appendMessage(nil, fieldBuildOptions, build)
	for _, k := range slices.Sorted(maps.Keys(o.Flags)) {
		v, err := appendOverride(o.Flags[k])
		if err != nil {
			return nil, fmt.Errorf("pjrt: compile: flag %q: %w", k, err)
		}
		out = appendMessage(out, fieldEnvOverrides, appendMessage(appendMessage(nil, 1, []byte(k)), 2, v))
	}
	return out, nil
}

// appendOverride encodes an xla.OptionOverrideProto.
func appendOverride(x any) ([]byte, error) {
	switch x := x.(type) {
	case string:
		return appendMessage(nil, 1, []byte(x)), nil
	case bool:
		return appendBool(nil, 2, x), nil
	case int:
		return appendInt(nil, 3, int64(x)), nil
	case float64:
		b := protowire.AppendTag(nil, 4, protowire.Fixed64Type)
		return protowire.AppendFixed64(b, floatBits(x)), nil
	}
	return nil, fmt.Errorf("value of type %T; want bool, int, float64 or string", x)
}
