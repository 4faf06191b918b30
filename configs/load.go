package configs

import (
	"errors"
	"strings"

	"titan/internal/recipekey"
)

// Load reads a recipe and what it extends, puts overrides of the form
// "section.key=value" over it, and checks everything. The recipe is a path, or
// the name of one that is built in (see package recipes) if there is no such
// file; "builtin:NAME" is always the latter. An *Error holds all mistakes.
//
// Where the same key is set more than once, the later of these counts: its
// default, the recipe that is extended, the recipe itself, the overrides in
// order. Tables are merged key by key; arrays, those of tables too, are replaced
// as a whole.
func Load(recipe string, overrides []string) (*Recipe, *Origins, error) {
	doc, files, problems := readChain(recipe)
	if doc == nil {
		doc = newTable(Place{})
		for _, o := range overrides { // these have mistakes of their own
			if !strings.Contains(o, "=") {
				problems = append(problems, override(doc, o)...)
			}
		}
		return nil, nil, fail(problems)
	}
	for _, o := range overrides {
		problems = append(problems, override(doc, o)...)
	}
	r := Defaults()
	d := &decoding{places: map[string]Place{}}
	d.recipe(doc, &r)
	c := &checking{recipe: &r, decoding: d, file: files[0]}
	c.problems = append(problems, d.problems...)
	c.all()
	if err := fail(c.problems); err != nil {
		return nil, nil, err
	}
	return &r, &Origins{Files: files, places: d.places}, nil
}

// Validate checks a recipe that was put together by a program. The errors are
// those of Load, without places.
func (r *Recipe) Validate() error {
	c := &checking{recipe: r, decoding: &decoding{}}
	c.all()
	var errs []error
	for _, p := range c.problems {
		errs = append(errs, recipekey.Errorf(p.Key, "%s", p.Msg))
	}
	return errors.Join(errs...)
}
