package hf

import (
	"fmt"
	"slices"
	"strings"

	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/sharding"
)

// view shows the tensors of one source under the names, shapes and types of the
// other side.
type view struct {
	src   safetensors.Source
	types map[string]dtype.DType // of the source's tensors
	want  sideIndex
	from  func(*rule) side
	to    func(*rule) side
}

func oursOf(r *rule) side   { return r.ours }
func theirsOf(r *rule) side { return r.theirs }

// Import returns weights of the Hugging Face side as the tensors of ours, with
// the element types of ours. It fails, listing all faults, if a tensor is
// missing, has another shape, or cannot be converted, and if there is one that
// neither a rule nor Ignore knows. where names the source in errors.
func (b *Binding) Import(where string, src safetensors.Source) (safetensors.Source, error) {
	v := &view{src: src, types: map[string]dtype.DType{}, want: b.ours, from: theirsOf, to: oursOf}
	var faults []string
	var known []string
	has := map[string]safetensors.Entry{}
	for _, e := range src.Entries() {
		has[e.Name] = e
		v.types[e.Name] = e.DType
		known = append(known, e.Name)
	}
	for _, want := range b.theirs.entries {
		e, ok := has[want.Name]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%q is missing%s", want.Name, hint(want.Name, known)))
		case !slices.Equal(e.Shape, want.Shape):
			faults = append(faults, fmt.Sprintf("%q has shape %v, the model wants %v", want.Name, e.Shape, want.Shape))
		case !convertible(e.DType, want.DType):
			faults = append(faults, fmt.Sprintf("%q is %v, which cannot become %v", want.Name, e.DType, want.DType))
		}
	}
	var strange []string
	for _, name := range known {
		if _, ok := b.theirs.at[name]; !ok && !b.ignored(name) {
			strange = append(strange, fmt.Sprintf("%q", name))
		}
	}
	if n := len(strange); n > 5 {
		strange = append(strange[:5], fmt.Sprintf("and %d more", n-5))
	}
	if len(strange) > 0 {
		faults = append(faults, "the model has no place for "+strings.Join(strange, ", "))
	}
	if err := join(faults); err != nil {
		return nil, fmt.Errorf("hf: %s does not fit the model: %w", where, err)
	}
	return v, nil
}

func (b *Binding) ignored(name string) bool {
	for _, p := range b.ignore {
		if p.match.MatchString(name) {
			return true
		}
	}
	return false
}

// Export returns tensors of our side as those of the Hugging Face side. Floating
// point tensors are converted to the type as, unless it is dtype.Invalid. It
// fails if the source lacks one of the bound tensors, or has another shape.
func (b *Binding) Export(src safetensors.Source, as dtype.DType) (safetensors.Source, error) {
	if as != dtype.Invalid && !as.IsFloat() {
		return nil, fmt.Errorf("hf: weights cannot be exported as %v; it is not a floating point type", as)
	}
	v := &view{src: src, types: map[string]dtype.DType{}, from: oursOf, to: theirsOf}
	has := map[string]safetensors.Entry{}
	var known []string
	for _, e := range src.Entries() {
		has[e.Name] = e
		known = append(known, e.Name)
		v.types[e.Name] = e.DType
	}
	var faults []string
	for _, want := range b.ours.entries {
		e, ok := has[want.Name]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%q is missing%s", want.Name, hint(want.Name, known)))
		case !slices.Equal(e.Shape, want.Shape):
			faults = append(faults, fmt.Sprintf("%q has shape %v, the model has %v", want.Name, e.Shape, want.Shape))
		case !convertible(e.DType, want.DType):
			faults = append(faults, fmt.Sprintf("%q is %v, which cannot become %v", want.Name, e.DType, want.DType))
		}
	}
	if err := join(faults); err != nil {
		return nil, fmt.Errorf("hf: what is to be exported does not fit the model: %w", err)
	}
	v.want = sideIndex{entries: slices.Clone(b.theirs.entries), at: b.theirs.at}
	for i := range v.want.entries {
		if e := &v.want.entries[i]; as != dtype.Invalid && e.DType.IsFloat() {
			e.DType = as
		}
	}
	return v, nil
}

// Entries returns the tensors as seen.
func (v *view) Entries() []safetensors.Entry { return slices.Clone(v.want.entries) }

// ReadRegion fills dst with a region of a tensor as seen.
func (v *view) ReadRegion(name string, r sharding.Region, dst []byte) error {
	p, ok := v.want.at[name]
	if !ok {
		names := make([]string, len(v.want.entries))
		for i, e := range v.want.entries {
			names[i] = e.Name
		}
		return fmt.Errorf("hf: there is no tensor %q%s", name, hint(name, names))
	}
	e := v.want.entries[p.entry]
	if len(r.Offset) != len(e.Shape) || len(r.Size) != len(e.Shape) {
		return fmt.Errorf("hf: tensor %q of shape %v has no region %v: the ranks differ", name, e.Shape, r)
	}
	for d, s := range e.Shape {
		if r.Offset[d] < 0 || r.Size[d] < 0 || r.Size[d] > s || r.Offset[d] > s-r.Size[d] {
			return fmt.Errorf("hf: region %v reaches outside tensor %q of shape %v", r, name, e.Shape)
		}
	}
	if want := r.Elements() * e.DType.Size(); len(dst) != want {
		return fmt.Errorf("hf: region %v of tensor %q is %d bytes, the buffer has %d", r, name, want, len(dst))
	}
	if len(dst) == 0 {
		return nil
	}
	return v.read(p, e.DType, r, dst)
}
