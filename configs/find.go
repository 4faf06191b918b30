package configs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"titan/internal/nearest"
	"titan/recipes"
)

// builtinPrefix marks the recipes in the binary.
const builtinPrefix = "builtin:"

// maxRecipe bounds what is read of a file: no recipe is nearly as long.
const maxRecipe = 1 << 20

// source is where a recipe's text is.
type source struct {
	name    string // for messages: the path, or "builtin:NAME.toml"
	id      string // the same for the same text, for finding cycles
	content []byte
	dir     string // of a file; what it extends is looked for here
	builtin bool
}

// find reads the recipe that a name stands for: a file, from dir if relative; or
// else one of the recipes in the binary, with or without ".toml". With
// "builtin:" before it, or inside of the binary, only these count.
func find(name, dir string, builtinOnly bool) (*source, error) {
	short, only := strings.CutPrefix(name, builtinPrefix)
	if !only && !builtinOnly {
		if strings.TrimSpace(name) == "" {
			return nil, errors.New("is empty; it must be the path of a recipe or the name of a built-in one")
		}
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		switch content, err := readFile(path); {
		case err == nil:
			return &source{name: path, id: identity(path), content: content, dir: filepath.Dir(path)}, nil
		case strings.ContainsAny(name, `/\`) || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errDirectory):
			return nil, fmt.Errorf("%s: %w%s", path, plain(err), inFolder(path))
		}
	}
	base := strings.TrimSuffix(short, ".toml")
	content, err := recipes.Read(base)
	if err == nil {
		name := builtinPrefix + base + ".toml"
		return &source{name: name, id: name, content: content, builtin: true}, nil
	}
	if only || builtinOnly {
		return nil, fmt.Errorf("there is no built-in recipe %q%s", base, nearest.Hint(base, recipes.Names()))
	}
	return nil, fmt.Errorf("there is no file and no built-in recipe %q%s", name, hint(base, filepath.Join(dir, name)))
}

var errDirectory = errors.New("is a directory, not a recipe")

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errDirectory
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxRecipe+1))
	if err == nil && len(content) > maxRecipe {
		err = fmt.Errorf("has more than %d bytes and cannot be a recipe", maxRecipe)
	}
	return content, err
}

// plain is an error of the file system without the path, which messages have.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// identity tells files apart that are reached by different paths.
func identity(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path
}

// hint names the nearest built-in recipe, or a file beside the missing one.
func hint(base, path string) string {
	names := recipes.Names()
	if n := nearest.Name(base, names); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	if h := inFolder(path); h != "" {
		return h
	}
	return nearest.Hint(base, names)
}

// inFolder names the recipe in the same folder whose name is nearest.
func inFolder(path string) string {
	files, _ := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(path)), "*.toml"))
	for i, f := range files {
		files[i] = filepath.Base(f)
	}
	slices.Sort(files)
	if n := nearest.Name(filepath.Base(path), files); n != "" && n != filepath.Base(path) {
		return fmt.Sprintf("; did you mean %q?", filepath.Join(filepath.Dir(path), n))
	}
	return ""
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
