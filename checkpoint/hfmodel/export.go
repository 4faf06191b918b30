package hfmodel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"titan/checkpoint"
	"titan/checkpoint/hf"
	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/internal/nearest"
	"titan/models"
	"titan/models/decoder"
	"titan/models/hfconfig"
)

// aheadBlock is how many bytes of a checkpoint are read at once.
const aheadBlock = 512 << 20

// ExportOptions say what is written.
type ExportOptions struct {
	// DType is the element type of the weights: F32, BF16 or F16, rounded to
	// nearest even; Invalid for that of the source.
	DType dtype.DType
	// Tokenizer is a directory whose tokenizer files are copied, or a
	// tokenizer.json; "" for none.
	Tokenizer string
	// Tokens are the special tokens. Those that are not given are looked for in
	// the tokenizer's directory.
	Tokens       hfconfig.Tokens
	MaxShardSize int64 // see hf.ExportOptions
	Memory       int   // see hf.ExportOptions
	// Progress, if not nil, is told the bytes written so far of all.
	Progress func(done, total int64)
}

// Export writes a model's parameters, named and shaped as decoder.Config.Params
// says, as a new directory that Transformers, vLLM and SGLang load. The source
// may have other tensors, which are left out. The directory appears whole or not
// at all; it must not exist, unless it is empty.
func Export(ctx context.Context, dir, family string, c decoder.Config, ours safetensors.Source, o ExportOptions) error {
	layout, err := models.HF(family)
	if err != nil {
		return fmt.Errorf("hfmodel: %w", err)
	}
	if o.DType == dtype.Invalid {
		for _, e := range ours.Entries() {
			if e.Name == "embed" {
				o.DType = e.DType
			}
		}
		if o.DType == dtype.Invalid {
			return fmt.Errorf("hfmodel: exporting to %s: the source has no tensor %q", dir, "embed")
		}
	}
	files, err := tokenizerFiles(o.Tokenizer)
	if err != nil {
		return fmt.Errorf("hfmodel: exporting to %s: %w", dir, err)
	}
	tokens, err := files.complete(o.Tokens)
	if err != nil {
		return fmt.Errorf("hfmodel: exporting to %s: %w", dir, err)
	}
	for name, ids := range map[string][]int{"bos": tokens.BOS, "eos": tokens.EOS, "pad": tokens.Pad} {
		for _, id := range ids {
			if id < 0 || id >= c.VocabSize {
				return fmt.Errorf("hfmodel: exporting to %s: the %s token is %d, outside the model's vocabulary of %d: the tokenizer is not the model's", dir, name, id, c.VocabSize)
			}
		}
	}
	config, err := hfconfig.Marshal(layout, c, hfconfig.Meta{DType: o.DType, Tokens: tokens})
	if err != nil {
		return fmt.Errorf("hfmodel: exporting to %s: %w", dir, err)
	}
	generation, err := hfconfig.MarshalGeneration(tokens)
	if err != nil {
		return fmt.Errorf("hfmodel: exporting to %s: %w", dir, err)
	}
	b, err := bind(family, c, o.DType)
	if err != nil {
		return err
	}
	if _, ok := ours.(*checkpoint.Checkpoint); ok {
		ours = readAhead(ours, aheadBlock, 2*aheadBlock)
	}
	theirs, err := b.Export(ours, o.DType)
	if err != nil {
		return err
	}
	return hf.Export(ctx, dir, theirs, hf.ExportOptions{
		MaxShardSize: o.MaxShardSize, Memory: o.Memory, Progress: o.Progress,
		Extra: func(tmp string) error {
			for name, data := range map[string][]byte{hfconfig.Name: config, generationName: generation} {
				if err := os.WriteFile(filepath.Join(tmp, name), data, 0o644); err != nil {
					return err
				}
			}
			return files.copyTo(tmp, c.MaxSeqLen)
		},
	})
}

// ParseDType reads the name of an element type that weights can be exported as.
func ParseDType(name string) (dtype.DType, error) {
	known := []string{"float32", "bfloat16", "float16"}
	for i, d := range []dtype.DType{dtype.F32, dtype.BF16, dtype.F16} {
		if name == known[i] {
			return d, nil
		}
	}
	return dtype.Invalid, fmt.Errorf("weights cannot be exported as %q%s", name, nearest.Hint(name, known))
}
