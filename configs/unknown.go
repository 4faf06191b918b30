package configs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"titan/internal/nearest"
)

// unknown reports a key that its table does not have: what it was in TorchTitan,
// the section it belongs to, or the nearest key there is.
func (d *decoding) unknown(table, name string, n *node) {
	full := name
	if table != "" {
		full = table + "." + name
	}
	d.bad(n, full, "%s", whyUnknown(table, name, n))
}

func whyUnknown(table, name string, n *node) string {
	shape := noIndex(table)
	if why := torchTitan[joinKey(shape, name)]; why != "" {
		return why
	}
	known := keysOf(shape)
	if table == "" && n.kind == tableKind {
		return "unknown section" + nearest.Hint(name, known)
	}
	if table == "" {
		known = append(known, extendsKey)
	}
	if name == extendsKey {
		return "belongs at the top of the file, before the first section"
	}
	near := nearest.Name(name, known)
	var elsewhere []string
	for _, s := range sections {
		if s != shape && slices.Contains(keysOf(s), name) {
			elsewhere = append(elsewhere, "["+s+"]")
		}
	}
	switch {
	case len(elsewhere) == 0 && near == "" && table == "":
		return "unknown key; before the first section there is only extends"
	case len(elsewhere) == 0:
		return "unknown key" + nearest.Hint(name, known)
	case near != "" && table != "":
		return fmt.Sprintf("unknown key here; did you mean %q, or that of %s?", near, strings.Join(elsewhere, ", "))
	}
	return "unknown key here; it belongs in " + strings.Join(elsewhere, " or ")
}

// noIndex turns "optimizer.param_groups[1]" into "optimizer.param_groups".
func noIndex(key string) string {
	for {
		a, b := strings.IndexByte(key, '['), strings.IndexByte(key, ']')
		if a < 0 || b < a {
			return key
		}
		key = key[:a] + key[b+1:]
	}
}

func joinKey(table, name string) string {
	if table == "" {
		return name
	}
	return table + "." + name
}

// sections are the names of all tables of a recipe, parents before their own.
var sections = func() (names []string) {
	for _, k := range Schema() {
		if table := k.Section; !slices.Contains(names, table) {
			names = append(names, table)
		}
	}
	return names
}()

// keysOf returns the keys of a table, of the whole recipe for "".
func keysOf(table string) []string {
	t := reflect.TypeFor[Recipe]()
	if table != "" {
		for name := range strings.SplitSeq(table, ".") {
			f, ok := tagged(t, name)
			if !ok {
				return nil
			}
			t = f
		}
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for i := range t.NumField() {
		keys = append(keys, t.Field(i).Tag.Get("toml"))
	}
	return keys
}

// tagged returns the type of a struct's field with a toml tag; of a slice of
// structs that of the elements.
func tagged(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("toml") == name {
			ft := f.Type
			for ft.Kind() == reflect.Slice || ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			return ft, true
		}
	}
	return nil, false
}

// torchTitan says of keys and sections of TorchTitan's recipes what became of
// them.
var torchTitan = map[string]string{
	"compile":                        "every program is compiled; leave the section out",
	"experimental":                   "has no counterpart; leave the section out",
	"fault_tolerance":                "is not supported; leave the section out",
	"memory_estimation":              "is not needed: titan config check shows bytes per device; leave the section out",
	"float8":                         "is called quantize.linear.float8",
	"mx":                             quantizing,
	"quantize.linear.mx":             quantizing,
	"quantize.grouped_mm":            "is not supported yet: experts multiply in training.mixed_precision_param; leave the section out",
	"quantize.linear.float8.emulate": "is not needed: the cpu platform computes 8-bit products with equal results; leave it out",
	"quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp": gone,
	"quantize.linear.float8.force_recompute_fp8_weight_in_bwd":        "is what happens in any case; leave it out",
	"plan":                                                  "is not supported yet; leave the section out",
	"sweep":                                                 "is not supported yet; leave the section out",
	"model.converters":                                      "is not needed: quantize.linear.float8.enable has products in 8-bit floats; leave it out",
	"model.print_after_conversion":                          gone,
	"model.tokenizer_path":                                  "is called hf_assets_path, and is a folder",
	"job.custom_config_module":                              gone,
	"job.use_for_integration_test":                          gone,
	"job.config_file":                                       "is called extends and belongs at the top of the file",
	"training.compile":                                      "every program is compiled; leave it out",
	"training.gc_freq":                                      gone,
	"training.batch_size":                                   "is called local_batch_size",
	"training.enable_cpu_offload":                           "is not supported yet; leave it out",
	"training.seed":                                         "belongs in [debug]",
	"training.deterministic":                                "belongs in [debug]",
	"training.data_parallel_shard_degree":                   "belongs in [parallelism]",
	"optimizer.implementation":                              gone,
	"optimizer.fused":                                       gone,
	"optimizer.foreach":                                     gone,
	"optimizer.early_step_in_backward":                      gone,
	"lr_scheduler.lr_min":                                   "is called min_lr_factor",
	"parallelism.enable_sequence_parallel":                  "is what tensor_parallel_degree does in any case: between blocks it shares out tokens; leave it out",
	"parallelism.disable_loss_parallel":                     "is not possible: with tensor_parallel_degree the loss is made of parts of the vocabulary, never of gathered logits; leave it out",
	"parallelism.enable_async_tensor_parallel":              gone,
	"parallelism.enable_compiled_autograd":                  gone,
	"parallelism.pipeline_parallel_schedule_csv":            gone,
	"parallelism.pipeline_parallel_microbatch_size":         "is not needed: what a stage works on at a time is training.local_batch_size; leave it out",
	"parallelism.pipeline_parallel_layers_per_stage":        stages,
	"parallelism.pipeline_parallel_split_points":            stages,
	"parallelism.pipeline_parallel_expert_parallel_overlap": gone,
	"parallelism.module_fqns_per_model_part":                stages,
	"parallelism.expert_tensor_parallel_degree":             "is not needed: experts' width is shared out with tensor_parallel_degree; leave it out",
	"parallelism.expert_parallel_comm_backend":              gone,
	"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns": gone,
	"activation_checkpoint.early_stop":                                   gone,
	"checkpoint.enable_checkpoint":                                       "is called enable",
	"checkpoint.model_weights_only":                                      "is called last_save_model_only",
	"checkpoint.create_seed_checkpoint":                                  "is not needed: initial values do not depend on the mesh; leave it out",
	"checkpoint.load_only":                                               "is not supported yet; leave it out",
	"checkpoint.initial_load_in_hf_quantized":                            "is not supported yet; leave it out",
	"checkpoint.interval_type":                                           gone,
	"metrics.enable_wandb":                                               "is not supported; enable_tensorboard and enable_json write files that it can take in",
	"metrics.save_for_all_ranks":                                         gone,
	"metrics.rank_0_only":                                                gone,
	"comm.trace_buf_size":                                                gone,
	"comm.save_traces_folder":                                            gone,
	"comm.save_traces_file_prefix":                                       gone,
	"profiling.enable_memory_snapshot":                                   "is not supported yet; leave it out",
	"profiling.save_memory_snapshot_folder":                              "is not supported yet; leave it out",
	"debug.deterministic_warn_only":                                      gone,
	"debug.print_config":                                                 "belongs in [job]",
	"debug.save_config_file":                                             "belongs in [job]",
}

const (
	gone       = "of TorchTitan has no counterpart in titan; leave it out"
	stages     = "is not needed: every stage has as many layers; leave it out"
	quantizing = "is not supported yet; leave the section out"
)
