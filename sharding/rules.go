package sharding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"titan/internal/nearest"
	"titan/mesh"
)

// Rule says over which mesh axes a logical axis is split.
type Rule struct {
	// Logical is the name that models give to a dimension: "embed", "heads".
	Logical string `toml:"logical"`
	// Mesh holds the alternatives, best first, each the mesh axes to split over,
	// major to minor. An empty alternative, or none at all, is no split. The axis
	// "?" stands for whatever the compiler adds.
	Mesh [][]string `toml:"mesh"`
	// SkipUneven moves on to the next alternative where a size does not divide,
	// and to no split after the last. Without it such a size is an error.
	SkipUneven bool `toml:"skip_uneven"`
}

// Rules is the table from logical axes to mesh axes: all that a model's
// sharding depends on besides the names of its dimensions.
type Rules []Rule

// open is the axis of a rule that leaves a dimension to the compiler.
const open = "?"

// Validate reports a rule without a name, two rules for one logical axis, an
// axis twice in one alternative, and mesh axes that are not in meshAxes: the
// names that meshes can have, whether or not a certain mesh does (nil to skip
// this). Without the last check a misspelt axis would silently never be used.
func (r Rules) Validate(meshAxes []string) error {
	seen := map[string]int{}
	for i, rule := range r {
		if rule.Logical == "" {
			return fmt.Errorf("sharding: rule %d has no logical axis", i)
		}
		if j, ok := seen[rule.Logical]; ok {
			return fmt.Errorf("sharding: rules %d and %d are both for the logical axis %q; put all alternatives into one", j, i, rule.Logical)
		}
		seen[rule.Logical] = i
		for k, alternative := range rule.Mesh {
			for n, a := range alternative {
				if slices.Contains(alternative[:n], a) {
					return fmt.Errorf("sharding: alternative %d of the rule for %q has the axis %q twice", k, rule.Logical, a)
				}
				if a == open || meshAxes == nil || slices.Contains(meshAxes, a) {
					continue
				}
				return fmt.Errorf("sharding: the rule for %q names the mesh axis %q, which no mesh has%s", rule.Logical, a, nearest.Hint(a, meshAxes))
			}
		}
	}
	return nil
}

// Names returns the logical axes, in the order of the rules.
func (r Rules) Names() []string {
	names := make([]string, len(r))
	for i, rule := range r {
		names[i] = rule.Logical
	}
	return names
}

// Spec returns how an array is split whose dimensions have these logical axes;
// "" is a dimension that is never split. See Resolve.
func (r Rules) Spec(logical []string, m *mesh.Mesh, shape []int) (Spec, error) {
	s, _, err := r.Resolve(logical, m, shape)
	return s, err
}

// Resolve is Spec with notes, one sentence for each place where a rule could not
// be followed as written.
//
// Dimensions are taken from the first to the last. Of a rule's alternatives the
// first that fits is used, where
//   - axes that the mesh does not have, or of size 1, are left out; an
//     alternative of which nothing is left is passed over;
//   - an alternative with an axis that an earlier dimension uses is passed over;
//     only if no other fits is it used without that axis;
//   - a size that does not divide is an error, or, with SkipUneven, passes the
//     alternative over.
//
// A logical axis without a rule is an error that names the nearest one.
func (r Rules) Resolve(logical []string, m *mesh.Mesh, shape []int) (Spec, []string, error) {
	if m == nil {
		return Spec{}, nil, errors.New("sharding: there is no mesh to split over")
	}
	if len(logical) != len(shape) {
		return Spec{}, nil, fmt.Errorf("sharding: %d logical axes %q for an array of shape %v, which has %d dimensions", len(logical), logical, shape, len(shape))
	}
	res := resolver{mesh: m, user: map[string]int{}, logical: logical, spec: Replicated(len(shape))}
	for i, name := range logical {
		if name == "" {
			continue
		}
		k := slices.IndexFunc(r, func(rule Rule) bool { return rule.Logical == name })
		if k < 0 {
			return Spec{}, nil, fmt.Errorf("sharding: dimension %d of shape %v has the logical axis %q, for which there is no rule%s", i, shape, name, nearest.Hint(name, r.Names()))
		}
		if err := res.dimension(i, shape[i], r[k]); err != nil {
			return Spec{}, nil, err
		}
	}
	return res.spec, res.notes, res.spec.Validate(m, shape)
}

// resolver is one call of Resolve.
type resolver struct {
	mesh    *mesh.Mesh
	logical []string
	user    map[string]int // the dimension that uses a mesh axis
	spec    Spec
	notes   []string
}

func (r *resolver) dimension(i, size int, rule Rule) error {
	for _, shared := range []bool{false, true} { // whether an axis may be used elsewhere
		for _, alternative := range rule.Mesh {
			axes, taken, any := r.present(alternative)
			if len(alternative) > 0 && len(axes)+len(taken) == 0 && !any || (len(taken) > 0) != shared {
				continue
			}
			n := 1
			for _, a := range axes {
				n *= r.mesh.AxisSize(a)
			}
			if size%n != 0 {
				err := unevenError(i, size, n, axes, r.mesh)
				if !rule.SkipUneven {
					return fmt.Errorf("%w (logical axis %q; its rule can set skip_uneven to split it otherwise or not at all)", err, rule.Logical)
				}
				r.note("%s: logical axis %q is not split so", strings.TrimPrefix(err.Error(), "sharding: "), rule.Logical)
				continue
			}
			for _, a := range taken {
				r.note("dimension %d (logical axis %q) is not split over %q, which splits dimension %d (%q)", i, rule.Logical, a, r.user[a], r.logical[r.user[a]])
			}
			for _, a := range axes {
				r.user[a] = i
			}
			r.spec.Dims[i], r.spec.Open[i] = axes, any
			return nil
		}
	}
	return nil
}

// present sorts the axes of an alternative that the mesh has into those that
// are free and those that an earlier dimension uses.
func (r *resolver) present(alternative []string) (free, taken []string, any bool) {
	for _, a := range alternative {
		_, used := r.user[a]
		switch {
		case a == open:
			any = true
		case r.mesh.AxisSize(a) <= 1:
		case used:
			taken = append(taken, a)
		default:
			free = append(free, a)
		}
	}
	return free, taken, any
}

func (r *resolver) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}
