package configs

import (
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

// Values reads a document such as Recipe.TOML returns and gives its values by their
// full keys, such as "training.steps" or "data.sources[0].weight". They are string,
// int64, float64, bool or []any. Nothing is checked: recipes of other versions of
// titan can be read.
func Values(document []byte) (map[string]any, error) {
	var tree map[string]any
	if err := toml.Unmarshal(document, &tree); err != nil {
		return nil, fmt.Errorf("the recipe cannot be read: %w", err)
	}
	out := map[string]any{}
	flatten(out, "", tree)
	return out, nil
}

// flatten puts the leaves below key into out.
func flatten(out map[string]any, key string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			flatten(out, joinKey(key, name), x)
		}
	case []any:
		for _, x := range v {
			if _, table := x.(map[string]any); !table {
				out[key] = v
				return
			}
		}
		if len(v) == 0 {
			out[key] = v
		}
		for i, x := range v {
			flatten(out, fmt.Sprintf("%s[%d]", key, i), x)
		}
	default:
		out[key] = v
	}
}
