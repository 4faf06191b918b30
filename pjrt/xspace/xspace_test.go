package xspace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// message spells fields: a number is a varint, bytes are bytes, a float a fixed64.
func message(fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		n := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		case float64:
			b = protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), 7)
		}
	}
	return b
}

func TestParse(t *testing.T) {
	plane := message(
		2, "/device:TPU:0",
		// A line may come before the names of its events.
		3, message(2, "XLA Ops", 3, 1_000, 9, 5_000, 4, message(1, 4, 2, 7_000, 3, 9_000), 4, message(1, 5, 2, 20_000, 3, 1_000)),
		3, message(2, "queue", 11, "shown queue"),
		4, message(1, 4, 2, message(1, 4, 2, "fusion.1")),
		4, message(1, 5, 2, message(1, 5, 2, "copy.2", 4, "copy")),
		6, message(1, 3, 2, 1.5),
	)
	raw := message(1, plane, 4, "host")
	planes, err := Parse(raw)
	require.NoError(t, err)
	at := time.Unix(0, 1000)
	require.Equal(t, []Plane{{Name: "/device:TPU:0", Lines: []Line{
		{Name: "XLA Ops", Start: at, Events: []Event{{"fusion.1", 7, 9}, {"copy", 20, 1}}},
		{Name: "shown queue"},
	}}}, planes)
	// Cut off anywhere it is an error, or a shorter message.
	for cut := range raw {
		got, err := Parse(raw[:cut])
		require.True(t, err != nil || len(got) <= 1)
	}
	_, err = Parse([]byte("no message"))
	require.Error(t, err)
}
