package hlo

import (
	"fmt"
	"strings"
)

// ShardingKind is the form of a Sharding.
type ShardingKind int

// Forms of shardings, with XLA's numbers.
const (
	Replicated ShardingKind = iota
	Maximal                 // on one device
	TupleSharding
	Tiled
	Manual
	Unknown
	Unreduced
)

// Sharding says how a value is spread over the devices (OpSharding).
type Sharding struct {
	Kind ShardingKind
	// Tiles is the extent of the device grid by dimension of the value; with
	// trailing dimensions for the devices that hold the same data.
	Tiles []int
	// Devices lists the grid in row-major order.
	Devices []int
	// ReplicateLast says that the last grid dimension replicates; LastTileDims
	// says what each of several trailing dimensions does.
	ReplicateLast bool
	LastTileDims  []ShardingKind
	Elements      []Sharding // of a tuple
}

func parseSharding(b []byte, depth int) (*Sharding, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	s := new(Sharding)
	var dims, perm []int
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			s.Kind = ShardingKind(x.val)
		case 3:
			s.Tiles, err = appendInts(s.Tiles, x)
		case 4:
			s.Devices, err = appendInts(s.Devices, x)
		case 5:
			var e *Sharding
			if e, err = parseSharding(x.data, depth+1); err == nil {
				s.Elements = append(s.Elements, *e)
			}
		case 6:
			s.ReplicateLast = x.bool()
		case 8:
			var kinds []int
			kinds, err = appendInts(nil, x)
			for _, k := range kinds {
				s.LastTileDims = append(s.LastTileDims, ShardingKind(k))
			}
		case 9:
			dims, err = appendInts(dims, x)
		case 10:
			perm, err = appendInts(perm, x)
		}
		return err
	})
	if err == nil && len(dims) > 0 {
		s.Devices, err = Iota(dims, perm)
	}
	return s, err
}

var shardingNames = [...]string{"replicated", "maximal", "tuple", "devices", "manual", "unknown", "unreduced"}

func (k ShardingKind) String() string {
	if k >= 0 && int(k) < len(shardingNames) {
		return shardingNames[k]
	}
	return fmt.Sprintf("sharding%d", int(k))
}

// String returns a compact notation close to XLA's, with the devices written
// out: "{devices=[2,1]0,1}", "{replicated}".
func (s Sharding) String() string {
	switch s.Kind {
	case TupleSharding:
		e := make([]string, len(s.Elements))
		for i, x := range s.Elements {
			e[i] = x.String()
		}
		return "{" + strings.Join(e, ", ") + "}"
	case Maximal:
		return "{maximal device=" + joinInts(s.Devices) + "}"
	case Tiled:
		t := fmt.Sprintf("{devices=[%s]%s", joinInts(s.Tiles), joinInts(s.Devices))
		if s.ReplicateLast {
			t += " last_tile_dim_replicate"
		}
		for i, k := range s.LastTileDims {
			sep := ","
			if i == 0 {
				sep = " last_tile_dims="
			}
			t += sep + k.String()
		}
		return t + "}"
	}
	return "{" + s.Kind.String() + "}"
}
