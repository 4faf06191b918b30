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
const formatVersion = 1

// environment lists the variables that compilers take options from.
var environment = []string{"XLA_FLAGS", "LIBTPU_INIT_ARGS"}

// key names all that a compiled program depends on.
func (c *Cache) key(client *pjrt.Client, code []byte, o pjrt.CompileOptions) (string, error) {
	plugin, err := c.pluginSum(client.Plugin().Path())
	if err != nil {
		return "", err
	}
	k := keyWriter{sha256.New()}
	k.add("format", fmt.Sprint(formatVersion))
	k.add("program", string(code))
	k.options(o)
	k.add("plugin", plugin)
	major, minor := client.Plugin().APIVersion()
	k.add("api", fmt.Sprintf("%d.%d", major, minor))
	k.add("platform", client.Platform(), client.PlatformVersion())
	// XLA:CPU takes the number of threads into the program.
	k.add("host", runtime.GOOS, runtime.GOARCH, fmt.Sprint(runtime.NumCPU()), processor())
	for _, name := range environment {
		v, set := os.LookupEnv(name)
		k.add("environment", name, fmt.Sprint(set), v)
	}
	k.add("process", fmt.Sprint(client.ProcessIndex()))
	for _, d := range client.Devices() {
		attrs, err := d.Attributes()
		if err != nil && !pjrt.IsUnimplemented(err) {
			return "", err
		}
		k.add("device", fmt.Sprint(d.ID), fmt.Sprint(d.Process), d.Kind)
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
