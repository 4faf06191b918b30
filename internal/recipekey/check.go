package recipekey

import (
	"slices"

	"titan/internal/nearest"
)

// OneOf returns an *Error unless value is one of choices.
func OneOf(key, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return Errorf(key, "is %q, which is not possible%s", value, nearest.Hint(value, choices))
}

// Positive returns an *Error unless value is at least one.
func Positive(key string, value int) error {
	if value > 0 {
		return nil
	}
	return Errorf(key, "is %d and must be positive", value)
}

// Flatten returns the errors that err joins, in order: the leaves of its tree of
// errors.Join, each as it is.
func Flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, Flatten(e)...)
	}
	return out
}
