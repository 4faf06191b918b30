package metrics

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tbValue is a point as a reader sees it.
type tbValue struct {
	Step  int64
	Wall  float64
	Tag   string
	Value float32
}

// readProto splits a message into its fields, by the encoding's description and
// without the library that wrote it.
func readProto(t *testing.T, b []byte, field func(number int, varint uint64, bytes []byte)) {
	uvarint := func() uint64 {
		v, n := binary.Uvarint(b)
		require.Positive(t, n)
		b = b[n:]
		return v
	}
	for len(b) > 0 {
		key := uvarint()
		number := int(key >> 3)
		switch key & 7 {
		case 0:
			field(number, uvarint(), nil)
		case 1:
			field(number, binary.LittleEndian.Uint64(b), nil)
			b = b[8:]
		case 2:
			n := uvarint()
			field(number, 0, b[:n])
			b = b[n:]
		case 5:
			field(number, uint64(binary.LittleEndian.Uint32(b)), nil)
			b = b[4:]
		default:
			require.Fail(t, "wire type", "%d", key&7)
		}
	}
}

// readEvents reads an event file: its version, the steps at which a process
// began, and its points.
func readEvents(t *testing.T, path string) (version string, starts []int64, points []tbValue) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	masked := func(data []byte) uint32 {
		c := crc32.Checksum(data, crc32.MakeTable(0x82f63b78))
		return uint32((uint64(c>>15)|uint64(c)<<17)&0xffffffff) + 0xa282ead8
	}
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		require.Equal(t, masked(b[:8]), binary.LittleEndian.Uint32(b[8:]))
		data := b[12 : 12+n]
		require.Equal(t, masked(data), binary.LittleEndian.Uint32(b[12+n:]))
		b = b[16+n:]
		var p tbValue
		readProto(t, data, func(number int, varint uint64, _ []byte) {
			switch number {
			case 1:
				p.Wall = math.Float64frombits(varint)
			case 2:
				p.Step = int64(varint)
			}
		})
		readProto(t, data, func(number int, _ uint64, body []byte) {
			switch number {
			case 3:
				version = string(body)
			case 7:
				starts = append(starts, p.Step)
			case 5:
				readProto(t, body, func(_ int, _ uint64, value []byte) {
					v := p
					readProto(t, value, func(number int, varint uint64, body []byte) {
						switch number {
						case 1:
							v.Tag = string(body)
						case 2:
							v.Value = math.Float32frombits(uint32(varint))
						}
					})
					points = append(points, v)
				})
			}
		})
	}
	return version, starts, points
}

// writeRun writes two processes of a run: the second goes on from step 20, while
// the first had come to 30.
func writeRun(t *testing.T, folder string) {
	at := time.Unix(1_800_000_000, 250e6)
	s, err := openTensorBoard(folder, at, 0)
	require.NoError(t, err)
	for _, step := range []int64{1, 10, 20, 30} {
		w := window()
		w.Step, w.Loss, w.Time = step, float64(step)/8, at.Add(time.Duration(step)*time.Second)
		require.NoError(t, s.write(w.Event()))
	}
	require.NoError(t, s.write((&Validation{Step: 20, Loss: 2.5, TPS: 100, Time: at}).Event()))
	require.NoError(t, s.write(Event{Kind: SummaryEvent, Scalars: []Scalar{{"no curve", 1}}}))
	require.NoError(t, s.close())
	s, err = openTensorBoard(folder, at.Add(time.Minute), 20)
	require.NoError(t, err)
	w := window()
	w.Step, w.Loss = 30, math.Inf(1)
	require.NoError(t, s.write(w.Event()))
	w.Step, w.Loss, w.Counts = 1<<40, 7, []Counts{{"moe/expert_tokens", []float64{2, 0, 5}}}
	require.NoError(t, s.write(w.Event()))
	require.NoError(t, s.close())
}

func TestEventFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "tb")
	writeRun(t, folder)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	require.Regexp(t, `^events\.out\.tfevents\.1800000000\..+\.\d+\.0$`, filepath.Base(files[0]))
	require.Regexp(t, `^events\.out\.tfevents\.1800000060\..+\.\d+\.0$`, filepath.Base(files[1]))

	version, starts, points := readEvents(t, files[0])
	require.Equal(t, "brain.Event:2", version)
	require.Empty(t, starts)
	names := len(window().Event().Scalars)
	require.Len(t, points, 4*names+2)
	require.Equal(t, tbValue{10, 1_800_000_010.25, "loss_metrics/global_avg_loss", 1.25}, points[names])
	require.Equal(t, tbValue{20, 1_800_000_000.25, "validation_metrics/loss", 2.5}, points[4*names])

	_, starts, points = readEvents(t, files[1])
	require.Equal(t, []int64{21}, starts)
	require.Equal(t, float32(math.Inf(1)), points[0].Value)
	require.EqualValues(t, 1<<40, points[names].Step)

	// A second file of the same second has another name.
	s, err := openTensorBoard(folder, time.Unix(1_800_000_000, 0), 0)
	require.NoError(t, err)
	require.Regexp(t, `\.1$`, s.name())
	require.NoError(t, s.close())
}

// The values of the checksum that TFRecord and others publish (RFC 3720, B.4).
func TestChecksum(t *testing.T) {
	require.EqualValues(t, 0x8a9136aa, crc32.Checksum(make([]byte, 32), castagnoli))
	c := uint32(0x8a9136aa)
	require.Equal(t, (c>>15|c<<17)+0xa282ead8, maskedCRC(make([]byte, 32)))
}

// Versions of TensorBoard and of what its reader imports.
var tensorBoard = []string{"tensorboard==2.20.0", "protobuf==6.33.0", "numpy", "absl-py==2.3.1", "packaging==25.0"}

const readScript = `
import json, sys
from tensorboard.backend.event_processing import event_accumulator
a = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.SCALARS: 0})
a.Reload()
read = {t: [[e.step, e.wall_time, repr(e.value)] for e in a.Scalars(t)] for t in a.Tags()["scalars"]}
for t in a.Tags()["histograms"]:
    read[t] = [[e.step, e.histogram_value.bucket_limit, e.histogram_value.bucket] for e in a.Histograms(t)]
json.dump(read, sys.stdout)
`

// TensorBoard's own reader finds what was written. It is fetched with pip into
// the user's cache, once.
func TestTensorBoardReads(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed (Debian: apt-get install python3-pip); TensorBoard's own reader is not tried")
	}
	site := fetchTensorBoard(t, python)
	folder := filepath.Join(t.TempDir(), "tb")
	writeRun(t, folder)
	cmd := exec.Command(python, "-c", readScript, folder)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+site, "PYTHONDONTWRITEBYTECODE=")
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		require.Fail(t, "TensorBoard's reader failed", "%s", exit.Stderr)
	}
	require.NoError(t, err)
	var read map[string][][3]any
	require.NoError(t, json.Unmarshal(out, &read))
	require.Len(t, read, len(window().Event().Scalars)+3)
	require.Equal(t, [][3]any{{float64(1 << 40), []any{1.0, 2.0, 3.0}, []any{2.0, 0.0, 5.0}}}, read["moe/expert_tokens"])
	// Step 30 of the first process is gone: the second went on from 20.
	require.Equal(t, [][3]any{{1.0, 1_800_000_001.25, "0.125"}, {10.0, 1_800_000_010.25, "1.25"}, {20.0, 1_800_000_020.25, "2.5"}, {30.0, 1_800_000_000.5, "inf"}, {float64(1 << 40), 1_800_000_000.5, "7.0"}},
		read["loss_metrics/global_avg_loss"])
	require.Equal(t, [][3]any{{20.0, 1_800_000_000.25, "2.5"}}, read["validation_metrics/loss"])
	require.Len(t, read["time_metrics/data_loading(%)"], 5)
}

// fetchTensorBoard returns a folder with the reader for Python's path.
func fetchTensorBoard(t *testing.T, python string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("there is no cache folder for TensorBoard (%v); set HOME or XDG_CACHE_HOME", err)
	}
	version, err := exec.Command(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2], end='')").Output()
	require.NoError(t, err)
	site := filepath.Join(cache, "titan", "test", "tensorboard-2.20.0-py"+string(version))
	if _, err := os.Stat(site); err == nil {
		return site
	}
	if out, err := exec.Command(python, "-m", "pip", "--version").CombinedOutput(); err != nil {
		t.Skipf("python3 has no pip (%s); install it (Debian: apt-get install python3-pip); TensorBoard's own reader is not tried", out)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(site), 0o777))
	tmp, err := os.MkdirTemp(filepath.Dir(site), ".tensorboard-")
	require.NoError(t, err)
	defer os.RemoveAll(tmp)
	args := append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--target", tmp}, tensorBoard...)
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		t.Skipf("pip could not fetch TensorBoard; its own reader is not tried. Check the network and pip's settings:\n%s", out)
	}
	if err := os.Rename(tmp, site); err != nil {
		_, there := os.Stat(site) // another test process was faster
		require.NoError(t, there, "%v", err)
	}
	return site
}
