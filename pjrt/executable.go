package pjrt

import (
	"errors"

	"github.com/ebitengine/purego"
)

// Executable is a compiled program that need not be loaded on devices.
type Executable struct {
	*ref
	name       string
	numOutputs int
	sig        signature
}

// newExecutable takes over r and closes it on failure.
func newExecutable(r *ref) (*Executable, error) {
	e := &Executable{ref: r}
	var e1, e2 error
	var n uintptr
	e.name, e1 = getString(r.p, sExecName, r.h)
	n, e2 = getWord(r.p, sExecNumOutputs, r.h)
	e.numOutputs = int(n)
	if err := errors.Join(e1, e2); err != nil {
		return nil, errors.Join(err, r.close())
	}
	closeIfLost(e, r)
	return e, nil
}

// Close frees the program.
func (e *Executable) Close() error { return e.close() }

// Name returns the module's name.
func (e *Executable) Name() string { return e.name }

// NumOutputs returns the number of results per device.
func (e *Executable) NumOutputs() int { return e.numOutputs }

// Replicas returns the number of replicas in the device assignment.
func (e *Executable) Replicas() (int, error) { return e.count(sExecReplicas) }

// Partitions returns the number of partitions; see [Executable.Replicas].
func (e *Executable) Partitions() (int, error) { return e.count(sExecPartitions) }

func (e *Executable) count(s slot[handleOutArgs]) (int, error) {
	if err := e.hold(); err != nil {
		return 0, err
	}
	defer e.drop()
	n, err := getWord(e.p, s, e.h)
	return int(n), err
}

// MemoryStats holds the compiler's memory accounting per device, in bytes.
// Fields a plugin does not know are zero.
type MemoryStats struct {
	Code, Args, Outputs, Alias, Temp                     int64
	HostCode, HostArgs, HostOutputs, HostAlias, HostTemp int64
	Peak                                                 int64
	Total, TotalAllocated, Indefinite, PeakUnpadded      int64
}

// InUse returns the bytes a run needs: arguments, outputs and temporaries,
// aliased outputs counted once. (Peak leaves out temporaries on some plugins.)
func (m MemoryStats) InUse() int64 { return m.Args + m.Outputs - m.Alias + m.Temp }

// Needed returns the bytes that a device must have for a run: InUse or, if that is
// more, Peak without what is in the host's memory. libtpu 0.0.52 counts that in Peak:
// of two steps that keep 47.0 and 94.5 GiB there it is, to 0.2 MB, the sum of
// arguments and of what is on the host.
func (m MemoryStats) Needed() int64 {
	host := m.HostArgs + m.HostOutputs - m.HostAlias + m.HostTemp
	return max(m.Peak-host, m.InUse())
}

// MemoryStats returns the compiler's memory accounting.
func (e *Executable) MemoryStats() (MemoryStats, error) {
	if err := e.hold(); err != nil {
		return MemoryStats{}, err
	}
	defer e.drop()
	a := &memoryArgs{obj: e.h}
	err := sExecMemory.call(e.p, a)
	return a.stats, err
}

// CostAnalysis returns properties such as "flops". Compilers count loop bodies
// once.
func (e *Executable) CostAnalysis() (map[string]any, error) {
	if err := e.hold(); err != nil {
		return nil, err
	}
	defer e.drop()
	a := &descAttrsArgs{obj: e.h}
	if err := sExecCost.call(e.p, a); err != nil {
		return nil, err
	}
	return decodeValues(a.list, a.n), nil
}

// OptimizedProgram returns the compiled module and its format: "hlo",
// "hlo_with_config" (serialized protos) or "mlir".
func (e *Executable) OptimizedProgram() (format string, code []byte, err error) {
	if err := e.hold(); err != nil {
		return "", nil, err
	}
	defer e.drop()
	var m arena
	defer m.free()
	p := pinned[program](&m)
	p.size = cProgram
	a := &optimizedArgs{obj: e.h, program: p}
	if err := sExecProgram.call(e.p, a); err != nil { // asks for the size
		return "", nil, err
	}
	code = make([]byte, p.codeLen)
	p.code = m.bytes(code)
	if err := sExecProgram.call(e.p, a); err != nil {
		return "", nil, err
	}
	return cString(p.format, p.formatLen), code, nil
}

// Serialize returns bytes for [Client.Load].
func (e *Executable) Serialize() ([]byte, error) {
	if err := e.hold(); err != nil {
		return nil, err
	}
	defer e.drop()
	a := &serializeArgs{obj: e.h}
	if err := sExecSerialize.call(e.p, a); err != nil {
		return nil, err
	}
	b := []byte(cString(a.bytes, a.n))
	purego.SyscallN(a.deleter, a.backing)
	return b, nil
}

// Fingerprint returns a string that tells compiled programs apart. The plugin
// decides what goes into it.
func (e *Executable) Fingerprint() (string, error) {
	if err := e.hold(); err != nil {
		return "", err
	}
	defer e.drop()
	return getString(e.p, sExecFingerprint, e.h)
}
