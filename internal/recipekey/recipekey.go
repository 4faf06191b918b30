// Package recipekey has the error of a recipe's value: every section's Validate
// returns it, and the loader of recipes adds the place in the file.
package recipekey

import "fmt"

// Error says what is wrong with the value of one key.
type Error struct {
	Key string // dotted, such as "checkpoint.interval"
	Msg string // what is wrong and what is expected
}

// Error gives "key: what is wrong".
func (e *Error) Error() string { return e.Key + ": " + e.Msg }

// Errorf makes an *Error.
func Errorf(key, format string, args ...any) error {
	return &Error{key, fmt.Sprintf(format, args...)}
}

// Index returns the key of an array's element, "data.sources[1]", or with more
// names of a key in it: "data.sources[1].path".
func Index(array string, i int, names ...string) string {
	key := fmt.Sprintf("%s[%d]", array, i)
	for _, n := range names {
		key += "." + n
	}
	return key
}
