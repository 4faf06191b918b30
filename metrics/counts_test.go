package metrics

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Counts are an array in JSON and a histogram in TensorBoard.
func TestCounts(t *testing.T) {
	w := window()
	w.Counts = []Counts{{"moe/expert_tokens", []float64{3, 0, math.NaN(), 5}}}
	require.Contains(t, string(jsonLine(w.Event())), `,"moe/expert_tokens":[3,0,null,5]}`+"\n")

	folder := t.TempDir()
	s, err := openTensorBoard(folder, time.Unix(1_800_000_000, 0), 0)
	require.NoError(t, err)
	require.NoError(t, s.write(w.Event()))
	require.NoError(t, s.close())
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	_, _, points := readEvents(t, files[0])
	require.Len(t, points, len(w.Event().Scalars)+1)

	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(raw) // behind the version
	raw = raw[16+n:]
	record := raw[12 : 12+binary.LittleEndian.Uint64(raw)]
	doubles := map[int][]float64{}
	readProto(t, record, func(number int, _ uint64, body []byte) {
		if number != 5 {
			return
		}
		readProto(t, body, func(_ int, _ uint64, value []byte) {
			readProto(t, value, func(number int, _ uint64, histogram []byte) {
				if number != 5 {
					return
				}
				readProto(t, histogram, func(number int, varint uint64, packed []byte) {
					if packed == nil {
						doubles[number] = []float64{math.Float64frombits(varint)}
					}
					for i := 0; i < len(packed); i += 8 {
						doubles[number] = append(doubles[number], math.Float64frombits(binary.LittleEndian.Uint64(packed[i:])))
					}
				})
			})
		})
	})
	require.Equal(t, map[int][]float64{1: {0}, 2: {4}, 3: {8}, 4: {15}, 5: {45}, 6: {1, 2, 3, 4}, 7: {3, 0, 0, 5}}, doubles)
}
