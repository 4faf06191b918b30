package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/mesh"
	"titan/pjrt/hlo"
)

// The compute unit's stretches fill the time, one after another, at every depth.
func filled(t *testing.T, line *Timeline) {
	t.Helper()
	at := 0.0
	for _, s := range line.Compute {
		require.InDelta(t, at, s.Start, 1e-6*line.Seconds)
		at = s.Start + s.Seconds
		if s.Inside != nil {
			require.InEpsilon(t, s.Seconds, s.Turns*s.Inside.Seconds, 1e-9)
			filled(t, s.Inside)
		}
	}
	require.InEpsilon(t, line.Seconds, at, 1e-6)
	for _, s := range line.Links {
		require.LessOrEqual(t, s.Start+s.Seconds, line.Seconds*(1+1e-9))
	}
}

func TestTimelineOfRecordedPrograms(t *testing.T) {
	for _, c := range recorded {
		t.Run(c.name, func(t *testing.T) {
			s := recordedStep(t, c.recipe, c.set)
			r := s.report(Options{Quick: c.quick})
			require.NoError(t, r.predict(s, program(t, c.name, s, c.quick), c.quick, nil))
			line := r.Prediction.Timeline
			require.InEpsilon(t, r.Prediction.Seconds, line.Seconds, 1e-9)
			filled(t, line)
			loops := 0
			for _, s := range line.Compute {
				if s.Inside != nil {
					loops++
				}
			}
			require.GreaterOrEqual(t, loops, 2, "layers forward and backward")
			require.NotEmpty(t, line.Links)
		})
	}
}

func TestTimelineOfALoop(t *testing.T) {
	s := newSmall()
	body := s.computation("body")
	add(body, working(100))
	add(body, gather())
	add(s.comp, working(1000))
	add(s.comp, &hlo.Instruction{Opcode: "while", Shape: array(8), Called: []*hlo.Computation{body, s.computation("condition")}, BackendConfig: []byte(`{"known_trip_count":{"n":"5"}}`)})
	add(s.comp, working(1000))
	mc, m := onTopology(t, "v5e:4x4", mesh.Axis{Name: "dp_shard", Size: 16})
	w := newWalker(s.module, mc, Cycles, newGroups(m).of)
	w.run(s.module.Entry, 1, 1)
	filled(t, w.line)
	require.Len(t, w.line.Compute, 3)
	loop := w.line.Compute[1]
	require.Equal(t, loopPart, loop.Part)
	require.Equal(t, 5.0, loop.Turns)
	require.Equal(t, []string{Other.String(), Communication.String()}, []string{loop.Inside.Compute[0].Part, loop.Inside.Compute[1].Part})
	require.Equal(t, "all-gather", loop.Inside.Links[0].Part)
}

// Many short stretches are joined without losing time; long ones stay.
func TestOutlineKeepsTheWhole(t *testing.T) {
	line := &Timeline{}
	for i := range 5000 {
		d := 1e-6
		if i == 2500 {
			d = 1e-2
		}
		line.Compute = append(line.Compute, Stretch{Part: fmt.Sprint(i % 2), Start: line.Seconds, Seconds: d})
		line.Seconds += d
	}
	line.outline(0)
	filled(t, line)
	require.LessOrEqual(t, len(line.Compute), maxStretches)
}
