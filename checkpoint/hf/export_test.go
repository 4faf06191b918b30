package hf

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/safetensors"
	"titan/dtype"
)

// An export in any number of files, asked for in pieces of any size, imports as
// what it was.
func TestExportImport(t *testing.T) {
	m, err := Parse(moeTable)
	require.NoError(t, err)
	ours := moeTensors()
	b, err := m.Bind(ours.entries)
	require.NoError(t, err)
	for _, o := range []ExportOptions{{}, {MaxShardSize: 700, Memory: 50}, {MaxShardSize: 1, Memory: 1}, {MaxShardSize: 2000}} {
		for _, as := range []dtype.DType{dtype.Invalid, dtype.BF16} {
			dir := filepath.Join(t.TempDir(), "models", "out")
			out, err := b.Export(ours, as)
			require.NoError(t, err)
			var last, of int64
			o.Progress = func(done, total int64) { last, of = done, total }
			o.Extra = func(dir string) error { return os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o644) }
			require.NoError(t, Export(ctx, dir, out, o))
			require.Equal(t, of, last)
			require.FileExists(t, filepath.Join(dir, "config.json"))

			set, err := safetensors.OpenModel(dir)
			require.NoError(t, err)
			require.Empty(t, set.Unlisted())
			require.Equal(t, o.MaxShardSize > 0 && o.MaxShardSize < 5000, len(set.Files()) > 1)
			for _, f := range set.Files() {
				file, err := safetensors.Open(f)
				require.NoError(t, err)
				require.Equal(t, map[string]string{"format": "pt"}, file.Metadata())
				var size int64
				for _, e := range file.Entries() {
					size += e.Bytes()
				}
				if o.MaxShardSize > 0 && len(file.Entries()) > 1 {
					require.LessOrEqual(t, size, o.MaxShardSize)
				}
				require.NoError(t, file.Close())
			}
			if len(set.Files()) > 1 {
				raw, err := os.ReadFile(set.Path())
				require.NoError(t, err)
				var index struct {
					Metadata struct {
						TotalSize int64 `json:"total_size"`
					} `json:"metadata"`
				}
				require.NoError(t, json.Unmarshal(raw, &index))
				require.Equal(t, of, index.Metadata.TotalSize)
			}
			in, err := b.Import(dir, set)
			require.NoError(t, err)
			got := readAll(t, in)
			for name, data := range ours.data {
				want := data
				if as == dtype.BF16 {
					want, err = convert(data, dtype.F32, dtype.BF16)
					require.NoError(t, err)
					want, err = convert(want, dtype.BF16, dtype.F32)
					require.NoError(t, err)
				}
				require.Equal(t, want, got[name], name)
			}
			require.NoError(t, set.Close())
			require.ErrorContains(t, Export(ctx, dir, out, o), "exists and is not empty")
		}
	}
}

func TestExportLeavesNothingBehind(t *testing.T) {
	m, err := Parse(moeTable)
	require.NoError(t, err)
	ours := moeTensors()
	b, err := m.Bind(ours.entries)
	require.NoError(t, err)
	out, err := b.Export(ours, dtype.Invalid)
	require.NoError(t, err)
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	err = Export(ctx, dir, out, ExportOptions{Extra: func(string) error { return errors.New("no tokenizer") }})
	require.ErrorContains(t, err, "hf: exporting to "+dir+": no tokenizer")
	cancelled, cancel := context.WithCancel(ctx)
	err = Export(cancelled, dir, out, ExportOptions{Progress: func(done, _ int64) {
		if done > 500 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	cancel()
	require.ErrorContains(t, Export(ctx, dir, &memory{}, ExportOptions{}), "there are no tensors")
	list, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, Export(ctx, dir, out, ExportOptions{}), "an empty directory is as good as none")
	list, err = os.ReadDir(parent)
	require.NoError(t, err)
	require.Len(t, list, 1)
}
