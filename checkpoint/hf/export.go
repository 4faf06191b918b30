package hf

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"titan/checkpoint/safetensors"
	"titan/sharding"
)

// ExportOptions say how weights are written.
type ExportOptions struct {
	MaxShardSize int64 // bytes of tensors in a file, if no single tensor is larger; 0 for 5 GB
	// Memory is how many bytes of a tensor are asked for at once; 0 for 512 MiB.
	// A tensor that is rearranged is read several times if it is larger.
	Memory int
	// Extra, if not nil, adds files to the directory before it appears:
	// config.json, the tokenizer.
	Extra func(dir string) error
	// Progress, if not nil, is told the bytes written so far of all.
	Progress func(done, total int64)
}

const (
	defaultShardSize = 5_000_000_000
	defaultMemory    = 512 << 20
)

// Export writes the tensors of a source as a new directory: model.safetensors,
// or model-00001-of-0000n.safetensors and their index. The directory appears
// whole or not at all; it must not exist, unless it is empty.
func Export(ctx context.Context, dir string, src safetensors.Source, o ExportOptions) (err error) {
	if o.MaxShardSize <= 0 {
		o.MaxShardSize = defaultShardSize
	}
	if o.Memory <= 0 {
		o.Memory = defaultMemory
	}
	dir = filepath.Clean(dir)
	if err := checkFree(dir); err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("hf: exporting: %w", err)
	}
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".tmp-*")
	if err != nil {
		return fmt.Errorf("hf: exporting: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("hf: exporting to %s: %w", dir, err)
			os.RemoveAll(tmp)
		}
	}()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := writeModel(ctx, tmp, src, o); err != nil {
		return err
	}
	if o.Extra != nil {
		if err := o.Extra(tmp); err != nil {
			return err
		}
	}
	if err := syncAll(tmp); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // empty, as checked
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return syncPath(parent)
}

func checkFree(dir string) error {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("hf: exporting: %w", err)
	case len(list) > 0:
		return fmt.Errorf("hf: exporting: %s exists and is not empty; name a new directory", dir)
	}
	return nil
}

// shards divides the tensors over files, in order.
func shards(entries []safetensors.Entry, limit int64) [][]safetensors.Entry {
	var out [][]safetensors.Entry
	used := int64(0)
	for _, e := range entries {
		n := e.Bytes()
		if len(out) == 0 || used > 0 && used+n > limit {
			out = append(out, nil)
			used = 0
		}
		out[len(out)-1] = append(out[len(out)-1], e)
		used += n
	}
	return out
}

func writeModel(ctx context.Context, dir string, src safetensors.Source, o ExportOptions) error {
	entries := src.Entries()
	if len(entries) == 0 {
		return errors.New("there are no tensors")
	}
	var total, done int64
	for _, e := range entries {
		total += e.Bytes()
	}
	files := shards(entries, o.MaxShardSize)
	index := safetensors.Index{Metadata: map[string]any{"total_size": total}, WeightMap: map[string]string{}}
	for i, list := range files {
		name := safetensors.SingleName
		if len(files) > 1 {
			name = safetensors.ShardName(i, len(files))
		}
		for _, e := range list {
			index.WeightMap[e.Name] = name
		}
		list = slices.Clone(list)
		safetensors.Sort(list)
		err := writeFile(ctx, filepath.Join(dir, name), list, o.Memory, func(name string, r sharding.Region, dst []byte) error {
			if err := src.ReadRegion(name, r, dst); err != nil {
				return err
			}
			if done += int64(len(dst)); o.Progress != nil {
				o.Progress(done, total)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(files) == 1 {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(index); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, safetensors.IndexName), b.Bytes(), 0o644)
}

func writeFile(ctx context.Context, path string, entries []safetensors.Entry, chunk int, read func(string, sharding.Region, []byte) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := bufio.NewWriterSize(f, 1<<20)
	// What the Python side needs to see to accept a file.
	w, err := safetensors.NewWriter(buf, entries, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := w.WriteFrom(e.Name, chunk, func(r sharding.Region, dst []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return read(e.Name, r, dst)
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), buf.Flush())
}

// syncAll makes a directory and all below it durable.
func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return syncPath(p)
	})
}
