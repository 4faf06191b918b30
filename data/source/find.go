package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	// only if one of them matches. Empty takes all. Exclude leaves out what one of
	// its patterns matches, folders with all that is below them. A pattern with a
	// slash is for the path below the directory, one without for the name alone.
	Include, Exclude []string
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
	for _, p := range slices.Concat(o.Include, o.Exclude) {
		if !doublestar.ValidatePattern(p) {
			return nil, fmt.Errorf("pattern %q is malformed", p)
		}
	}
	var files []File
	seen := map[string]bool{}
	for i, input := range inputs {
		paths, err := expand(input, &o)
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

func expand(input string, o *Options) ([]string, error) {
	st, err := os.Stat(input)
	switch {
	case err == nil && st.IsDir():
		return walk(input, o)
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

func walk(root string, o *Options) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if path != root && (strings.HasPrefix(d.Name(), ".") || matches(o.Exclude, rel)) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		if len(o.Include) == 0 || matches(o.Include, rel) {
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

// matches tells whether one of the patterns, which are valid, is for the path.
func matches(patterns []string, rel string) bool {
	rel = filepath.ToSlash(rel)
	for _, p := range patterns {
		name := rel
		if !strings.Contains(p, "/") {
			name = rel[strings.LastIndexByte(rel, '/')+1:]
		}
		if ok, _ := doublestar.Match(p, name); ok {
			return true
		}
	}
	return false
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
