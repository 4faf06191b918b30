package kernels

// AttentionTiles are the numbers of queries and of keys of a tile; 0 is chosen.
type AttentionTiles struct {
	Q int `toml:"queries" doc:"queries of a tile; 0: by the chip"`
	K int `toml:"keys" doc:"keys of a tile; 0: by the chip"`
}

// attentionTable has the sizes to start from, by chip: those with the fewest
// scheduled bundles of instructions for each pair of query and key among the sizes
// compiled, some 450 for each step included (docs/kernels.md). Not measured on a
// chip.
var attentionTable = map[string]AttentionTiles{
	"v4":    {512, 512},
	"v5e":   {512, 512},
	"v5p":   {512, 1024},
	"v6e":   {1024, 1024},
	"tpu7x": {1024, 1024},
	"":      {256, 256}, // interpreted
}

// fit replaces zero fields by the table's, made to divide the shape.
func (t AttentionTiles) fit(target Target, s attentionShape) AttentionTiles {
	kind := ""
	if target.Chip != nil {
		kind = target.Chip.Kind
	}
	pick := attentionTable[kind]
	if t.Q == 0 {
		t.Q = divisor(s.Q, pick.Q, 1)
	}
	if t.K == 0 {
		t.K = divisor(s.T, pick.K, 1)
	}
	return t
}
