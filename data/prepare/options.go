package prepare

import (
	"fmt"
	"path/filepath"
	"strings"

	"titan/data/source"
	"titan/data/tokenizer"
)

// Special values of Options.BOS and Options.EOS.
const (
	Auto = "auto" // what the tokenizer's files say
	None = "none" // nothing
)

// Options say what to prepare. Inputs, Tokenizer and Output are required.
type Options struct {
	Inputs []string // files, directories, globs
	Source source.Options

	Tokenizer string // a tokenizer.json or its directory
	Output    string // prefix of the files written
	Overwrite bool   // replace a dataset that is there

	// BOS and EOS name the tokens put before and behind every document. "" and
	// Auto take what the tokenizer's post-processor puts there and, behind it,
	// its end-of-text token; None puts nothing.
	BOS, EOS string
	// PlainSpecial treats special tokens in the text as plain text. Otherwise a
	// document that spells <|end_of_text|> gets that token, as everywhere in the
	// field.
	PlainSpecial bool

	// SkipBad leaves out and counts records that are malformed or not UTF-8; by
	// default the first one ends the run.
	SkipBad bool
	// Validation is the share of documents, 0 to below 1, that go into a second
	// dataset, Output + "_validation". A document's hash decides, so equal
	// documents are on the same side, and Seed says which share it is.
	Validation float64
	Seed       uint64

	Workers  int            // 0: one a core
	Progress func(Progress) // called now and then, and at the end; may be nil
}

// Progress tells how far a run is.
type Progress struct {
	Bytes, TotalBytes int64 // of the inputs, on disk
	Documents, Tokens int64 // written
	Skipped           int64 // bad records
}

// ValidationSuffix ends the name of the dataset split off for validation.
const ValidationSuffix = "_validation"

// around resolves BOS and EOS to ids.
func (o *Options) around(tok *tokenizer.Tokenizer) (before, behind []int32, err error) {
	named := func(option, name string) ([]int32, error) {
		id, ok := tok.ID(name)
		if !ok {
			return nil, fmt.Errorf("%s token %q is not in the vocabulary of %s", option, name, o.Tokenizer)
		}
		return []int32{id}, nil
	}
	prefix, suffix := tok.Around()
	switch o.BOS {
	case "", Auto:
		before = prefix
	case None:
	default:
		if before, err = named("BOS", o.BOS); err != nil {
			return nil, nil, err
		}
	}
	switch o.EOS {
	case "", Auto:
		behind = suffix
		if len(behind) > 0 {
			break
		}
		if tok.EOS() == "" {
			return nil, nil, fmt.Errorf("%s does not say which token ends a document; name it, or say %q", o.Tokenizer, None)
		}
		if behind, err = named("EOS", tok.EOS()); err != nil {
			return nil, nil, err
		}
	case None:
	default:
		if behind, err = named("EOS", o.EOS); err != nil {
			return nil, nil, err
		}
	}
	return before, behind, nil
}

func (o *Options) check() error {
	switch {
	case o.Tokenizer == "":
		return fmt.Errorf("no tokenizer; name a tokenizer.json")
	case o.Output == "" || strings.HasSuffix(o.Output, "/") || filepath.Base(o.Output) == "." || filepath.Base(o.Output) == "..":
		return fmt.Errorf("output %q is not a name to put .bin, .idx and .json behind", o.Output)
	case !(o.Validation >= 0 && o.Validation < 1):
		return fmt.Errorf("validation share %g is outside [0, 1)", o.Validation)
	}
	return nil
}
