package metrics

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of TensorBoard's Event, Summary and SessionLog messages
// (tensorboard/compat/proto/event.proto, summary.proto).
const (
	eventWallTime   = 1 // double
	eventStep       = 2 // int64
	eventVersion    = 3 // string
	eventSummary    = 5
	eventSessionLog = 7
	summaryValue    = 1 // repeated
	valueTag        = 1 // string
	valueSimple     = 2 // float
	sessionStatus   = 1 // enum
	sessionStart    = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC is the checksum of a TFRecord: the CRC-32C, turned by 15 bits and
// moved, so that checksums of data that hold checksums are no worse.
func maskedCRC(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// tfRecord frames a record: length, checksum of the length, data, checksum of
// the data, all little-endian.
func tfRecord(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, len(data)+16), uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(b))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(data))
}

// tensorBoardSink writes an event file. Each process writes one of its own, as
// TensorBoard expects; it shows those of a folder as one run.
type tensorBoardSink struct{ *appender }

func openTensorBoard(folder string, now time.Time, step int64) (*tensorBoardSink, error) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	// TensorBoard reads the files in the order of their names.
	for n := 0; ; n++ {
		path := filepath.Join(folder, fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), n))
		if _, err := os.Stat(path); err == nil {
			continue
		}
		a, err := openAppender(path, func(f *os.File) (int64, error) { return f.Seek(0, io.SeekEnd) })
		if err != nil {
			return nil, err
		}
		s := &tensorBoardSink{a}
		if err := s.begin(now, step); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return s, nil
	}
}

// begin writes the version and, where a run goes on, that what an earlier
// process wrote of later steps does not count.
func (s *tensorBoardSink) begin(now time.Time, step int64) error {
	head := protoEvent(now, 0)
	head = protowire.AppendTag(head, eventVersion, protowire.BytesType)
	head = protowire.AppendString(head, "brain.Event:2")
	if err := s.append(tfRecord(head)); err != nil || step == 0 {
		return err
	}
	status := protowire.AppendVarint(protowire.AppendTag(nil, sessionStatus, protowire.VarintType), sessionStart)
	b := protoEvent(now, step+1)
	b = protowire.AppendTag(b, eventSessionLog, protowire.BytesType)
	return s.append(tfRecord(protowire.AppendBytes(b, status)))
}

func (s *tensorBoardSink) name() string { return s.f.Name() }

func (s *tensorBoardSink) write(e Event) error {
	if e.Kind != TrainEvent && e.Kind != ValidationEvent {
		return nil // no curve
	}
	var summary []byte
	for _, x := range e.Scalars {
		v := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), x.Name)
		v = protowire.AppendFixed32(protowire.AppendTag(v, valueSimple, protowire.Fixed32Type), math.Float32bits(float32(x.Value)))
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), v)
	}
	for _, c := range e.Counts {
		v := protowire.AppendString(protowire.AppendTag(nil, valueTag, protowire.BytesType), c.Name)
		v = protowire.AppendBytes(protowire.AppendTag(v, valueHisto, protowire.BytesType), c.histogram())
		summary = protowire.AppendBytes(protowire.AppendTag(summary, summaryValue, protowire.BytesType), v)
	}
	b := protowire.AppendTag(protoEvent(e.Time, e.Step), eventSummary, protowire.BytesType)
	return s.append(tfRecord(protowire.AppendBytes(b, summary)))
}

func protoEvent(at time.Time, step int64) []byte {
	b := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
	b = protowire.AppendTag(b, eventStep, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(step))
}
