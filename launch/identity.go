// Package launch says where a process stands among those of a run, and lets them
// agree: who is there, what is trained, when all stop.
//
//	id, err := launch.FromEnv(os.Getenv)
//	group, err := launch.Join(ctx, id, launch.Options{})
//	defer group.Leave()
//	replies, err := group.Exchange(ctx, "program", fingerprint) // a barrier, by rank
//
// A process is that of one host. It knows nothing of what is trained; devices
// talk to each other by themselves. docs/multihost.md has the whole of it.
package launch

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Variables that say where a process stands. Those of TITAN are for any launcher
// and go before the others, which Cloud TPU and GKE set.
const (
	EnvProcesses   = "TITAN_NUM_PROCESSES"
	EnvProcess     = "TITAN_PROCESS_ID"
	EnvCoordinator = "TITAN_COORDINATOR" // host:port of process 0

	EnvWorker      = "TPU_WORKER_ID"
	EnvHostnames   = "TPU_WORKER_HOSTNAMES"
	EnvAddresses   = "TPU_PROCESS_ADDRESSES" // goes before EnvHostnames, and may have ports
	EnvAccelerator = "TPU_ACCELERATOR_TYPE"
	EnvTopology    = "TPU_TOPOLOGY"

	EnvSlices            = "MEGASCALE_NUM_SLICES"
	EnvSlice             = "MEGASCALE_SLICE_ID"
	EnvSlicesCoordinator = "MEGASCALE_COORDINATOR_ADDRESS"
	EnvSlicesPort        = "MEGASCALE_PORT"
)

// DefaultPort is the coordinator's where nothing says another: none of those that
// libtpu (8431, 8470 to 8479, and 8080 between slices) and JAX (8476, 8482) use.
const DefaultPort = 8491

// Identity is where a process stands. Process = Slice·Workers + Worker.
type Identity struct {
	Process, Processes int
	Slice, Slices      int
	Worker, Workers    int      // in the slice
	Hosts              []string // of the slice by worker; nil if nothing says
	Coordinator        string   // host:port of process 0; empty for one process
	Accelerator        string   // such as "v5litepod-32"; empty if nothing says
	Topology           string   // such as "4x8"; empty if nothing says
	Source             string   // what said so, for people
}

// Single is the identity of a run of one process.
func Single() Identity {
	return Identity{Processes: 1, Slices: 1, Workers: 1, Source: "nothing in the environment says otherwise"}
}

// FromEnv finds out where this process stands. Without any of the variables it
// is alone. Errors name the variable and its value.
func FromEnv(env func(string) string) (Identity, error) {
	e := reader{env: env}
	var id Identity
	switch {
	case e.get(EnvProcesses) != "":
		id = e.plain()
	case e.get(EnvProcess) != "":
		e.failf("%s is %q, but %s is not set; a process needs both", EnvProcess, e.get(EnvProcess), EnvProcesses)
	case e.get(EnvAddresses) != "" || e.get(EnvHostnames) != "":
		id = e.tpu()
	case e.get(EnvWorker) != "" && e.get(EnvWorker) != "0":
		e.failf("%s is %q, but neither %s nor %s is set: they list the hosts of the slice", EnvWorker, e.get(EnvWorker), EnvHostnames, EnvAddresses)
	case e.number(EnvSlices, 1, 1, maxProcesses) > 1:
		e.failf("%s is %q, but neither %s nor %s is set: they list the hosts of the slice", EnvSlices, e.get(EnvSlices), EnvHostnames, EnvAddresses)
	default:
		id = Single()
	}
	if len(e.faults) > 0 {
		return Identity{}, fmt.Errorf("launch: %w", errors.Join(e.faults...))
	}
	return id, nil
}

// maxProcesses is beyond any machine.
const maxProcesses = 1 << 20

// reader reads variables and collects what is wrong with them.
type reader struct {
	env    func(string) string
	faults []error
}

func (e *reader) get(name string) string { return strings.TrimSpace(e.env(name)) }

func (e *reader) failf(format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf(format, args...))
}

// number reads a whole number of least to most; unset it is fallback, which is
// an error if it is below least.
func (e *reader) number(name string, fallback, least, most int) int {
	s := e.get(name)
	if s == "" {
		if fallback < least {
			e.failf("%s is not set; it must be %d to %d", name, least, most)
		}
		return fallback
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		e.failf("%s is %q and must be a number from %d to %d", name, s, least, most)
		return max(least, fallback)
	}
	return n
}

const unset = -1

// plain reads the variables of any launcher.
func (e *reader) plain() Identity {
	n := e.number(EnvProcesses, unset, 1, maxProcesses)
	id := Identity{Processes: n, Slices: 1, Workers: n, Source: EnvProcesses}
	id.Process = e.number(EnvProcess, unset, 0, n-1)
	id.Worker = id.Process
	if n > 1 {
		id.Coordinator = e.coordinator()
		if id.Coordinator == "" {
			e.failf("%s is not set; with %s = %d it must be host:port of process 0", EnvCoordinator, EnvProcesses, n)
		}
	}
	return id
}

// coordinator reads EnvCoordinator.
func (e *reader) coordinator() string {
	s := e.get(EnvCoordinator)
	if s == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if n, bad := strconv.Atoi(port); err != nil || host == "" || bad != nil || n < 1 || n > 65535 {
		e.failf("%s is %q and must be host:port of process 0, such as \"10.0.0.2:%d\"", EnvCoordinator, s, DefaultPort)
	}
	return s
}

// tpu reads the variables that Cloud TPU and GKE set on every host of a slice,
// and those for several slices.
func (e *reader) tpu() Identity {
	source := EnvHostnames
	if e.get(EnvAddresses) != "" {
		source = EnvAddresses
	}
	list := e.get(source)
	var hosts []string
	for i, h := range strings.Split(list, ",") {
		host := hostOf(strings.TrimSpace(h))
		if host == "" {
			e.failf("%s is %q: entry %d names no host", source, list, i)
		}
		hosts = append(hosts, host)
	}
	w := len(hosts)
	id := Identity{Workers: w, Hosts: hosts, Source: source, Accelerator: e.get(EnvAccelerator), Topology: e.get(EnvTopology)}
	fallback := unset
	if w == 1 {
		fallback = 0
	}
	if s := e.get(EnvWorker); s != "" {
		if n, err := strconv.Atoi(s); err != nil || n < 0 || n >= w {
			e.failf("%s is %q and must be the number of one of the %d hosts in %s (%s)", EnvWorker, s, w, source, list)
		} else {
			id.Worker = n
		}
	} else if fallback == unset {
		e.failf("%s is not set, but %s lists %d hosts (%s): which is this one?", EnvWorker, source, w, list)
	}
	e.checkTopology(id)
	id.Slices = e.number(EnvSlices, 1, 1, maxProcesses/w)
	first := hosts[0]
	if id.Slices > 1 {
		id.Slice = e.number(EnvSlice, unset, 0, id.Slices-1)
		if first = hostOf(e.get(EnvSlicesCoordinator)); first == "" {
			e.failf("%s is not set; with %s = %d it must name the first host of slice 0", EnvSlicesCoordinator, EnvSlices, id.Slices)
		}
	} else if s := e.get(EnvSlice); s != "" && s != "0" {
		e.failf("%s is %q, but %s is %q: this is slice %s of how many?", EnvSlice, s, EnvSlices, e.get(EnvSlices), s)
	}
	id.Process, id.Processes = id.Slice*w+id.Worker, id.Slices*w
	if id.Processes > 1 {
		if id.Coordinator = e.coordinator(); id.Coordinator == "" {
			id.Coordinator = net.JoinHostPort(first, strconv.Itoa(DefaultPort))
		}
		_, port, _ := net.SplitHostPort(id.Coordinator)
		if p := e.get(EnvSlicesPort); id.Slices > 1 && p != "" && p == port {
			e.failf("%s is %q, and so is the port of titan's coordinator %s; set %s to another", EnvSlicesPort, p, id.Coordinator, EnvCoordinator)
		}
	}
	return id
}

// checkTopology refuses chips that cannot be spread evenly over the hosts.
func (e *reader) checkTopology(id Identity) {
	if id.Topology == "" {
		return
	}
	chips := 1
	for _, side := range strings.Split(strings.ToLower(id.Topology), "x") {
		n, err := strconv.Atoi(side)
		if err != nil || n < 1 || n > maxProcesses {
			e.failf("%s is %q and must be the sides of a slice in chips, such as \"4x8\" or \"4x4x4\"", EnvTopology, id.Topology)
			return
		}
		chips = min(chips*n, maxProcesses)
	}
	if chips%id.Workers != 0 {
		e.failf("%s is %q, %d chips, which do not divide over the %d hosts in %s", EnvTopology, id.Topology, chips, id.Workers, id.Source)
	}
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// Name says which host a process is on, as far as that is known beforehand.
func (id Identity) Name(process int) string {
	switch {
	case id.Slices > 1 && process/id.Workers != id.Slice:
		return fmt.Sprintf("worker %d of slice %d", process%id.Workers, process/id.Workers)
	case id.Hosts != nil:
		return id.Hosts[process%id.Workers]
	case process == 0 && id.Coordinator != "":
		return hostOf(id.Coordinator)
	}
	return ""
}

// String says it in a line: "process 5 of 8: worker 1 of slice 1 (v5litepod-16, 4x4), coordinator …".
func (id Identity) String() string {
	if id.Processes <= 1 {
		return "one process: " + id.Source
	}
	s := fmt.Sprintf("process %d of %d", id.Process, id.Processes)
	if id.Slices > 1 {
		s += fmt.Sprintf(", worker %d of slice %d", id.Worker, id.Slice)
	}
	var facts []string
	for _, f := range []string{id.Accelerator, id.Topology} {
		if f != "" {
			facts = append(facts, f)
		}
	}
	if len(facts) > 0 {
		s += " (" + strings.Join(facts, ", ") + ")"
	}
	return s + ", coordinator " + id.Coordinator + ", by " + id.Source
}
