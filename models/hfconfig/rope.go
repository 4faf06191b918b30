package hfconfig

import (
	"maps"
	"slices"

	"titan/models/decoder"
)

// rope reads the rotary embedding: the base, and what stretches it if anything
// does. Both styles may be there if they agree: rope_theta beside rope_scaling,
// and rope_parameters with all.
func (f *File) rope(maxSeqLen int) (theta float64, s *decoder.RopeScaling) {
	all := map[string]any{}
	merge := func(where string, keys map[string]any) {
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			v, name := keys[k], k
			if k == "type" { // before rope_type
				name = "rope_type"
			}
			if before, ok := all[name]; ok && v != nil && !sameValue(v, before) {
				f.Fault(where, "has %s %s, and elsewhere it is %s", k, show(v), show(before))
			} else if v != nil {
				all[name] = v
			}
		}
	}
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		v, ok := f.lookup(key)
		if !ok {
			continue
		}
		o, isObject := v.(map[string]any)
		if !isObject {
			f.Fault(key, "is %s and must be an object", show(v))
			continue
		}
		// One set for each type of layer, of which titan has one.
		if full, ok := o["full_attention"].(map[string]any); ok && len(o) == 1 {
			o = full
		}
		merge(key, o)
	}
	for _, k := range []string{"rope_theta", "original_max_position_embeddings"} {
		if v, ok := f.lookup(k); ok && (k == "rope_theta" || all["rope_type"] == "llama3") {
			merge(k, map[string]any{k: v})
		}
	}

	r := &File{path: f.path, keys: all, used: map[string]bool{}}
	theta = r.Float("rope_theta", 10000) // Transformers' default
	r.Only("partial_rotary_factor", "titan's rotary embedding turns the whole head", 1.0)
	known := true
	switch t := r.String("rope_type", "default"); t {
	case "default":
	case "llama3":
		s = &decoder.RopeScaling{
			Factor: r.Float("factor"), LowFreqFactor: r.Float("low_freq_factor"), HighFreqFactor: r.Float("high_freq_factor"),
			OriginalMaxSeqLen: r.Int("original_max_position_embeddings", maxSeqLen),
		}
	default:
		known = false
		r.Fault("rope_type", `is %q; titan has "default" and "llama3"`, t)
	}
	if known {
		for _, k := range r.Unknown() {
			r.Fault(k, "is %s, which titan's rotary embedding does not have", show(all[k]))
		}
	}
	f.errs = append(f.errs, r.errs...)
	return theta, s
}

func sameValue(a, b any) bool {
	x, ok := asFloat(a)
	y, alsoOK := asFloat(b)
	if ok && alsoOK {
		return x == y
	}
	return show(a) == show(b)
}
