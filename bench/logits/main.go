// Command logits writes the logits that titan computes for a model, so that
// bench/hf_logits.py can compare Transformers with them:
//
//	go run ./bench/logits [-step N] FROM OUT.safetensors
//
// FROM is a folder of checkpoints or a directory in Hugging Face's layout. The
// model runs in f32 on one CPU device, on pseudo-random tokens.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	"titan/checkpoint"
	"titan/checkpoint/hfmodel"
	"titan/checkpoint/safetensors"
	"titan/dtype"
	"titan/graph"
	"titan/models/decoder"
	"titan/models/hfconfig"
	"titan/pjrt"
	"titan/pjrt/plugins"
	"titan/sharding"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("logits: ")
	step := flag.Int("step", checkpoint.Latest, "step of the checkpoint; -1 for the last")
	batch := flag.Int("batch", 2, "sequences")
	length := flag.Int("length", 64, "tokens of a sequence")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("needs FROM and OUT.safetensors")
	}
	c, src, from, err := open(flag.Arg(0), *step)
	if err != nil {
		log.Fatal(err)
	}
	err = write(flag.Arg(1), c, src, *batch, min(*length, c.MaxSeqLen))
	from.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// open finds a model and its weights.
func open(path string, step int) (decoder.Config, safetensors.Source, io.Closer, error) {
	if _, err := os.Stat(filepath.Join(path, hfconfig.Name)); err == nil {
		m, err := hfmodel.Open(path)
		if err != nil {
			return decoder.Config{}, nil, nil, err
		}
		src, err := m.Tensors(dtype.F32)
		return m.Config, src, m, err
	}
	f, err := checkpoint.OpenFolder(path)
	if err != nil {
		return decoder.Config{}, nil, nil, err
	}
	c, err := f.Open(step)
	if err != nil {
		return decoder.Config{}, nil, nil, err
	}
	s, err := hfmodel.SavedModel(c)
	return s.Config, c, c, err
}

func write(out string, c decoder.Config, src safetensors.Source, batch, length int) error {
	rng := rand.New(rand.NewPCG(1, 2))
	tokens := make([]int32, batch*length)
	for i := range tokens {
		tokens[i] = int32(rng.IntN(c.VocabSize))
	}
	logits, err := run(c, src, tokens, batch, length)
	if err != nil {
		return err
	}
	entries := []safetensors.Entry{
		{Name: "logits", DType: dtype.F32, Shape: []int{batch, length, c.VocabSize}},
		{Name: "tokens", DType: dtype.S32, Shape: []int{batch, length}},
	}
	data := map[string][]byte{"logits": logits, "tokens": pjrt.AsBytes(tokens)}
	err = safetensors.WriteFile(out, entries, nil, func(name string, r sharding.Region, dst []byte) error {
		for _, e := range entries {
			if e.Name == name {
				return sharding.CopyRegion(dst, r, data[name], sharding.Whole(e.Shape), 4)
			}
		}
		return fmt.Errorf("no %q", name)
	})
	if err == nil {
		fmt.Printf("%s: %d sequences of %d tokens\n", out, batch, length)
	}
	return err
}

// run computes the logits of tokens [batch, length].
func run(c decoder.Config, src safetensors.Source, tokens []int32, batch, length int) ([]byte, error) {
	path, err := plugins.Find("cpu")
	if err != nil {
		return nil, err
	}
	plugin, err := pjrt.OpenWith(path, pjrt.OpenOptions{Env: map[string]string{"TF_CPP_MIN_LOG_LEVEL": "3"}})
	if err != nil {
		return nil, err
	}
	client, err := plugin.NewClient(pjrt.ClientOptions{Devices: 1})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	params := hfmodel.Entries(c, dtype.F32)
	mod, err := graph.Trace("logits", nil, func(b *graph.Builder) error {
		named := map[string]*graph.Value{}
		for _, p := range params {
			named[p.Name] = b.Input(p.Name, graph.T(p.DType, p.Shape...))
		}
		m := decoder.Model{Config: c, Placement: decoder.Single{Compute: dtype.F32}}
		b.Output("logits", m.Logits(b, named, decoder.Batch{Tokens: b.Input("tokens", graph.T(dtype.S32, batch, length))}))
		return nil
	})
	if err != nil {
		return nil, err
	}
	exe, err := client.Compile([]byte(mod.StableHLO()), pjrt.CompileOptions{})
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	args := make([][]*pjrt.Buffer, 1)
	defer func() { pjrt.CloseBuffers(args...) }()
	put := func(data []byte, d dtype.DType, shape []int) error {
		buf, err := client.Put(data, d, shape, exe.Devices()[0])
		if err == nil {
			args[0] = append(args[0], buf)
		}
		return err
	}
	for _, p := range params {
		data := make([]byte, p.Bytes())
		if err := src.ReadRegion(p.Name, sharding.Whole(p.Shape), data); err != nil {
			return nil, err
		}
		if err := put(data, p.DType, p.Shape); err != nil {
			return nil, err
		}
	}
	if err := put(pjrt.AsBytes(tokens), dtype.S32, []int{batch, length}); err != nil {
		return nil, err
	}
	outs, err := exe.Run(args, pjrt.ExecuteOptions{})
	if err != nil {
		return nil, err
	}
	defer pjrt.CloseBuffers(outs...)
	return outs[0][0].Bytes()
}
