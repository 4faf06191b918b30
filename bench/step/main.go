// Command step times the training step of titan train on a fixed batch and
// prints one line of JSON with the keys of bench/jax_bench.py and
// bench/torch_bench.py. The step is built by the code that titan train uses,
// from a recipe that has the constants of those scripts.
//
//	go run ./bench/step --model qwen3_moe_debug --devices 8 --data DIR
//
// DIR is what bench/fixture.py writes: initial parameters in Hugging Face's layout
// and the batch. Without it, parameters and tokens are titan's own.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"titan/pjrt"
	"titan/train"
)

// options are the command's flags.
type options struct {
	model   string
	data    string
	devices int
	batch   int
	seq     int
	steps   int
	warmup  int
	dtype   string
	remat   string
	cache   string
	sets    []string

	attnBlock, attnRows, expertBlock, lossChunks int
	hlo, stablehlo                               string
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("step", flag.ContinueOnError)
	f.StringVar(&o.model, "model", "llama_debug", "llama_debug or qwen3_moe_debug")
	f.StringVar(&o.data, "data", "", "folder written by bench/fixture.py, with MODEL/model.safetensors and MODEL/batch.safetensors")
	f.IntVar(&o.devices, "devices", 1, "virtual devices, over which parameters and batch are sharded")
	f.IntVar(&o.batch, "batch", 8, "sequences of a step, over all devices")
	f.IntVar(&o.seq, "seq", 512, "tokens of a sequence")
	f.IntVar(&o.steps, "steps", 10, "steps that are timed")
	f.IntVar(&o.warmup, "warmup", 1, "steps before them")
	f.StringVar(&o.dtype, "dtype", "f32", "f32 or bf16: what matrices are multiplied in")
	f.StringVar(&o.remat, "remat", "none", "activation_checkpoint.mode")
	f.BoolFunc("unroll", "training.unroll_layers (default: what the recipe says)", func(s string) error {
		o.sets = append(o.sets, "training.unroll_layers="+s)
		return nil
	})
	f.StringVar(&o.cache, "cache", "", "folder of the compile cache; empty: always compile")
	f.Func("set", "SECTION.KEY=VALUE of the recipe; may be given several times", func(s string) error {
		o.sets = append(o.sets, s)
		return nil
	})
	f.IntVar(&o.attnBlock, "attn-block", -1, "queries and keys treated at once, 0: as the model code chooses (default: what titan train does)")
	f.IntVar(&o.attnRows, "attn-rows", -1, "heads treated at once, 0: all (default: what titan train does)")
	f.IntVar(&o.expertBlock, "expert-block", -1, "rows multiplied by an expert's weights at once (default: what titan train does)")
	f.IntVar(&o.lossChunks, "loss-chunks", -1, "parts of the sequence whose logits exist at a time (default: what titan train does)")
	f.StringVar(&o.hlo, "hlo", "", "write the optimized program to this file")
	f.StringVar(&o.stablehlo, "stablehlo", "", "write the traced program to this file")
	f.Bool("json", true, "print JSON; there is no other output")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.steps < 1 || o.warmup < 0:
		return nil, fmt.Errorf("--steps is %d and must be positive, --warmup is %d and must not be negative", o.steps, o.warmup)
	case o.devices < 1 || o.batch%o.devices != 0:
		return nil, fmt.Errorf("--batch %d does not divide over --devices %d", o.batch, o.devices)
	}
	if o.data != "" {
		o.data = filepath.Join(o.data, o.model)
	}
	return o, nil
}

// override changes how the step is computed, where a flag asks for it.
func (o *options) override(s *train.StepOptions) {
	for _, x := range []struct {
		flag int
		to   *int
	}{
		{o.attnBlock, &s.Options.Attention.Block}, {o.attnRows, &s.Options.Attention.Rows},
		{o.expertBlock, &s.Options.ExpertBlock}, {o.lossChunks, &s.Options.LossChunks},
	} {
		if x.flag >= 0 {
			*x.to = x.flag
		}
	}
}

func main() {
	if err := pjrt.KeepHostPages(); err != nil { // as titan train
		fmt.Fprintln(os.Stderr, "note:", err)
	}
	o, err := parse(os.Args[1:])
	if err == nil {
		var r *result
		if r, err = measure(o); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "step:", err)
		os.Exit(1)
	}
}
