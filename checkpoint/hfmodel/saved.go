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
	Family string         `json:"family"`
	Config decoder.Config `json:"config"`
	Assets string         `json:"hf_assets_path,omitempty"` // where the tokenizer is
}

// SavedModel returns what a checkpoint says of its model. It fails if it says
// nothing, or something this version does not know.
func SavedModel(c *checkpoint.Checkpoint) (Saved, error) {
	var s Saved
	var raw json.RawMessage
	if err := c.State(StateKey, &raw); err != nil {
		return s, fmt.Errorf("hfmodel: the checkpoint does not say which model it is of: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
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
