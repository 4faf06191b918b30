package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Open reads the sweep in a folder, or its file. A file that is cut off or damaged
// gives what can be read of it, with a warning for each thing that cannot; only
// where nothing can be is that an error.
func Open(dir string) (*Sweep, []string, error) {
	file := dir
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		file = filepath.Join(dir, FileName)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("sweep: %w", err)
	}
	s, warnings, err := decode(text)
	for i, w := range warnings {
		warnings[i] = file + ": " + w
	}
	if err != nil {
		return nil, warnings, fmt.Errorf("sweep: %s: %w", file, err)
	}
	return s, warnings, nil
}

// decode reads a sweep field by field and point by point, so that what comes
// before damage is not lost.
func decode(text []byte) (*Sweep, []string, error) {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	s := &Sweep{}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("this is no sweep: it does not begin with {")
	}
	fields := 0
	for d.More() {
		name, err := d.Token()
		if err != nil {
			warn("%s; the rest is lost", damage(d, err))
			break
		}
		key, ok := name.(string)
		if !ok {
			warn("at byte %d there is no name of a field; the rest is lost", d.InputOffset())
			break
		}
		var whole bool
		if strings.EqualFold(key, "points") {
			whole = s.decodePoints(d, warn)
		} else {
			whole = s.decodeField(d, key, warn)
		}
		if !whole {
			break
		}
		fields++
	}
	if fields == 0 && len(s.Points) == 0 {
		return nil, warnings, errors.New("nothing of the sweep can be read")
	}
	switch {
	case s.Schema == 0:
		warn("the version of the format is missing; %d is assumed", Schema)
		s.Schema = Schema
	case s.Schema > Schema:
		return nil, warnings, fmt.Errorf("is of format %d; this titan reads up to %d", s.Schema, Schema)
	}
	if len(warnings) == 0 {
		if _, err := d.Token(); err != nil {
			warn("%s", damage(d, err))
		}
	}
	return s, warnings, nil
}

// decodeField reads the value of one field of the sweep. It returns false if
// nothing behind it can be read.
func (s *Sweep) decodeField(d *json.Decoder, key string, warn func(string, ...any)) bool {
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		warn("%s, in %q; the rest is lost", damage(d, err), key)
		return false
	}
	object, err := json.Marshal(map[string]json.RawMessage{key: value})
	if err == nil {
		err = lenient(object, s, func(unknown string) { warn("%s is not known and left out", unknown) })
	}
	if err != nil {
		warn("%q cannot be read: %v", key, err)
	}
	return true
}

// lenient decodes a JSON value. Fields that are not known, which damage may have
// renamed, are told and left out.
func lenient(text []byte, to any, unknown func(string)) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil {
		return nil
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown "); ok {
		unknown(field)
		return json.Unmarshal(text, to)
	}
	return err
}

// decodePoints reads the points, as decodeField does a field.
func (s *Sweep) decodePoints(d *json.Decoder, warn func(string, ...any)) bool {
	t, err := d.Token()
	if err != nil {
		warn("%s, in the points; they are lost", damage(d, err))
		return false
	}
	if t == nil {
		return true
	}
	if t != json.Delim('[') {
		warn("points is no list; the rest is lost")
		return false
	}
	seen := map[string]bool{}
	for n := 1; d.More(); n++ {
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			warn("%s, in point %d; it and the rest are lost", damage(d, err), n)
			return false
		}
		var p Point
		if err := lenient(text, &p, func(unknown string) { warn("point %d: %s is not known and left out", n, unknown) }); err != nil {
			var kind *json.UnmarshalTypeError
			if errors.As(err, &kind) {
				warn("point %d has a %s for %s; it is left out", n, kind.Value, kind.Field)
			} else {
				warn("point %d cannot be read (%v); it is left out", n, err)
			}
			continue
		}
		if why := p.implausible(); why != "" || seen[p.ID] {
			if why == "" {
				why = fmt.Sprintf("has the id %q of another", p.ID)
			}
			warn("point %d %s; it is left out", n, why)
			continue
		}
		seen[p.ID] = true
		s.Points = append(s.Points, p)
	}
	if _, err := d.Token(); err != nil {
		warn("%s, behind the points; the rest is lost", damage(d, err))
		return false
	}
	return true
}

// implausible says what no sweep writes, "" if there is nothing.
func (p *Point) implausible() string {
	switch {
	case p.ID == "":
		return "has no id"
	case !filepath.IsLocal(p.ID) || p.ID != filepath.Base(p.ID):
		return fmt.Sprintf("has the id %q, which is no name of a folder", p.ID)
	case p.Chips < 0 || p.Devices < 0 || p.Tokens < 0 || p.StepSeconds < 0 || p.TPS < 0 || p.TPSDevice < 0 || p.TPSChip < 0:
		return "has figures below zero"
	}
	switch p.Status {
	case Pending, Running, OK, Failed, Impossible:
		return ""
	}
	return fmt.Sprintf("has the unknown status %q", p.Status)
}

// damage says where a text ends or stops to be JSON.
func damage(d *json.Decoder, err error) string {
	return fmt.Sprintf("damaged or cut off behind byte %d (%v)", d.InputOffset(), err)
}
