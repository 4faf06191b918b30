package checkpoint

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"strconv"
	"sync"

	"titan/checkpoint/safetensors"
	"titan/checkpoint/storage"
)

// partial is what one process wrote.
type partial struct {
	Files  []FileInfo     `json:"files"`
	Pieces []partialPiece `json:"pieces"`
}

type partialPiece struct {
	Tensor int `json:"tensor"`
	Piece      // its File counts the files of this process
}

// writeShards writes the files of this process into a directory and syncs them.
func writeShards(ctx context.Context, fsys storage.FS, dir string, s *Snapshot, files []file, chunk int64, workers int) (*partial, error) {
	out := &partial{Files: make([]FileInfo, len(files))}
	places := make([][]safetensors.Info, len(files))
	err := parallel(ctx, len(files), workers, func(ctx context.Context, i int) error {
		info, where, err := writeShard(ctx, fsys, dir, s, files[i], chunk)
		if err != nil {
			return fmt.Errorf("writing %s: %w", fsys.Path(path.Join(dir, files[i].name)), err)
		}
		out.Files[i], places[i] = info, where
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		for k, p := range f.parts {
			out.Pieces = append(out.Pieces, partialPiece{p.tensor, Piece{i, places[i][k].Offset, append([]int{}, p.region.Offset...), append([]int{}, p.region.Size...)}})
		}
	}
	return out, nil
}

// writeShard writes and syncs one file.
func writeShard(ctx context.Context, fsys storage.FS, dir string, s *Snapshot, f file, chunk int64) (info FileInfo, where []safetensors.Info, err error) {
	out, err := fsys.Create(path.Join(dir, f.name))
	if err != nil {
		return info, nil, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sums := &summer{w: out, chunk: chunk}
	buf := bufio.NewWriterSize(sums, int(min(max(f.bytes(), 4<<10), 1<<20)))
	w, err := safetensors.NewWriter(buf, f.entries, map[string]string{"format": "titan", "step": strconv.Itoa(s.Step)})
	if err != nil {
		return info, nil, err
	}
	for i, p := range f.parts {
		name := f.entries[i].Name
		if p.bytes == 0 {
			continue
		}
		data, err := s.Shard(ctx, p.tensor, p.position)
		if err != nil {
			return info, nil, fmt.Errorf("the shard of %q at position %d: %w", s.Tensors[p.tensor].Name, p.position, err)
		}
		if int64(len(data)) != p.bytes {
			return info, nil, fmt.Errorf("the shard of %q at position %d has %d bytes instead of %d", s.Tensors[p.tensor].Name, p.position, len(data), p.bytes)
		}
		const step = 4 << 20 // between looks at ctx, in bytes
		for len(data) > 0 {
			if err := ctx.Err(); err != nil {
				return info, nil, err
			}
			n := min(len(data), step)
			if _, err := w.Write(data[:n]); err != nil {
				return info, nil, fmt.Errorf("%q: %w", name, err)
			}
			data = data[n:]
		}
	}
	if err := errors.Join(w.Close(), buf.Flush()); err != nil {
		return info, nil, err
	}
	if err := out.Sync(); err != nil {
		return info, nil, fmt.Errorf("syncing: %w", err)
	}
	return FileInfo{f.name, sums.size, sums.finish()}, w.Tensors(), nil
}

// bytes returns the bytes of all parts.
func (f file) bytes() int64 {
	var n int64
	for _, p := range f.parts {
		n += p.bytes
	}
	return n
}

// summer writes through and takes the checksum of every chunk.
type summer struct {
	w     storage.File
	chunk int64
	size  int64
	crc   uint32
	sums  []byte
}

func (s *summer) Write(p []byte) (int, error) {
	if err := storage.Write(s.w, p); err != nil {
		return 0, err
	}
	for rest := p; len(rest) > 0; {
		n := min(int64(len(rest)), s.chunk-s.size%s.chunk)
		s.crc = crc32.Update(s.crc, castagnoli, rest[:n])
		s.size += n
		rest = rest[n:]
		if s.size%s.chunk == 0 {
			s.add()
		}
	}
	return len(p), nil
}

func (s *summer) add() {
	s.sums = append(s.sums, byte(s.crc>>24), byte(s.crc>>16), byte(s.crc>>8), byte(s.crc))
	s.crc = 0
}

func (s *summer) finish() string {
	if s.size%s.chunk != 0 {
		s.add()
	}
	return hex.EncodeToString(s.sums)
}

// parallel calls f for 0 ≤ i < n on so many goroutines, and returns the first
// error; ctx is done for those still running then.
func parallel(ctx context.Context, n, workers int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, max(workers, 1)) {
		wg.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case <-ctx.Done():
			break feed
		case next <- i:
		}
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
