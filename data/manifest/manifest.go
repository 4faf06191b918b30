// Package manifest reads and writes PREFIX.json, which stands beside a token
// dataset and tells what it was made from.
package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// A Manifest is what PREFIX.json tells about a dataset. It holds no time, host
// or absolute path of the run beyond the inputs as they were named.
type Manifest struct {
	Version   int       `json:"version"` // 1
	Tokenizer Tokenizer `json:"tokenizer"`
	DType     string    `json:"dtype"`
	Tokens    int64     `json:"tokens"` // with those around documents
	Documents int64     `json:"documents"`
	BinBytes  int64     `json:"bin_bytes"`
	BinSHA256 string    `json:"bin_sha256"`
	Before    []int32   `json:"before_document"` // ids put before every document
	Behind    []int32   `json:"behind_document"`
	Plain     bool      `json:"plain_special"`
	Split     *Split    `json:"split,omitempty"`
	Sources   []Source  `json:"sources"`
}

// Tokenizer names the tokenizer of a dataset.
type Tokenizer struct {
	SHA256    string `json:"sha256"` // of tokenizer.json
	VocabSize int    `json:"vocab_size"`
}

// Split tells how a dataset was split into training and validation.
type Split struct {
	Part  string  `json:"part"` // "train" or "validation"
	Share float64 `json:"validation_share"`
	Seed  uint64  `json:"seed"`
}

// Source counts what came from one input.
type Source struct {
	Input     string `json:"input"`
	Files     int64  `json:"files"`
	Bytes     int64  `json:"bytes"` // on disk, of the whole input
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	Empty     int64  `json:"empty"`   // records without text, left out
	Skipped   int64  `json:"skipped"` // bad records, left out
}

// Read reads PREFIX.json. A dataset without one, as other software writes it, is
// fs.ErrNotExist.
func Read(prefix string) (*Manifest, error) {
	path := prefix + ".json"
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("dataset manifest: %w", err)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("dataset manifest %s: damaged, or not of titan: %w; prepare the dataset again, or remove this file: then vocabulary and tokenizer are not compared", path, err)
	}
	if m.Version != 1 {
		return nil, fmt.Errorf("dataset manifest %s: version %d, want 1", path, m.Version)
	}
	return &m, nil
}

// Marshal returns the content of PREFIX.json.
func (m *Manifest) Marshal() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}
