// Package xspace reads what a PJRT plugin's profiler collects: an XSpace message
// (tsl/profiler/protobuf/xplane.proto), of which it takes what a timeline needs.
package xspace

import (
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Plane is a device, or the threads of the host.
type Plane struct {
	Name  string
	Lines []Line
}

// Line is a thread of the host, or one of a device's queues.
type Line struct {
	Name   string
	Start  time.Time
	Events []Event
}

// Event is something that took Length from Start after the line's.
type Event struct {
	Name          string
	Start, Length time.Duration
}

// Field numbers, by message.
const (
	spacePlanes = 1

	planeName, planeLines, planeMetadata = 2, 3, 4

	mapKey, mapValue            = 1, 2
	metadataName, metadataShown = 2, 4

	lineName, lineStart, lineEvents, lineShown = 2, 3, 4, 11 // start in ns

	eventMetadata, eventOffset, eventLength = 1, 2, 3 // in ps
)

var errDamaged = errors.New("xspace: this is no XSpace message")

// Parse reads a message.
func Parse(raw []byte) ([]Plane, error) {
	var planes []Plane
	err := fields(raw, func(n protowire.Number, _ uint64, body []byte) error {
		if n != spacePlanes {
			return nil
		}
		p, err := plane(body)
		planes = append(planes, p)
		return err
	})
	return planes, err
}

func plane(raw []byte) (Plane, error) {
	var p Plane
	names := map[uint64]string{}
	var lines [][]byte // after the names
	err := fields(raw, func(n protowire.Number, _ uint64, body []byte) error {
		switch n {
		case planeName:
			p.Name = string(body)
		case planeLines:
			lines = append(lines, body)
		case planeMetadata:
			return metadata(body, names)
		}
		return nil
	})
	for _, raw := range lines {
		l, lerr := line(raw, names)
		err = errors.Join(err, lerr)
		p.Lines = append(p.Lines, l)
	}
	return p, err
}

// metadata reads an entry of the plane's map from numbers to events' names.
func metadata(raw []byte, names map[uint64]string) error {
	var key uint64
	var name, shown string
	err := fields(raw, func(n protowire.Number, x uint64, body []byte) error {
		switch n {
		case mapKey:
			key = x
		case mapValue:
			return fields(body, func(n protowire.Number, _ uint64, body []byte) error {
				switch n {
				case metadataName:
					name = string(body)
				case metadataShown:
					shown = string(body)
				}
				return nil
			})
		}
		return nil
	})
	if names[key] = name; shown != "" {
		names[key] = shown
	}
	return err
}

func line(raw []byte, names map[uint64]string) (Line, error) {
	var l Line
	var shown string
	err := fields(raw, func(n protowire.Number, x uint64, body []byte) error {
		switch n {
		case lineName:
			l.Name = string(body)
		case lineShown:
			shown = string(body)
		case lineStart:
			l.Start = time.Unix(0, int64(x))
		case lineEvents:
			var e Event
			err := fields(body, func(n protowire.Number, x uint64, _ []byte) error {
				switch n {
				case eventMetadata:
					e.Name = names[x]
				case eventOffset:
					e.Start = time.Duration(x / 1000)
				case eventLength:
					e.Length = time.Duration(x / 1000)
				}
				return nil
			})
			l.Events = append(l.Events, e)
			return err
		}
		return nil
	})
	if shown != "" {
		l.Name = shown
	}
	return l, err
}

// fields calls f with every field of a message: its number and its varint or bytes.
func fields(raw []byte, f func(n protowire.Number, x uint64, body []byte) error) error {
	for len(raw) > 0 {
		n, kind, size := protowire.ConsumeTag(raw)
		if size < 0 {
			return errDamaged
		}
		raw = raw[size:]
		var x uint64
		var body []byte
		switch kind {
		case protowire.VarintType:
			x, size = protowire.ConsumeVarint(raw)
		case protowire.BytesType:
			body, size = protowire.ConsumeBytes(raw)
		default:
			size = protowire.ConsumeFieldValue(n, kind, raw)
		}
		if size < 0 {
			return errDamaged
		}
		raw = raw[size:]
		if err := f(n, x, body); err != nil {
			return err
		}
	}
	return nil
}
