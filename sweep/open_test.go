package sweep

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"titan/plan"
)

// fullSweep is a sweep with all there can be.
func fullSweep() *Sweep {
	exposed, loss := 0.25, 3.5
	s := &Sweep{
		Schema: Schema, Name: "all", Mode: Weak, Source: Plan, Recipe: "r", Set: []string{"a.b=c"}, Hash: "0123", Model: "llama3 8B", SeqLen: 8192, Kind: "v6e", Precision: "bfloat16",
		Keys: []string{"a.b"}, Started: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), Updated: time.Date(2026, 11, 30, 1, 2, 4, 0, time.UTC),
	}
	for _, id := range []string{"one", "two", "three"} {
		s.Points = append(s.Points, Point{
			ID: id, Values: []Value{{"a.b", "x\"y"}}, Set: []string{"a.b=x"}, Chips: 4, Devices: 4, Topology: "v6e:2x2", Mesh: []Axis{{"dp_shard", 4}}, GlobalBatch: 8, LocalBatch: 2, Passes: 1, Tokens: 65536,
			Source: Plan, Status: OK, StepSeconds: 1.5, LowSeconds: 1, HighSeconds: 2, TPS: 4, TPSDevice: 1, TPSChip: 1, MFU: &plan.ByConvention{Causal: 30, Full: 40}, Memory: 5, Limit: 6,
			Exposed: &exposed, Breakdown: map[string]float64{"matmul": 1}, Loss: &loss, PlanFile: "points/one/plan.json", Wall: 7, Versions: Versions{"t", "p"},
		})
	}
	return s
}

func written(t *testing.T, text []byte) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), text, 0o666))
	return dir
}

func TestOpenWhole(t *testing.T) {
	text, err := json.MarshalIndent(fullSweep(), "", "  ")
	require.NoError(t, err)
	dir := written(t, append(text, '\n'))
	for _, path := range []string{dir, filepath.Join(dir, FileName)} {
		s, warnings, err := Open(path)
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.Equal(t, fullSweep(), s)
	}
	_, _, err = Open(filepath.Join(dir, "other"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Cut off at any byte, the points before it are there, and a warning names the file.
func TestOpenCutOff(t *testing.T) {
	whole := fullSweep()
	text, err := json.Marshal(whole)
	require.NoError(t, err)
	points := bytes.Index(text, []byte(`"points"`))
	most := 0
	for n := range text {
		s, warnings, err := decode(text[:n])
		if err != nil {
			require.Less(t, n, 20, "byte %d", n)
			continue
		}
		require.NotEmpty(t, warnings, "byte %d", n)
		require.GreaterOrEqual(t, len(s.Points), most)
		most = max(most, len(s.Points))
		for i, p := range s.Points {
			require.Equal(t, whole.Points[i], p)
		}
		if n > points {
			require.Equal(t, whole.Hash, s.Hash)
		}
	}
	require.Equal(t, 3, most)
	_, warnings, err := Open(written(t, text[:points+200]))
	require.NoError(t, err)
	require.Contains(t, warnings[0], FileName+": damaged or cut off behind byte ")
}

// Bytes that are others than were written never end more than a field or a point
// without a warning or an error; nothing panics.
func TestOpenDamaged(t *testing.T) {
	text, err := json.Marshal(fullSweep())
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		damaged := bytes.Clone(text)
		for range 1 + rng.IntN(3) {
			damaged[rng.IntN(len(damaged))] = byte(rng.IntN(256))
		}
		s, warnings, err := decode(damaged)
		if err == nil && len(warnings) == 0 {
			require.Len(t, s.Points, 3)
		}
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	for text, says := range map[string]string{
		"":             "does not begin with {",
		"[]":           "does not begin with {",
		"{}":           "nothing of the sweep can be read",
		`{"schema":2}`: "is of format 2; this titan reads up to 1",
	} {
		_, _, err := Open(written(t, []byte(text)))
		require.ErrorContains(t, err, says, text)
	}
	for text, says := range map[string]string{
		`{"name":"x"}`:                                                               "the version of the format is missing",
		`{"schema":1,"seq_len":"x","points":[]}`:                                     `"seq_len" cannot be read`,
		`{"schema":1,"pionts":[]}`:                                                   `field "pionts" is not known and left out`,
		`{"schema":1,"points":[{"id":"x","status":"ok","tsp":1}]}`:                   `point 1: field "tsp" is not known`,
		`{"schema":1,"points":{}}`:                                                   "points is no list",
		`{"schema":1,"points":[{"id":7}]}`:                                           "point 1 has a number for id; it is left out",
		`{"schema":1,"points":[{"id":""}]}`:                                          "point 1 has no id",
		`{"schema":1,"points":[{"id":"../x","status":"ok"}]}`:                        "no name of a folder",
		`{"schema":1,"points":[{"id":"x","status":"ok","devices":-1}]}`:              "below zero",
		`{"schema":1,"points":[{"id":"x","status":"fine"}]}`:                         `unknown status "fine"`,
		`{"schema":1,"points":[{"id":"x","status":"ok"},{"id":"x","status":"ok"}]}`:  `point 2 has the id "x" of another`,
		`{"schema":1,"points":[{"id":"x","status":"ok"}],`:                           "cut off",
		`{"schema":1,"points":[{"id":"x","status":"ok"},`:                            "point 2",
		`{"schema":1,"points":[{"id":"x","status":"ok","step_seconds":1e999}]}`:      "it is left out",
		`{"schema":1,"points":[{"id":"x","status":"ok","breakdown_seconds":{"a":[]}`: "cut off",
	} {
		_, warnings, err := Open(written(t, []byte(text)))
		require.NoError(t, err, text)
		require.NotEmpty(t, warnings, text)
		require.Contains(t, warnings[0], says, text)
	}
}
