package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"titan/graph"
	"titan/kernels"
	"titan/mesh"
	"titan/pjrt"
	"titan/pjrt/compilecache"
	"titan/pjrt/hlo"
	"titan/pjrt/llo"
)

// smallest is a topology of each kind of chip to compile single kernels for.
var smallest = map[string]string{"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2", "tpu7x": "tpu7x:2x2x1"}

// kernelJob is what a process of its own is asked to do: to compile a kernel and to
// read the code that the compiler has scheduled for it. The compiler is told to
// write that code down when it is loaded, and writes it of all that it compiles.
type kernelJob struct {
	Plugin   string `json:"plugin"`
	Topology string `json:"topology"`
	Program  string `json:"program"`
}

// kernelCode finds the code of the tile kernels of a compiled program, and says why
// it is not known of the others.
func kernelCode(ctx context.Context, o Options, kind string, m *hlo.Module) (map[*hlo.Instruction]llo.Grid, []string) {
	out := map[*hlo.Instruction]llo.Grid{}
	var problems []string
	found := map[string]*llo.Grid{} // by program
	var t *topology
	m.Walk(func(i *hlo.Instruction, _ int64) {
		if i.CustomCallTarget != hlo.TileKernel {
			return
		}
		if _, seen := out[i]; seen {
			return
		}
		program, err := kernelProgram(i)
		if g, known := found[program]; known && err == nil {
			if g != nil {
				out[i] = *g
			}
			return
		}
		if err == nil && t == nil {
			t, err = smallestTopology(o.Plugin, kind)
		}
		var g llo.Grid
		if err == nil {
			g, err = codeOf(ctx, o, t, kernelJob{o.Plugin, smallest[kind], program}, i.KernelName())
		}
		if found[program] = nil; err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", i.KernelName(), err))
			return
		}
		found[program], out[i] = &g, g
	})
	if t != nil {
		t.close()
	}
	return out, problems
}

func smallestTopology(plugin, kind string) (*topology, error) {
	t, err := mesh.ParseTopology(smallest[kind])
	if err != nil {
		return nil, err
	}
	return openTopology(plugin, t)
}

// codeOf asks the cache, or another process.
func codeOf(ctx context.Context, o Options, t *topology, job kernelJob, name string) (g llo.Grid, err error) {
	if len(o.Child) == 0 {
		return g, errors.New("its code was not asked for")
	}
	cache := o.Cache
	if cache == nil {
		cache = compilecache.Open("")
	}
	data, err := cache.Remember(t.topology, []byte(job.Program), kernelOptions, "code of a kernel", func() ([]byte, error) {
		o.Log("compiling the tile kernel %s alone, to see its code", name)
		job, err := json.Marshal(job)
		if err != nil {
			return nil, err
		}
		var stdout, stderr bytes.Buffer
		c := exec.CommandContext(ctx, o.Child[0], o.Child[1:]...)
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(job), &stdout, &stderr
		if err := c.Run(); err != nil {
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			return nil, fmt.Errorf("compiling it alone: %w: %s", err, lines[len(lines)-1])
		}
		return stdout.Bytes(), nil
	})
	if err != nil {
		return g, err
	}
	return g, json.Unmarshal(data, &g)
}

// kernelOptions are those that kernels are compiled with. The code of a kernel does
// not depend on the compiler's effort.
var kernelOptions = pjrt.CompileOptions{Partitions: 1, Shardy: true, OptLevel: pjrt.LevelO0}

// kernelProgram is a program that calls a kernel as i does, and does nothing else.
func kernelProgram(i *hlo.Instruction) (string, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(i.BackendConfig, &all); err != nil {
		return "", fmt.Errorf("the call of the kernel: %w", err)
	}
	for name := range all { // the others are the compiler's notes about the step
		if name != "custom_call_config" && name != "scoped_memory_configs" {
			delete(all, name)
		}
	}
	config, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	var operands, results, in, out []string
	var ins, outs []graph.Type
	for _, x := range i.Operands {
		x.Shape.Leaves(func(s hlo.Shape) { ins = append(ins, graph.T(s.Type.DType(), s.Dims...)) })
	}
	i.Shape.Leaves(func(s hlo.Shape) { outs = append(outs, graph.T(s.Type.DType(), s.Dims...)) })
	for _, t := range ins {
		operands, in = append(operands, t.String()), append(in, kernels.RowMajor(t.Rank()))
	}
	for _, t := range outs {
		results, out = append(results, t.String()), append(out, kernels.RowMajor(t.Rank()))
	}
	m, err := graph.Trace("kernel", nil, func(b *graph.Builder) error {
		var args []*graph.Value
		for k, t := range ins {
			args = append(args, b.Input(fmt.Sprintf("x%d", k), t))
		}
		ys := b.CustomCall(graph.CustomCallSpec{Target: hlo.TileKernel, Results: outs, Config: string(config), APIVersion: 1, Attributes: map[string]string{
			"kernel_name": fmt.Sprintf("%q", i.KernelName()), "operand_layouts": "[" + strings.Join(in, ", ") + "]", "result_layouts": "[" + strings.Join(out, ", ") + "]",
		}}, args...)
		for k, y := range ys {
			b.Output(fmt.Sprintf("y%d", k), y)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("a call of (%s) → (%s): %w", strings.Join(operands, ", "), strings.Join(results, ", "), err)
	}
	return m.StableHLO(), nil
}

// CompileKernel does what [Options.Child] is started for: it reads a job from in
// and writes what it finds of the kernel's code to out.
func CompileKernel(in io.Reader, out io.Writer) error {
	var job kernelJob
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("plan: the job: %w", err)
	}
	t, err := mesh.ParseTopology(job.Topology)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "titan-kernel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Only what comes out at the end, as text.
	flags := fmt.Sprintf("%s --xla_jf_dump_to=%s --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final", os.Getenv("LIBTPU_INIT_ARGS"), dir)
	top, err := openTopologyWith(job.Plugin, t, map[string]string{"LIBTPU_INIT_ARGS": strings.TrimSpace(flags)})
	if err != nil {
		return err
	}
	defer top.close()
	exe, err := top.Compile([]byte(job.Program), kernelOptions)
	if err != nil {
		return err
	}
	if err := exe.Close(); err != nil {
		return err
	}
	g, err := readGrid(dir, t.Kind)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(g)
}

// readGrid reads the code of the kernel that the compiler has written about to dir,
// beside that of copies to other layouts. What the code is for stands in its
// statistics.
func readGrid(dir, kind string) (llo.Grid, error) {
	const analysis, code = "-schedule-analysis_final_bundles.txt", "-final_bundles.txt"
	files, err := filepath.Glob(filepath.Join(dir, "*"+analysis))
	if err != nil {
		return llo.Grid{}, err
	}
	for _, file := range files {
		about, err := os.ReadFile(file)
		if err != nil {
			return llo.Grid{}, err
		}
		// 171…-name-02-schedule-analysis…: a number for each of the files about name.
		name := strings.TrimSuffix(file, analysis)
		name = name[:max(0, strings.LastIndexByte(name, '-'))]
		if !bytes.Contains(about, []byte(hlo.TileKernel)) || strings.HasSuffix(name, "-TLP") { // TLP is the code around
			continue
		}
		of, err := filepath.Glob(name + "-[0-9][0-9]" + code)
		if err != nil {
			return llo.Grid{}, err
		}
		if len(of) == 1 {
			return readCode(of[0], kind)
		}
	}
	return llo.Grid{}, errors.New("this version of the compiler does not write its code down")
}

func readCode(file, kind string) (llo.Grid, error) {
	f, err := os.Open(file)
	if err != nil {
		return llo.Grid{}, err
	}
	defer f.Close()
	code, err := llo.Read(f)
	if err != nil {
		return llo.Grid{}, err
	}
	return code.Grid(cores[kind])
}
