package runs

import (
	"slices"
	"time"

	"titan/metrics"
)

// Schema is the version of the record. Later ones only add to it, or have another
// number.
const Schema = 1

// Record is run.json.
type Record struct {
	Schema   int        `json:"schema"`
	ID       string     `json:"run_id"` // 16 hexadecimal digits, drawn when the run began
	Created  time.Time  `json:"created"`
	Files    Files      `json:"files"`
	Attempts []*Attempt `json:"attempts"` // by time; none is nil
}

// Files are the names of the run's files, in its folder, with slashes. What is not
// written has no name.
type Files struct {
	Recipe      string `json:"recipe,omitempty"`
	Metrics     string `json:"metrics,omitempty"`
	Log         string `json:"log,omitempty"`
	TensorBoard string `json:"tensorboard,omitempty"` // a folder
	Checkpoints string `json:"checkpoints,omitempty"` // a folder; absolute if it is elsewhere
	Traces      string `json:"traces,omitempty"`      // a folder
}

// Attempt is what one process did.
type Attempt struct {
	Number   int       `json:"number"` // from 1
	Start    time.Time `json:"start"`
	LastSeen time.Time `json:"last_seen"` // when the process wrote this last; with an end, that
	Exit     *Exit     `json:"exit"`      // nil: the process runs, or was killed

	Titan        string  `json:"titan"` // version or commit
	Go           string  `json:"go"`
	RecipeSHA256 string  `json:"recipe_sha256"` // of the resolved recipe
	Plugin       Plugin  `json:"plugin"`
	Machine      Machine `json:"machine"`
	Model        Model   `json:"model"`
	Batch        Batch   `json:"batch"`

	Programs []Program `json:"programs"`
	// Began says that the process came to train: its state was there, from step
	// ResumedFrom (0: from new parameters) of Source.
	Began       bool         `json:"began"`
	ResumedFrom int64        `json:"resumed_from"`
	Source      string       `json:"source"` // of the parameters, for people
	Checkpoints []Checkpoint `json:"checkpoints"`

	Figures metrics.Figures `json:"figures"`
}

// Reason is why an attempt ended.
type Reason string

const (
	Finished  Reason = "finished"  // all steps are done
	Stopped   Reason = "stopped"   // by SIGINT or SIGHUP, after a save
	Preempted Reason = "preempted" // by SIGTERM, after a save
	Failed    Reason = "failed"    // see the message
	Killed    Reason = "killed"    // no end was recorded: the process or its machine is gone
	Running   Reason = "running"   // there is no end yet, and the record is fresh
)

// Exit is how an attempt ended, recorded by itself: finished, stopped, preempted or
// failed.
type Exit struct {
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"` // of a failure
	Signal  string    `json:"signal,omitempty"`
	Time    time.Time `json:"time"`
}

// Stale is after how long without news a process without an end counts as killed.
// Live ones write every few seconds.
const Stale = time.Minute

// Reason is why the attempt ended, as far as can be said at a time: a process that
// wrote nothing for longer than [Stale] was killed.
func (a *Attempt) Reason(now time.Time) Reason {
	switch {
	case a.Exit != nil:
		return a.Exit.Reason
	case now.Sub(a.LastSeen) > Stale:
		return Killed
	}
	return Running
}

// Plugin is the PJRT plugin that ran the programs.
type Plugin struct {
	Name    string `json:"name"`    // mesh.platform
	File    string `json:"file"`    // without its folder
	Version string `json:"version"` // what the plugin says of its platform
	API     string `json:"api"`     // version of the PJRT C API
	SHA256  string `json:"sha256"`
}

// Machine is what the run was spread over.
type Machine struct {
	Platform   string `json:"platform"` // cpu, tpu, …
	DeviceKind string `json:"device_kind"`
	Devices    int    `json:"devices"`
	Hosts      int    `json:"hosts"`
	Host       string `json:"host"` // the name of the first
	OS         string `json:"os"`   // linux/amd64
	CPUs       int    `json:"cpus"` // of this host, as the process may use them
	Mesh       []Axis `json:"mesh"` // outermost first
}

// Axis is one of the mesh.
type Axis struct {
	Name string `json:"name"`
	Size int    `json:"size"`
}

// Model is what was trained, as far as figures depend on it.
type Model struct {
	Family        string  `json:"family"`
	Flavor        string  `json:"flavor"`
	Params        int64   `json:"params"`
	ActiveParams  int64   `json:"active_params"` // that multiply a token
	Layers        int     `json:"layers"`
	Vocab         int     `json:"vocab"`
	ParamDType    string  `json:"param_dtype"` // that parameters are multiplied in
	Float8        bool    `json:"float8"`      // some products are in 8-bit floats
	PeakFLOPs     float64 `json:"peak_flops"`  // FLOP/s of a device in bf16; 0: unknown
	FlopsPerToken Cost    `json:"flops_per_token"`
}

// Cost is the training cost of a token by convention, see [metrics.Convention].
type Cost struct {
	TorchTitan float64 `json:"torchtitan"`
	Causal     float64 `json:"causal"`
}

// Batch is what a step works on.
type Batch struct {
	SeqLen           int    `json:"seq_len"`
	GlobalBatch      int    `json:"global_batch"` // sequences of a step
	Passes           int    `json:"passes"`
	Tokens           int64  `json:"tokens"` // positions of a step, padding included
	IsolateDocuments bool   `json:"isolate_documents"`
	Data             string `json:"data"`  // fingerprint of the data and its order
	Steps            int64  `json:"steps"` // of the whole run, by the recipe
}

// Program is one that was compiled.
type Program struct {
	Name    string  `json:"name"`
	SHA256  string  `json:"sha256"`  // of its StableHLO
	Seconds float64 `json:"seconds"` // traced, and compiled or loaded
	// Compile, Load and Store are the parts of it that the compile cache tells.
	Compile  float64 `json:"compile_s"`
	Load     float64 `json:"load_s"`
	Store    float64 `json:"store_s"`
	CacheHit bool    `json:"cache_hit"`
	Note     string  `json:"note,omitempty"` // why it was not in the cache
	// Bytes of a device, as the compiler counts them; 0: it does not say.
	Arguments   int64 `json:"arguments_bytes"`
	InPlace     int64 `json:"in_place_bytes"` // of the arguments
	Temporaries int64 `json:"temporaries_bytes"`
}

// Checkpoint is one that the attempt wrote.
type Checkpoint struct {
	Step  int64     `json:"step"`
	Path  string    `json:"path"` // in the run's folder if it is below it
	Bytes int64     `json:"bytes"`
	Time  time.Time `json:"time"`
	Kept  bool      `json:"kept"` // not retired by checkpoint.keep_latest_k
}

// Retire marks the checkpoints of steps as no longer kept.
func (r *Record) Retire(steps ...int) {
	for _, a := range r.Attempts {
		for i := range a.Checkpoints {
			if slices.Contains(steps, int(a.Checkpoints[i].Step)) {
				a.Checkpoints[i].Kept = false
			}
		}
	}
}
