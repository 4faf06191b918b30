package compilecache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"titan/pjrt"
)

// An entry is magic, the sha256 of all that follows, the length of the header
// (8 bytes, little-endian), the header as JSON, and the plugin's bytes.
const (
	magic     = "TITANEXE"
	sumAt     = len(magic)
	lengthAt  = sumAt + sha256.Size
	headerAt  = lengthAt + 8
	maxHeader = 1 << 16
)

// header describes the program of an entry.
type header struct {
	Key         string    `json:"key"`
	Name        string    `json:"name"` // of the module
	Outputs     int       `json:"outputs"`
	Fingerprint string    `json:"fingerprint,omitempty"` // by the plugin, if it has one
	Platform    string    `json:"platform"`
	Plugin      string    `json:"plugin"`
	Created     time.Time `json:"created"`
}

func newHeader(t target, exe *pjrt.Executable, key string) (header, error) {
	f, err := fingerprint(exe)
	return header{Key: key, Name: exe.Name(), Outputs: exe.NumOutputs(), Fingerprint: f,
		Platform: t.platform, Plugin: t.plugin.Path(), Created: time.Now().UTC().Truncate(time.Second)}, err
}

func fingerprint(exe *pjrt.Executable) (string, error) {
	f, err := exe.Fingerprint()
	if pjrt.IsUnimplemented(err) {
		return "", nil
	}
	return f, err
}

// describes reports how a loaded program differs from the one that was stored.
func (h header) describes(exe *pjrt.LoadedExecutable) error {
	f, err := fingerprint(exe.Executable)
	switch {
	case err != nil:
		return err
	case exe.Name() != h.Name || exe.NumOutputs() != h.Outputs || f != h.Fingerprint:
		return fmt.Errorf("it is %q with %d outputs and fingerprint %q, stored was %q with %d and %q",
			exe.Name(), exe.NumOutputs(), f, h.Name, h.Outputs, h.Fingerprint)
	}
	return nil
}

func encodeEntry(h header, blob []byte) ([]byte, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(head) > maxHeader {
		return nil, fmt.Errorf("the header has %d bytes", len(head))
	}
	data := make([]byte, headerAt, headerAt+len(head)+len(blob))
	copy(data, magic)
	binary.LittleEndian.PutUint64(data[lengthAt:], uint64(len(head)))
	data = append(append(data, head...), blob...)
	sum := sha256.Sum256(data[lengthAt:])
	copy(data[sumAt:], sum[:])
	return data, nil
}

// readEntry returns an entry that is whole and has the key.
func readEntry(path, key string) (header, []byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return header{}, nil, err
	}
	if len(data) < headerAt || !bytes.HasPrefix(data, []byte(magic)) {
		return header{}, nil, fmt.Errorf("%d bytes that are no entry", len(data))
	}
	if sum := sha256.Sum256(data[lengthAt:]); !bytes.Equal(sum[:], data[sumAt:lengthAt]) {
		return header{}, nil, errors.New("its checksum does not fit its content")
	}
	h, n, err := decodeHeader(data)
	if err != nil {
		return header{}, nil, err
	}
	if h.Key != key {
		return header{}, nil, fmt.Errorf("it is the entry %s", h.Key)
	}
	return h, data[headerAt+n:], nil
}

// decodeHeader reads the header of data, which may end behind it, and returns
// its length.
func decodeHeader(data []byte) (h header, n int, err error) {
	if len(data) < headerAt || !bytes.HasPrefix(data, []byte(magic)) {
		return h, 0, errors.New("no entry")
	}
	length := binary.LittleEndian.Uint64(data[lengthAt:])
	if length > uint64(min(maxHeader, len(data)-headerAt)) {
		return h, 0, fmt.Errorf("its header would have %d bytes", length)
	}
	n = int(length)
	return h, n, json.Unmarshal(data[headerAt:headerAt+n], &h)
}
