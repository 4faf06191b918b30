package hfmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"titan/checkpoint"
	"titan/models/decoder"
)

// StateKey is the name under which a checkpoint's state has a Saved.
const StateKey = "model"

// Saved is what a checkpoint says of its model. The parameters are its tensors
// with the names that decoder.Config.Params gives.
type Saved struct {
	Family    string         `json:"family"`
	Config    decoder.Config `json:"config"`
	Tokenizer string         `json:"tokenizer,omitempty"` // its directory, as the run knew it
}

// SavedModel returns what a checkpoint says of its model. It fails if it says
// nothing, or something this version does not know.
func SavedModel(c *checkpoint.Checkpoint) (Saved, error) {
	var s Saved
	raw := struct {
		*Saved
		Config json.RawMessage `json:"config"`
	}{Saved: &s}
	if err := c.State(StateKey, &raw); err != nil {
		return s, fmt.Errorf("hfmodel: the checkpoint does not say which model it is of: %w", err)
	}
	// A dimension of a later version would change what the weights mean.
	d := json.NewDecoder(bytes.NewReader(raw.Config))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.Config); err != nil {
		return s, fmt.Errorf("hfmodel: %s: its model is not one this version of titan knows: %w", c.Path(), err)
	}
	if err := s.Config.Validate(); err != nil {
		return s, fmt.Errorf("hfmodel: %s: its model cannot be: %w", c.Path(), err)
	}
	return s, nil
}

// ExportCheckpoint exports the model of a checkpoint; see Export. What else the
// checkpoint has, such as the optimiser's state, is left out.
func ExportCheckpoint(ctx context.Context, dir string, c *checkpoint.Checkpoint, o ExportOptions) error {
	s, err := SavedModel(c)
	if err != nil {
		return err
	}
	return Export(ctx, dir, s.Family, s.Config, c, o)
}
