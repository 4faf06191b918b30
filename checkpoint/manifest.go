package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"

	"titan/dtype"
	"titan/mesh"
	"titan/sharding"
)

const (
	formatName    = "titan checkpoint"
	formatVersion = 1

	maxManifest = 1 << 30
	maxMarker   = 1 << 12
)

// castagnoli is CRC-32C: on today's processors an instruction, hence several
// times as fast as any hash that is not; and what object storage checks too.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Manifest describes a checkpoint.
type Manifest struct {
	Format     string                     `json:"format"`
	Version    int                        `json:"version"`
	Step       int                        `json:"step"`
	Generation int                        `json:"generation"` // counts the commits in a folder; the latest is the highest
	Created    time.Time                  `json:"created"`
	Creator    map[string]string          `json:"creator,omitempty"` // versions of the software
	Recipe     string                     `json:"recipe,omitempty"`  // hash of the recipe
	Mesh       []Axis                     `json:"mesh"`
	Processes  int                        `json:"processes"`
	State      map[string]json.RawMessage `json:"state,omitempty"`
	ChunkSize  int64                      `json:"chunk_size"` // bytes that share a checksum
	Files      []FileInfo                 `json:"files"`
	Tensors    []TensorInfo               `json:"tensors"`
}

// Axis is an axis of the mesh that saved.
type Axis struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

// FileInfo describes a file of the checkpoint.
type FileInfo struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	CRC32C string `json:"crc32c"` // of each chunk in turn, eight hexadecimal digits each
}

// TensorInfo describes a tensor and where its parts are.
type TensorInfo struct {
	Name   string     `json:"name"`
	DType  string     `json:"dtype"` // as in safetensors
	Shape  []int      `json:"shape"`
	Spec   [][]string `json:"spec"` // mesh axes of each dimension when it was saved
	Pieces []Piece    `json:"pieces"`

	dtype dtype.DType
	grid  grid
}

// Piece is a box of a tensor in one file, dense and row-major.
type Piece struct {
	File   int   `json:"file"`   // number in the manifest's files
	Offset int64 `json:"offset"` // of its first byte in the file
	Start  []int `json:"start"`  // of the box in the tensor
	Size   []int `json:"size"`
}

func (p Piece) region() sharding.Region { return sharding.Region{Offset: p.Start, Size: p.Size} }

// marker is the content of COMMIT: it vouches for the manifest, which vouches
// for everything else.
type marker struct {
	Format         string `json:"format"`
	Version        int    `json:"version"`
	Step           int    `json:"step"`
	Generation     int    `json:"generation"`
	ManifestSize   int64  `json:"manifest_size"`
	ManifestSHA256 string `json:"manifest_sha256"`
}

func newMarker(m *Manifest, raw []byte) marker {
	sum := sha256.Sum256(raw)
	return marker{formatName, formatVersion, m.Step, m.Generation, int64(len(raw)), hex.EncodeToString(sum[:])}
}

// encode returns the manifest as JSON with a line for each file and tensor.
func (m *Manifest) encode() ([]byte, error) {
	head := *m
	head.Files, head.Tensors = nil, nil
	raw, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: encoding the manifest: %w", err)
	}
	// The two lists stand last, as null.
	raw, found := bytes.CutSuffix(raw, []byte(`"files":null,"tensors":null}`))
	if !found {
		return nil, fmt.Errorf("checkpoint: the manifest does not end as expected")
	}
	b := bytes.NewBuffer(raw)
	line := func(i int, v any) error {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		raw, err := json.Marshal(v)
		b.Write(raw)
		return err
	}
	b.WriteString("\n\"files\":[")
	for i, f := range m.Files {
		if err := line(i, f); err != nil {
			return nil, err
		}
	}
	b.WriteString("],\n\"tensors\":[")
	for i, t := range m.Tensors {
		if err := line(i, t); err != nil {
			return nil, err
		}
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

// decodeManifest decodes and checks a manifest.
func decodeManifest(raw []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, err
	}
	return m, m.check()
}

// check verifies everything that readers rely on: that names and numbers are in
// range and that the pieces of each tensor cover it exactly once.
func (m *Manifest) check() error {
	if m.Format != formatName || m.Version != formatVersion {
		return fmt.Errorf("it is of format %q version %d", m.Format, m.Version)
	}
	if m.Step < 0 || m.ChunkSize < 1 || m.Processes < 1 {
		return fmt.Errorf("step %d, chunks of %d bytes, %d processes: out of range", m.Step, m.ChunkSize, m.Processes)
	}
	axes := make([]mesh.Axis, len(m.Mesh))
	for i, a := range m.Mesh {
		axes[i] = mesh.Axis(a)
	}
	if _, err := mesh.New(axes, nil); err != nil {
		return err
	}
	files := map[string]bool{}
	for _, f := range m.Files {
		switch {
		case files[f.Name]:
			return fmt.Errorf("file %q is listed twice", f.Name)
		case !plainName(f.Name):
			return fmt.Errorf("%q is not the name of a file in the checkpoint", f.Name)
		case f.Size < 0 || int64(len(f.CRC32C)) != 8*f.chunks(m.ChunkSize):
			return fmt.Errorf("file %q of %d bytes in chunks of %d has %d digits of checksums", f.Name, f.Size, m.ChunkSize, len(f.CRC32C))
		}
		if _, err := hex.DecodeString(f.CRC32C); err != nil {
			return fmt.Errorf("file %q: checksums: %w", f.Name, err)
		}
		files[f.Name] = true
	}
	names := map[string]bool{}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if names[t.Name] {
			return fmt.Errorf("tensor %q is listed twice", t.Name)
		}
		names[t.Name] = true
		if err := t.check(m.Files); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return nil
}

func plainName(s string) bool {
	for _, c := range s {
		if c == '/' || c == '\\' || c < ' ' {
			return false
		}
	}
	return s != "" && s[0] != '.'
}

// chunks returns the number of checksums of the file.
func (f FileInfo) chunks(chunk int64) int64 {
	n := f.Size / chunk
	if f.Size%chunk != 0 {
		n++
	}
	return n
}

// crc returns the checksum of a chunk.
func (f FileInfo) crc(i int64) uint32 {
	var b [4]byte
	hex.Decode(b[:], []byte(f.CRC32C[8*i:8*i+8])) // check has seen that it decodes
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
