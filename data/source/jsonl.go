package source

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// jsonField returns the string in a top-level field of a JSON object. Of a field
// that is there twice, the last counts.
func jsonField(record []byte, field string) ([]byte, error) {
	if invalidUTF8(record) >= 0 {
		return record, nil // the caller reports it with its offset
	}
	if !json.Valid(record) {
		var v any
		return nil, fmt.Errorf("not JSON: %w", json.Unmarshal(record, &v))
	}
	if record[0] != '{' {
		return nil, fmt.Errorf("want a JSON object with field %q", field)
	}
	// The record is valid, so the scan below need not check anything.
	var value []byte
	for i := skipSpace(record, 1); record[i] != '}'; {
		end := skipValue(record, i)
		name := record[i:end]
		i = skipSpace(record, skipSpace(record, end)+1) // behind the colon
		end = skipValue(record, i)
		if nameIs(name, field) {
			value = record[i:end]
		}
		if i = skipSpace(record, end); record[i] == ',' {
			i = skipSpace(record, i+1)
		}
	}
	switch {
	case value == nil:
		return nil, fmt.Errorf("no field %q", field)
	case value[0] != '"':
		return nil, fmt.Errorf("field %q is not a string but %.40s", field, value)
	case bytes.IndexByte(value, '\\') < 0:
		return value[1 : len(value)-1], nil
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, fmt.Errorf("field %q: %w", field, err)
	}
	return []byte(s), nil
}

func nameIs(quoted []byte, field string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == field
	}
	var s string
	return json.Unmarshal(quoted, &s) == nil && s == field
}

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n' {
		i++
	}
	return i
}

// skipValue returns the end of the valid JSON value at b[i].
func skipValue(b []byte, i int) int {
	depth := 0
	for {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		default: // a scalar, or what stands between values
			if depth > 0 {
				i++
				continue
			}
			for i < len(b) && bytes.IndexByte([]byte(",}] \t\r\n"), b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}
