package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Format says how a file holds its documents.
type Format string

const (
	Auto    Format = ""        // by the file's name: .jsonl and .ndjson, .parquet, all else text
	Text    Format = "text"    // the file is one document
	JSONL   Format = "jsonl"   // one JSON object a line
	Parquet Format = "parquet" // one row a document
)

// Options say what to read.
type Options struct {
	// Format is the format of all files.
	Format Format
	// Field is the field or column of the text in JSONL and Parquet; "" is "text".
	Field string
	// Include are patterns such as "*.go"; a file found in a directory is taken
	// only if its name matches one of them. Empty takes all.
	Include []string
}

func (o *Options) field() string {
	if o.Field == "" {
		return "text"
	}
	return o.Field
}

// File is one file of an input.
type File struct {
	Path        string
	Format      Format
	Compression string // "", "gz" or "zst"
	Size        int64  // bytes on disk
	Input       int    // index of the input that named it
}

// Find lists the files of the inputs. An input is a file, a directory (all
// files below it, hidden ones left out) or a glob in which ** crosses
// directories. A file that two inputs name is taken once. An input without
// files is an error.
func Find(inputs []string, o Options) ([]File, error) {
	if len(inputs) == 0 {
		return nil, errors.New("no input; name files, directories or globs")
	}
	switch o.Format {
	case Auto, Text, JSONL, Parquet:
	default:
		return nil, fmt.Errorf("format %q is not known; want %s, %s or %s", o.Format, Text, JSONL, Parquet)
	}
	for _, p := range o.Include {
		if !doublestar.ValidatePattern(p) {
			return nil, fmt.Errorf("include pattern %q is malformed", p)
		}
	}
	var files []File
	seen := map[string]bool{}
	for i, input := range inputs {
		paths, err := expand(input, o.Include)
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("input %q: no file matches", input)
		}
		for _, path := range paths {
			if seen[filepath.Clean(path)] {
				continue
			}
			seen[filepath.Clean(path)] = true
			st, err := os.Stat(path)
			if err != nil {
				return nil, fmt.Errorf("input %q: %w", input, err)
			}
			f := File{Path: path, Size: st.Size(), Input: i}
			f.Format, f.Compression = formatOf(path, o.Format)
			if f.Format == Parquet && f.Compression != "" {
				return nil, fmt.Errorf("%s: Parquet compresses its own pages and cannot be read through %s; unpack the file", path, f.Compression)
			}
			files = append(files, f)
		}
	}
	return files, nil
}

func expand(input string, include []string) ([]string, error) {
	st, err := os.Stat(input)
	switch {
	case err == nil && st.IsDir():
		return walk(input, include)
	case err == nil && !st.Mode().IsRegular():
		return nil, fmt.Errorf("input %q is neither a file nor a directory", input)
	case err == nil:
		return []string{input}, nil
	case !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(input, "*?[{"):
		return nil, fmt.Errorf("input %q: %w", input, err)
	}
	paths, err := doublestar.FilepathGlob(input, doublestar.WithFilesOnly(), doublestar.WithFailOnIOErrors())
	if err != nil {
		return nil, fmt.Errorf("input %q: %w", input, err)
	}
	sort.Strings(paths)
	return paths, nil
}

func walk(root string, include []string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != root && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		ok := len(include) == 0
		for _, p := range include {
			match, _ := doublestar.Match(p, d.Name())
			ok = ok || match
		}
		if ok {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("input %q: %w", root, err)
	}
	sort.Strings(paths)
	return paths, nil
}

func formatOf(path string, want Format) (f Format, compression string) {
	name := strings.ToLower(path)
	for _, c := range []string{"gz", "zst"} {
		if strings.HasSuffix(name, "."+c) {
			name, compression = strings.TrimSuffix(name, "."+c), c
		}
	}
	if want != Auto {
		return want, compression
	}
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson":
		return JSONL, compression
	case ".parquet":
		return Parquet, compression
	}
	return Text, compression
}
