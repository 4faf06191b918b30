package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"titan/checkpoint/storage"
	"titan/checkpoint/storage/faultfs"
	"titan/sharding"
)

// threeSaves returns a folder with steps 10, 20 and 30.
func threeSaves(t *testing.T) *faultfs.FS {
	fs := faultfs.New()
	h := saves(fs, smallMesh(t, 1), smallTensors(), 0, 10, 20, 30)
	require.Len(t, h.acked, 3)
	return fs
}

func flip(i int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[i] ^= 1
		return b
	}
}

// usable opens a step, verifies it all and reads it all.
func usable(f *Folder, step int) error {
	c, err := f.Open(step)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Verify(ctx); err != nil {
		return err
	}
	_, err = readID(c, smallTensors())
	return err
}

// A manifest that vouches for itself but not for what the files say of themselves
// is found by Verify: other programs would read something else than we do.
func TestVerifyComparesHeaders(t *testing.T) {
	for what, change := range map[string]func(*Manifest){
		"its header places":                      func(m *Manifest) { p := m.Tensors[0].Pieces; p[0].Offset, p[1].Offset = p[1].Offset, p[0].Offset },
		"it has 5 tensors, the manifest lists 4": func(m *Manifest) { m.Tensors = m.Tensors[:1] },
	} {
		o := testOptions(0)
		o.FileSize = 0
		fs := faultfs.New()
		saveAll(t, fs, 1, func() Options { return o }, snapshot(1, 1, smallMesh(t, 1), []Tensor{smallTensors()[0], smallTensors()[3]}))
		c, err := NewFolder(fs).Open(1)
		require.NoError(t, err)
		require.NoError(t, c.Verify(ctx))
		m := *c.Manifest()
		change(&m)
		raw, err := m.encode()
		require.NoError(t, err)
		mark, err := json.Marshal(newMarker(&m, raw))
		require.NoError(t, err)
		fs.Corrupt(path.Join(stepDir(1), manifestName), func([]byte) []byte { return raw })
		fs.Corrupt(path.Join(stepDir(1), commitName), func([]byte) []byte { return mark })
		_, err = NewFolder(fs).Verify(ctx, 1)
		require.ErrorContains(t, err, what)
		require.ErrorContains(t, err, "step-00000001 is damaged: shard-00000-000.safetensors")
	}
}

// Any changed byte and any cut of any file is noticed, and the file named.
func TestEveryDamageIsNoticed(t *testing.T) {
	fs := threeSaves(t)
	f := NewFolder(fs)
	files, err := fs.ReadDir(stepDir(20))
	require.NoError(t, err)
	require.Len(t, files, 5+2)
	damages := 0
	for _, file := range files {
		name := path.Join(stepDir(20), file.Name)
		original, err := storage.ReadFile(fs, name, 1<<20)
		require.NoError(t, err)
		restore := func([]byte) []byte { return slices.Clone(original) }
		step := 1
		if file.Name == manifestName && !long {
			step = 13
		}
		for i := 0; i < len(original); i += step {
			for what, change := range map[string]func([]byte) []byte{
				"flipped": flip(i),
				"cut":     func(b []byte) []byte { return b[:i] },
			} {
				if what == "cut" && i%5 != 0 {
					continue
				}
				damages++
				require.True(t, fs.Corrupt(name, change))
				err := usable(f, 20)
				var refused *RefusedError
				require.ErrorAs(t, err, &refused, "%s: byte %d %s", file.Name, i, what)
				require.NotEqual(t, Complete, refused.Status)
				require.NotEqual(t, HalfWritten, refused.Status)
				named := file.Name
				if file.Name == commitName && strings.Contains(err.Error(), manifestName) {
					named = manifestName // the two disagree; either may be wrong
				}
				require.ErrorContains(t, err, path.Join("faultfs", stepDir(20)))
				require.ErrorContains(t, err, named)
				fs.Corrupt(name, restore)
			}
		}
		for what, change := range map[string]func([]byte) []byte{
			"longer":  func(b []byte) []byte { return append(b, 0) },
			"swapped": func([]byte) []byte { return []byte("{}") },
		} {
			require.True(t, fs.Corrupt(name, change))
			require.Error(t, usable(f, 20), "%s: %s", file.Name, what)
			fs.Corrupt(name, restore)
		}
		require.NoError(t, fs.Remove(name))
		err = usable(f, 20)
		require.ErrorContains(t, err, file.Name)
		require.NoError(t, storage.WriteFile(fs, name, original))
	}
	require.NoError(t, usable(f, 20))
	t.Logf("%d damages", damages)
}

// The error says which tensors are hit, and the others can still be read.
func TestDamageNamesTensors(t *testing.T) {
	fs := threeSaves(t)
	c, err := NewFolder(fs).Open(30)
	require.NoError(t, err)
	norm := c.m.Tensors[c.byName["norm"]]
	p := norm.Pieces[0]
	require.True(t, fs.Corrupt(path.Join(stepDir(30), c.m.Files[p.File].Name), flip(int(p.Offset))))
	err = c.ReadRegion("norm", sharding.Whole([]int{6}), make([]byte, 12))
	require.ErrorContains(t, err, "checkpoint: faultfs/step-00000030 is damaged: shard-00000-")
	require.ErrorContains(t, err, "norm")
	require.ErrorContains(t, err, "are not what was written: their checksum differs")
	require.NoError(t, c.ReadRegion("count", sharding.Whole(nil), make([]byte, 8)))
	require.NoError(t, fs.Remove(path.Join(stepDir(30), c.m.Files[p.File].Name)))
	require.NoError(t, c.Close())
	c, err = NewFolder(threeSaves(t)).Open(30)
	require.NoError(t, err)
	require.NoError(t, c.fs.Remove(path.Join(stepDir(30), c.m.Files[0].Name)))
	require.ErrorContains(t, c.Verify(ctx), "has the checkpoint been removed meanwhile?")
}

func TestListAndOpen(t *testing.T) {
	fs := threeSaves(t)
	f := NewFolder(fs)
	open := func(step int) error {
		c, err := f.Open(step)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	require.NoError(t, open(10))
	var none *NotFoundError
	require.ErrorAs(t, open(25), &none)
	require.EqualError(t, none, "checkpoint: faultfs has no step 25; it has 10, 20, 30")
	require.EqualError(t, NewFolder(faultfs.New()).openLatest(), "checkpoint: faultfs has no complete checkpoint")

	// Things that are not checkpoints, or not ours.
	require.NoError(t, fs.Mkdir("step-00000040"))
	require.NoError(t, fs.Mkdir("step-0000000050")) // we would not write it so
	require.NoError(t, fs.Mkdir("logs"))
	require.NoError(t, storage.WriteFile(fs, "notes.txt", nil))
	require.ErrorContains(t, open(40), "step-00000040 is foreign: it has no manifest.json; titan did not write it")
	require.ErrorContains(t, open(Latest), "step-00000040 is foreign")
	require.ErrorAs(t, open(50), &none)
	require.NoError(t, fs.Remove("step-00000040"))

	// Half-written: as after a kill between rename and commit.
	require.NoError(t, fs.Rename(path.Join(stepDir(30), commitName), path.Join(stepDir(30), pendingName)))
	require.ErrorContains(t, open(30), "step-00000030 is half-written: the save was interrupted before it was committed")
	c, err := f.Open(Latest)
	require.NoError(t, err)
	require.Equal(t, 20, c.Step(), "what never committed does not count")

	// Copied in part, or renamed.
	require.NoError(t, fs.Remove(path.Join(stepDir(30), pendingName)))
	require.ErrorContains(t, open(30), "step-00000030 is foreign: COMMIT: the file is missing; was the checkpoint copied only in part?")
	require.ErrorContains(t, open(Latest), "step-00000030 is foreign")
	require.NoError(t, fs.Rename(stepDir(20), stepDir(21)))
	require.ErrorContains(t, open(21), "it is that of step 20; was the directory renamed?")

	list, err := f.List()
	require.NoError(t, err)
	var got []string
	for _, l := range list {
		got = append(got, fmt.Sprint(l.Step, " ", l.Status))
		require.Equal(t, l.Status == Complete, l.Err == nil)
		require.Equal(t, l.Status == Complete, l.Manifest != nil && l.Bytes > 0)
	}
	require.Equal(t, []string{"10 complete", "21 damaged", "30 foreign"}, got)

	// From the future.
	require.True(t, fs.Corrupt(path.Join(stepDir(10), commitName), func(b []byte) []byte {
		var m map[string]any
		require.NoError(t, json.Unmarshal(b, &m))
		m["version"] = 7
		b, err := json.Marshal(m)
		require.NoError(t, err)
		return b
	}))
	require.ErrorContains(t, open(10), "step-00000010 is too new: COMMIT: it cannot be used: it has format version 7, this titan reads up to 1")

	_, err = OpenFolder(path.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "checkpoint: opening the folder")
}

func (f *Folder) openLatest() error {
	_, err := f.Open(Latest)
	return err
}

func TestSaveRefusesForeignGround(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	fs := faultfs.New()
	require.NoError(t, fs.Mkdir(stepDir(7)))
	require.NoError(t, storage.WriteFile(fs, path.Join(stepDir(7), "precious"), []byte("x")))
	s, err := NewStore(fs, testOptions(1))
	require.NoError(t, err)
	_, err = s.Save(ctx, snapshot(7, 1, m, tensors))
	require.ErrorContains(t, err, "its place is taken; move it away first")
	require.ErrorContains(t, err, "step-00000007 is foreign")
	for step := 8; step < 12; step++ {
		_, err = s.Save(ctx, snapshot(step, step, m, tensors))
		require.NoError(t, err)
	}
	_, err = fs.Open(path.Join(stepDir(7), "precious"))
	require.NoError(t, err, "what is not ours is never removed")
}

// After falling back behind a damaged checkpoint the run comes to its step again,
// and replaces it, without ever touching the one it fell back to.
func TestReplaceDamaged(t *testing.T) {
	m, tensors := smallMesh(t, 1), smallTensors()
	damaged := func() *faultfs.FS {
		fs := threeSaves(t)
		require.True(t, fs.Corrupt(path.Join(stepDir(30), shardName(0, 1)), func(b []byte) []byte { return b[:10] }))
		return fs
	}
	again := func(fs *faultfs.FS) error {
		s, err := NewStore(fs, testOptions(2))
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Save(ctx, snapshot(30, 4, m, tensors))
		return err
	}
	fs := damaged()
	from := fs.Count()
	require.NoError(t, again(fs))
	require.NoError(t, checkTidy(fs))
	for n := from + 1; n <= fs.Count(); n++ {
		crashed := damaged()
		crashed.CrashAfter(n)
		saved := again(crashed) == nil
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		for range 5 {
			after := crashed.Crashed(rng)
			require.NoError(t, usable(NewFolder(after), 20), "crash after %d", n)
			if usable(NewFolder(after), 30) != nil {
				require.False(t, saved)
				require.NoError(t, again(after))
			}
			c, err := NewFolder(after).Open(Latest)
			require.NoError(t, err)
			id, err := readID(c, tensors)
			require.NoError(t, err)
			require.Equal(t, 4, id)
		}
	}
}

func TestLoadFallsBack(t *testing.T) {
	fs := threeSaves(t)
	f := NewFolder(fs)
	shard := func(step int) string { return path.Join(stepDir(step), shardName(0, 2)) }
	use := func(c *Checkpoint) error { _, err := readID(c, smallTensors()); return err }
	load := func(o LoadOptions) (*Loaded, error) { return f.Load(ctx, o, use) }

	got, err := load(LoadOptions{Step: Latest})
	require.NoError(t, err)
	require.Equal(t, &Loaded{Step: 30, Path: "faultfs/step-00000030"}, got)

	// Damage that only reading finds.
	size := 0
	require.True(t, fs.Corrupt(shard(30), func(b []byte) []byte { size = len(b); return flip(len(b) - 1)(b) }))
	require.Positive(t, size)
	_, err = load(LoadOptions{Step: Latest})
	require.ErrorContains(t, err, "step-00000030 is damaged: shard-00000-002.safetensors")
	require.ErrorContains(t, err, "the complete one before it is step 20: load that (checkpoint.load_step), or allow falling back to it (checkpoint.fallback)")
	got, err = load(LoadOptions{Step: Latest, Fallback: true})
	require.NoError(t, err)
	require.Equal(t, 20, got.Step)
	require.Len(t, got.Skipped, 1)
	require.ErrorContains(t, got.Skipped[0], "step-00000030 is damaged")
	got, err = load(LoadOptions{Step: 30, Fallback: true})
	require.NoError(t, err)
	require.Equal(t, 20, got.Step)

	// Verify finds it before anything is used.
	used := []int{}
	got, err = f.Load(ctx, LoadOptions{Step: Latest, Fallback: true, Verify: true}, func(c *Checkpoint) error {
		used = append(used, c.Step())
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{20}, used)
	require.Equal(t, 20, got.Step)

	// An error that is not the checkpoint's fault is not fallen back from.
	broken := errors.New("device is full")
	_, err = f.Load(ctx, LoadOptions{Step: 20, Fallback: true}, func(*Checkpoint) error { return broken })
	require.ErrorIs(t, err, broken)
	_, err = load(LoadOptions{Step: 11, Fallback: true})
	require.ErrorContains(t, err, "has no step 11; it has 10, 20, 30")

	require.True(t, fs.Corrupt(shard(20), func(b []byte) []byte { return b[:9] }))
	require.NoError(t, fs.Remove(shard(10)))
	_, err = load(LoadOptions{Step: Latest, Fallback: true})
	for _, want := range []string{"no checkpoint of faultfs can be used", "step-00000030 is damaged", "step-00000020 is damaged", "truncated: it has 9 of", "step-00000010 is damaged", "the file is missing"} {
		require.ErrorContains(t, err, want)
	}
	_, err = load(LoadOptions{Step: 10})
	require.ErrorContains(t, err, "no earlier checkpoint is complete")
	step, err := f.Verify(ctx, Latest)
	require.Equal(t, 30, step)
	require.ErrorContains(t, err, "checksum")
}

// corruptFS gives out wrong bytes for one step, as one host's cache might.
type corruptFS struct {
	storage.FS
	step int
}

type corruptObject struct{ storage.Object }

func (f corruptFS) Open(name string) (storage.Object, error) {
	o, err := f.FS.Open(name)
	if err == nil && strings.HasPrefix(name, stepDir(f.step)+"/shard") {
		o = corruptObject{o}
	}
	return o, err
}

func (o corruptObject) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(p, off)
	for i := range p[:n] {
		p[i] ^= 0x10
	}
	return n, err
}

// All processes load the same checkpoint, also if it is damaged for only one.
func TestLoadInGroup(t *testing.T) {
	fs := threeSaves(t)
	run := func(view func(rank int) storage.FS, o LoadOptions) ([]*Loaded, []error) {
		loaded, errs := make([]*Loaded, 3), make([]error, 3)
		var wg sync.WaitGroup
		for i, g := range LocalGroup(3) {
			o := o
			o.Group = g
			wg.Go(func() {
				loaded[i], errs[i] = NewFolder(view(i)).Load(ctx, o, func(c *Checkpoint) error {
					_, err := readID(c, smallTensors())
					return err
				})
			})
		}
		wg.Wait()
		return loaded, errs
	}
	one := func(rank int) storage.FS {
		if rank == 1 {
			return corruptFS{fs, 30}
		}
		return fs
	}
	loaded, errs := run(one, LoadOptions{Step: Latest, Fallback: true})
	for i := range errs {
		require.NoError(t, errs[i])
		require.Equal(t, 20, loaded[i].Step)
		require.Len(t, loaded[i].Skipped, 1)
	}
	_, errs = run(one, LoadOptions{Step: Latest})
	for i := range errs {
		require.ErrorContains(t, errs[i], "step-00000030 is damaged", "process %d", i)
	}
	require.ErrorContains(t, errs[0], "refused by process 1")
	_, errs = run(one, LoadOptions{Step: 31})
	for i := range errs {
		require.ErrorContains(t, errs[i], "has no step 31; it has 10, 20, 30", "process %d", i)
	}
	elsewhere := func(rank int) storage.FS {
		if rank == 2 {
			return faultfs.New()
		}
		return fs
	}
	_, errs = run(elsewhere, LoadOptions{Step: Latest})
	for i := range errs {
		require.ErrorContains(t, errs[i], "must be on storage that all hosts share", "process %d", i)
	}
}

// Whatever a manifest says, it is refused or it is consistent; nothing panics.
func TestMutatedManifests(t *testing.T) {
	fs := threeSaves(t)
	good, err := storage.ReadFile(fs, path.Join(stepDir(10), manifestName), 1<<20)
	require.NoError(t, err)
	_, err = decodeManifest(good)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(8, 8))
	accepted := 0
	for range 20000 {
		raw := slices.Clone(good)
		for range 1 + rng.IntN(2) {
			i := rng.IntN(len(raw))
			switch rng.IntN(3) {
			case 0:
				raw[i] = `0123456789{}[],":-`[rng.IntN(18)]
			case 1:
				raw = slices.Delete(raw, i, min(len(raw), i+1+rng.IntN(12)))
			case 2:
				raw = slices.Insert(raw, i, raw[i:min(len(raw), i+1+rng.IntN(40))]...)
			}
		}
		m, err := decodeManifest(raw)
		if err != nil {
			continue
		}
		accepted++
		for _, x := range m.Tensors {
			covered := 0
			x.overlapping(sharding.Whole(x.Shape), func(p Piece) {
				covered += p.region().Elements()
				require.LessOrEqual(t, p.Offset+int64(p.region().Elements()*x.dtype.Size()), m.Files[p.File].Size)
			})
			require.Equal(t, sharding.Whole(x.Shape).Elements(), covered)
		}
	}
	require.Positive(t, accepted)
}
