package pjrt

import (
	"fmt"
	"unsafe"
)

// Kinds of namedValue.
const (
	valString int32 = iota
	valInt
	valInts
	valFloat
	valBool
)

func decodeValues(list *namedValue, n uintptr) map[string]any {
	m := make(map[string]any, n)
	for _, v := range unsafe.Slice(list, n) {
		p := unsafe.Pointer(&v.value)
		var x any
		switch v.kind {
		case valString:
			x = cString(*(**byte)(p), v.n)
		case valInt:
			x = *(*int64)(p)
		case valInts:
			x = append([]int64(nil), unsafe.Slice(*(**int64)(p), v.n)...)
		case valFloat:
			x = *(*float32)(p)
		case valBool:
			x = *(*bool)(p)
		}
		m[cString(v.name, v.nameLen)] = x
	}
	return m
}

// encodeValues converts options for the plugin. Values may be int, int64,
// string, bool, float32, float64 or []int64.
func encodeValues(m *arena, opts map[string]any) (*namedValue, uintptr, error) {
	if len(opts) == 0 {
		return nil, 0, nil
	}
	vs := make([]namedValue, 0, len(opts))
	for k, x := range opts {
		v := namedValue{header: header{size: cNamedValue}, name: m.str(k), nameLen: uintptr(len(k)), n: 1}
		p := unsafe.Pointer(&v.value)
		switch x := x.(type) {
		case string:
			v.kind, v.n = valString, uintptr(len(x))
			v.value = uint64(uintptr(unsafe.Pointer(m.str(x))))
		case int:
			v.kind, *(*int64)(p) = valInt, int64(x)
		case int64:
			v.kind, *(*int64)(p) = valInt, x
		case []int64:
			v.kind, v.n = valInts, uintptr(len(x))
			if len(x) > 0 {
				m.pin.Pin(&x[0])
				v.value = uint64(uintptr(unsafe.Pointer(&x[0])))
			}
		case float32:
			v.kind, *(*float32)(p) = valFloat, x
		case float64:
			v.kind, *(*float32)(p) = valFloat, float32(x)
		case bool:
			v.kind, *(*bool)(p) = valBool, x
		default:
			return nil, 0, fmt.Errorf("pjrt: option %q: unsupported type %T", k, x)
		}
		vs = append(vs, v)
	}
	m.pin.Pin(&vs[0])
	return &vs[0], uintptr(len(vs)), nil
}
