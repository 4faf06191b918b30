package source

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// checkField compares jsonField with encoding/json.
func checkField(t *testing.T, record []byte, field string) {
	if len(record) == 0 || !utf8.Valid(record) {
		return
	}
	got, err := jsonField(record, field)
	var m map[string]any
	if record[0] != '{' || json.Unmarshal(record, &m) != nil {
		require.Error(t, err)
		return
	}
	want, ok := m[field].(string)
	if !ok {
		require.Error(t, err, "%s", record)
		return
	}
	require.NoError(t, err, "%s", record)
	require.Equal(t, want, string(got), "%s", record)
}

var records = []string{
	`{"text":"a"}`, `{ "x" : [ {"text":"no"}, "}" , "\"" ] , "text" : "a\nb\u00e9\ud83d\ude00" }`, `{"te\u0078t":"a"}`,
	`{"text":"a","text":"b"}`, `{"text":"a","text":1}`, `{"text":{"text":"x"}}`, `{"a":1.5e3,"b":true,"c":null,"text":"\\"}`,
	`{}`, `[]`, `"text"`, `{"text":"a"} x`, `{"text"}`, `{"text":"\ud800"}`, `{"a":-1 ,"text":""}`, `{"a":[],"b":{},"text":"z"}`,
	`{"a":[[1,[2,"]"]]],"text":"z"}`, `{"a":tru}`, `{"text":"x`,
}

func TestJSONField(t *testing.T) {
	for _, r := range records {
		checkField(t, []byte(r), "text")
	}
}

func FuzzJSONField(f *testing.F) {
	for _, r := range records {
		f.Add([]byte(r), "text")
	}
	f.Fuzz(func(t *testing.T, record []byte, field string) { checkField(t, record, field) })
}
