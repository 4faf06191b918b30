package compilecache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"

	"titan/pjrt"
)

// formatVersion goes up when the layout of entries or the meaning of keys
// changes.
const formatVersion = 2

// environment lists the variables that compilers take options from.
var environment = []string{"XLA_FLAGS", "LIBTPU_INIT_ARGS"}

// target is what a program is compiled for.
type target struct {
	plugin            *pjrt.Plugin
	platform, version string
	process           int
	devices           []*pjrt.Device
}

// key names all that a compiled program depends on.
func (c *Cache) key(client *pjrt.Client, code []byte, o pjrt.CompileOptions) (string, error) {
	return c.keyFor(targetOf(client), code, o)
}

func targetOf(c *pjrt.Client) target {
	return target{c.Plugin(), c.Platform(), c.PlatformVersion(), c.ProcessIndex(), c.Devices()}
}

// placeOnTPU are the attributes of a TPU that code is made for. They are the same in
// a topology and on the pod.
var placeOnTPU = []string{"coords", "core_on_chip", "slice_index"}

// keyFor is key for a machine that need not be here. Code for TPU depends on
// nothing but the plugin, the program and the devices: not on the host that
// compiles it, nor on the process that loads it. So what is compiled for a topology
// is found on the pod.
func (c *Cache) keyFor(t target, code []byte, o pjrt.CompileOptions) (string, error) {
	plugin, err := c.pluginSum(t.plugin.Path())
	if err != nil {
		return "", err
	}
	k := keyWriter{sha256.New()}
	k.add("format", fmt.Sprint(formatVersion))
	k.add("program", string(code))
	k.options(o)
	k.add("plugin", plugin)
	major, minor := t.plugin.APIVersion()
	k.add("api", fmt.Sprintf("%d.%d", major, minor))
	tpu := t.platform == "tpu"
	if k.add("platform", t.platform); !tpu {
		k.add("version", t.version)
		// XLA:CPU takes the number of threads into the program.
		k.add("host", runtime.GOOS, runtime.GOARCH, fmt.Sprint(runtime.NumCPU()), processor())
		k.add("process", fmt.Sprint(t.process))
	}
	for _, name := range environment {
		v, set := os.LookupEnv(name)
		k.add("environment", name, fmt.Sprint(set), v)
	}
	for _, d := range t.devices {
		attrs, err := d.Attributes()
		if err != nil && !pjrt.IsUnimplemented(err) {
			return "", err
		}
		k.add("device", fmt.Sprint(d.ID), fmt.Sprint(d.Process), d.Kind)
		if tpu {
			maps.DeleteFunc(attrs, func(name string, _ any) bool { return !slices.Contains(placeOnTPU, name) })
		}
		k.values(attrs)
	}
	return hex.EncodeToString(k.h.Sum(nil)), nil
}

// keyWriter hashes fields so that no two different lists of fields are the same
// bytes.
type keyWriter struct{ h hash.Hash }

func (k keyWriter) add(name string, values ...string) {
	var buf []byte
	for _, s := range append([]string{name}, values...) {
		buf = binary.AppendUvarint(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	k.h.Write(binary.AppendUvarint(nil, uint64(len(values))))
	k.h.Write(buf)
}

// options adds every field, of today and of tomorrow.
func (k keyWriter) options(o pjrt.CompileOptions) {
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		f := v.Field(i)
		k.add("option", v.Type().Field(i).Name)
		if m, ok := f.Interface().(map[string]any); ok {
			k.values(m)
			continue
		}
		k.add("value", fmt.Sprintf("%#v", f.Interface()))
	}
}

func (k keyWriter) values(m map[string]any) {
	k.add("values", fmt.Sprint(len(m)))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		k.add(name, fmt.Sprintf("%T", m[name]), fmt.Sprintf("%#v", m[name]))
	}
}
