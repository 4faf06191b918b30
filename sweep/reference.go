package sweep

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"titan/internal/nearest"
	"titan/plan"
)

//go:embed references/*.toml
var references embed.FS

// Series is a scaling series that others published, with where it is from.
type Series struct {
	Schema int    `toml:"schema" json:"schema"`
	Name   string `toml:"name" json:"name"`
	Title  string `toml:"title" json:"title"`
	// Model is the name and flavor of titan's model of the same dimensions.
	Model  string `toml:"model" json:"model"`
	Kind   string `toml:"kind" json:"kind"` // of the chips, as in topologies
	SeqLen int    `toml:"seq_len" json:"seq_len"`
	// Precision is the element type of products; Convention is how attention is
	// counted in MFU: "causal" or "full".
	Precision  string `toml:"precision" json:"precision"`
	Convention string `toml:"convention" json:"convention"`
	Mode       Mode   `toml:"mode" json:"mode"`
	Framework  string `toml:"framework" json:"framework"`
	// Source says where the figures are published, Notes what to know of them.
	Source string           `toml:"source" json:"source"`
	Notes  []string         `toml:"notes" json:"notes,omitempty"`
	Points []ReferencePoint `toml:"points" json:"points"`
}

// ReferencePoint is one published result. What is not published is zero.
type ReferencePoint struct {
	Chips       int     `toml:"chips" json:"chips"`
	Devices     int     `toml:"devices" json:"devices"`
	GlobalBatch int     `toml:"global_batch" json:"global_batch,omitempty"` // sequences a step
	StepSeconds float64 `toml:"step_seconds" json:"step_seconds,omitempty"`
	TPSDevice   float64 `toml:"tokens_per_second_device" json:"tokens_per_second_device,omitempty"`
	TPSChip     float64 `toml:"tokens_per_second_chip" json:"tokens_per_second_chip,omitempty"`
	MFU         float64 `toml:"mfu_percent" json:"mfu_percent,omitempty"` // by the series' convention
	// Efficiency is by the smallest point of the series; Reference computes it.
	Efficiency float64 `toml:"-" json:"efficiency,omitempty"`
}

// ByConvention returns the MFU in the place of its convention, nil if none is
// published.
func (s *Series) ByConvention(p ReferencePoint) *plan.ByConvention {
	switch {
	case p.MFU == 0:
		return nil
	case s.Convention == "full":
		return &plan.ByConvention{Full: p.MFU}
	}
	return &plan.ByConvention{Causal: p.MFU}
}

// References names the series in the binary, sorted.
func References() []string {
	entries, err := references.ReadDir("references")
	if err != nil {
		return nil // an embedded folder can be read
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".toml"))
	}
	slices.Sort(names)
	return names
}

// Reference reads a published series: a TOML file, or else one of [References].
// Points come smallest first.
func Reference(nameOrPath string) (*Series, error) {
	text, err := os.ReadFile(nameOrPath)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(nameOrPath, `/\`) {
		if text, err = references.ReadFile(path.Join("references", strings.TrimSuffix(nameOrPath, ".toml")+".toml")); err != nil {
			return nil, fmt.Errorf("sweep: there is no reference series %q, as a file or built in%s", nameOrPath, nearest.Hint(nameOrPath, References()))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("sweep: the reference series: %w", err)
	}
	s, err := parseSeries(text)
	if err != nil {
		return nil, fmt.Errorf("sweep: the reference series %s: %w", nameOrPath, err)
	}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(filepath.Base(nameOrPath), ".toml")
	}
	return s, nil
}

// parseSeries reads a series and checks that its figures can be compared.
func parseSeries(text []byte) (*Series, error) {
	s := &Series{}
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		var unknown *toml.StrictMissingError
		var bad *toml.DecodeError
		switch {
		case errors.As(err, &unknown) && len(unknown.Errors) > 0:
			row, _ := unknown.Errors[0].Position()
			return nil, fmt.Errorf("line %d: unknown key %s", row, strings.Join(unknown.Errors[0].Key(), "."))
		case errors.As(err, &bad):
			row, column := bad.Position()
			return nil, fmt.Errorf("line %d, column %d: %s", row, column, strings.TrimPrefix(bad.Error(), "toml: "))
		}
		return nil, err
	}
	for _, need := range []struct {
		key  string
		have bool
	}{{"model", s.Model != ""}, {"kind", s.Kind != ""}, {"seq_len", s.SeqLen > 0}, {"source", s.Source != ""}, {"points", len(s.Points) > 0}} {
		if !need.have {
			return nil, fmt.Errorf("%s is missing", need.key)
		}
	}
	if s.Schema != Schema {
		return nil, fmt.Errorf("schema is %d; this titan reads %d", s.Schema, Schema)
	}
	if s.Convention != "causal" && s.Convention != "full" {
		return nil, fmt.Errorf("convention is %q and must be causal or full", s.Convention)
	}
	if s.Mode != NoMode && s.Mode != Weak && s.Mode != Strong {
		return nil, fmt.Errorf("mode is %q and must be weak, strong or empty", s.Mode)
	}
	slices.SortStableFunc(s.Points, func(a, b ReferencePoint) int { return a.Chips - b.Chips })
	for i := range s.Points {
		p := &s.Points[i]
		if p.Chips < 1 || p.Devices < p.Chips {
			return nil, fmt.Errorf("point %d: chips is %d and devices %d; both are needed, and a chip is one device at least", i+1, p.Chips, p.Devices)
		}
		if p.TPSDevice == 0 {
			p.TPSDevice = p.TPSChip * float64(p.Chips) / float64(p.Devices)
		}
		if p.TPSDevice <= 0 {
			return nil, fmt.Errorf("point %d of %d chips: tokens_per_second_device or tokens_per_second_chip is missing", i+1, p.Chips)
		}
		p.TPSChip = p.TPSDevice * float64(p.Devices) / float64(p.Chips)
		p.Efficiency = p.TPSDevice / s.Points[0].TPSDevice
	}
	return s, nil
}
