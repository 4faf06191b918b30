package chrometrace

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1_800_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }
	tr := New()
	tr.Add(
		Event{"host", "trainer", "wait", at(3), 2 * time.Millisecond, map[string]any{"step": 1}},
		Event{"host", "trainer", `da"ta`, at(0), 500 * time.Nanosecond, nil},
		Event{"device", "0", "step", at(1), 4 * time.Millisecond, nil},
	)
	var b bytes.Buffer
	n, err := tr.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	var doc struct {
		TraceEvents []struct {
			Name, Ph string
			Ts, Dur  float64
			PID, TID int
			Args     map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &doc))
	names := map[[2]int]string{}
	var seen []string
	for _, e := range doc.TraceEvents {
		switch e.Ph {
		case "M":
			names[[2]int{e.PID, e.TID}] = e.Args["name"].(string)
		case "X":
			seen = append(seen, names[[2]int{e.PID, 0}]+"/"+names[[2]int{e.PID, e.TID}]+"/"+e.Name)
		}
	}
	require.Equal(t, []string{`host/trainer/da"ta`, "device/0/step", "host/trainer/wait"}, seen)
	last := doc.TraceEvents[len(doc.TraceEvents)-1]
	require.Equal(t, []float64{3000, 2000}, []float64{last.Ts, last.Dur})
	require.Equal(t, map[string]any{"step": 1.0}, last.Args)
	require.Equal(t, 0.5, doc.TraceEvents[2].Dur)
}

// Nothing is traced where there is no trace, and nothing is a document too.
func TestNone(t *testing.T) {
	var none *Trace
	none.Span("a", "b", "c", nil)()
	none.Add(Event{})
	var b bytes.Buffer
	_, err := none.WriteTo(&b)
	require.NoError(t, err)
	require.True(t, json.Valid(b.Bytes()))
}
