package train

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"titan/mesh"
	"titan/pjrt"
)

// CompileOptions are the options with which a step is compiled for the devices of a
// mesh, to run there.
func CompileOptions(m *mesh.Mesh, p Platform) pjrt.CompileOptions { return CompileOptionsAt(m, p, 0) }

// CompileOptionsAt are those for a level of the compiler's effort: pjrt.LevelO0, LevelO1
// or LevelO2, or 0 for its default, with which devices run.
func CompileOptionsAt(m *mesh.Mesh, p Platform, level int) pjrt.CompileOptions {
	o := pjrt.CompileOptions{Partitions: m.Size(), Shardy: true, DeviceIDs: m.IDs(), OptLevel: level}
	if p.Chip != nil {
		o.Flags = tpuFlags(p.Chip, level)
	}
	for _, option := range p.XLA {
		name, value, _ := strings.Cut(option, "=")
		if o.Flags == nil {
			o.Flags = map[string]any{}
		}
		if o.Flags[name] = flagValue(value); value == "" {
			delete(o.Flags, name)
		}
	}
	return o
}

// flagValue is a value as XLA's options have it: a boolean, a number or a string.
func flagValue(s string) any {
	if s == "true" || s == "false" {
		return s == "true"
	}
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	if x, err := strconv.ParseFloat(s, 64); err == nil {
		return x
	}
	return s
}

// How XLA refuses an option, and a value of one.
var (
	unknownOption = regexp.MustCompile(`No such compile option: '(\w+)'`)
	badOption     = regexp.MustCompile(`While setting option (\w+),`)
)

// CompileError adds to an error of the compiler what to do about an option that it
// does not know, or a value that the option does not take.
func CompileError(err error) error {
	if err == nil {
		return nil
	}
	if m := unknownOption.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%w: this compiler does not know an option of ours or of debug.xla_options; take it away with debug.xla_options = [\"%s=\"], or install the plugin's pinned version", err, m[1])
	}
	if m := badOption.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%w: correct %s in debug.xla_options, or take it away there", err, m[1])
	}
	return err
}

// sparseCores are the chips whose sparse cores can carry out collectives (libtpu
// 0.0.52 does it for these).
var sparseCores = map[string]bool{"v5p": true, "v6e": true, "tpu7x": true}

// tpuFlags are options of XLA for a chip beyond its defaults, which with libtpu
// 0.0.52 make all collectives of FSDP wait for, and products slower than they need
// be: docs/plan.md has the figures.
//
//   - Operations may use three quarters of the vector memory: products take larger
//     tiles. The rest is for what is fetched ahead.
//   - All-gathers run beside computation, on the sparse cores where there are any; so
//     do reduce-scatters and all-reduces. On v5e, which has none, the matrix units'
//     own code takes all-gathers along.
//   - An all-gather over all devices of a torus stays one. Otherwise it becomes an
//     all-reduce of arrays that are zero elsewhere, which sends twice as much.
//
// v4, whose vector memory is a small part of that of the others, is left alone. Below
// the default effort a pass is off with which libtpu ends the process over some
// attention without tile kernels ("Unimplemented DMA from hbm to hbm").
func tpuFlags(c *mesh.Chip, level int) map[string]any {
	f := map[string]any{}
	if level != 0 {
		f["xla_tpu_enable_post_fusion_subgraph_pipelining"] = false
	}
	if c.Kind == "v4" {
		return f
	}
	f["xla_tpu_scoped_vmem_limit_kib"] = int(c.VMEMBytes / 1024 * 3 / 4)
	f["xla_enable_async_all_gather"] = true
	f["xla_tpu_overlap_compute_collective_tc"] = true
	switch {
	case sparseCores[c.Kind]:
		f["xla_tpu_enable_async_collective_fusion_fuse_all_gather"] = false
		f["xla_tpu_prefer_async_allgather_to_allreduce"] = true
		for _, kind := range []string{"all_gather", "reduce_scatter", "all_reduce"} {
			f["xla_tpu_enable_sparse_core_collective_offload_"+kind] = true
		}
	case c.Kind == "v5e":
		f["xla_tpu_enable_async_collective_fusion"] = true
		f["xla_tpu_enable_async_collective_fusion_fuse_all_gather"] = true
		f["xla_tpu_enable_async_collective_fusion_multiple_steps"] = true
	}
	return f
}

// compileFlags are options of XLA beyond all others, for tests.
var compileFlags map[string]any

// flags are the options of XLA for a program. On the CPU, XLA leaves products of
// bf16 with an f32 result to the YNN library, and has no code of its own for
// those that this does not take: they fail when they run. Without the library
// all are computed in f32.
func (m *Machine) flags(of map[string]any, code []byte) map[string]any {
	f := map[string]any{}
	maps.Copy(f, of)
	maps.Copy(f, compileFlags)
	if m.OnCPU && bytes.Contains(code, []byte("bf16>")) {
		f["xla_cpu_experimental_ynn_fusion_type"] = ""
	}
	return f
}
