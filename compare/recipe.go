package compare

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Difference is a key of the recipe that results do not agree on.
type Difference struct {
	Key string `json:"key"`
	// Values are by result, as TOML; "" where a result's recipe does not have the key
	// or is not known.
	Values []string `json:"values"`
}

// Differences lists the keys in which recipes differ, without where they write.
func Differences(results []*Result) []Difference {
	seen := map[string]bool{}
	for _, r := range results {
		for k := range r.Recipe {
			seen[k] = true
		}
	}
	var out []Difference
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		if key == "job.dump_folder" || key == "job.description" {
			continue
		}
		d := Difference{Key: key, Values: make([]string, len(results))}
		first, differ := "", false
		known := 0
		for i, r := range results {
			if r.Recipe == nil {
				continue
			}
			v, ok := r.Recipe[key]
			if ok {
				d.Values[i] = Spell(v)
			}
			if known++; known == 1 {
				first = d.Values[i]
			}
			differ = differ || d.Values[i] != first
		}
		if differ {
			out = append(out, d)
		}
	}
	return out
}

// text writes a value of a recipe without quotes, "" if there is none.
func text(recipe map[string]any, key string) string {
	switch v := recipe[key].(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		return Spell(v)
	}
}

// Spell writes a value of a recipe as TOML does.
func Spell(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = Spell(x)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}

func keys(recipe map[string]any) []string { return slices.Sorted(maps.Keys(recipe)) }
