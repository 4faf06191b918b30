package pjrt

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// KeyValueStore is the store through which the processes of a multi-process
// client find each other. Methods are called on the plugin's threads, also at
// the same time.
type KeyValueStore interface {
	// Get waits up to timeout for key.
	Get(key string, timeout time.Duration) ([]byte, error)
	// TryGet returns the value if present.
	TryGet(key string) ([]byte, error)
	// Put stores a value.
	Put(key string, value []byte) error
}

type kvTable struct{ get, try, put uintptr }

var kvTrampolines = sync.OnceValue(func() kvTable {
	return kvTable{
		get: purego.NewCallback(func(a *kvGetArgs) uintptr {
			v, err := guardKV(a.user, func(kv KeyValueStore) ([]byte, error) {
				return kv.Get(cString(a.key, a.keyLen), time.Duration(a.timeoutMS)*time.Millisecond)
			})
			if err != nil {
				return callbackError(*a.makeError, DeadlineExceeded, err)
			}
			a.value, a.valueLen, a.deleter = cBytes(v), uintptr(len(v)), freePointer()
			return 0
		}),
		try: purego.NewCallback(func(a *kvTryArgs) uintptr {
			v, err := guardKV(a.user, func(kv KeyValueStore) ([]byte, error) { return kv.TryGet(cString(a.key, a.keyLen)) })
			if err != nil {
				return callbackError(*a.makeError, NotFound, err)
			}
			a.value, a.valueLen, a.deleter = cBytes(v), uintptr(len(v)), freePointer()
			return 0
		}),
		put: purego.NewCallback(func(a *kvPutArgs) uintptr {
			_, err := guardKV(a.user, func(kv KeyValueStore) ([]byte, error) {
				return nil, kv.Put(cString(a.key, a.keyLen), []byte(cString(a.value, a.valueLen)))
			})
			if err != nil {
				return callbackError(*a.makeError, Internal, err)
			}
			return 0
		}),
	}
})

// guardKV runs f on the store registered as id, turning panics into errors.
func guardKV(id uintptr, f func(KeyValueStore) ([]byte, error)) (v []byte, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = &Error{Code: Internal, Op: "KV", Message: fmt.Sprint("panic: ", x)}
		}
	}()
	x, ok := handles.Load(id)
	if !ok {
		return nil, &Error{Code: FailedPrecondition, Op: "KV", Message: "client is closed"}
	}
	return f(x.(KeyValueStore))
}

// callbackError builds an error object with the plugin's constructor. If err is
// an *Error its code wins over def.
func callbackError(construct uintptr, def Code, err error) uintptr {
	var e *Error
	msg := err.Error()
	if errors.As(err, &e) {
		def, msg = e.Code, e.Message
	}
	var m arena
	defer m.free()
	r, _, _ := purego.SyscallN(construct, uintptr(def), uintptr(unsafe.Pointer(m.str(msg))), uintptr(len(msg)))
	return r
}

// cBytes copies b to memory from malloc.
func cBytes(b []byte) *byte {
	f, _ := libc() // succeeded in Open
	p := f.malloc(uintptr(len(b)) + 1)
	copy(unsafe.Slice(p, len(b)), b)
	return p
}

func freePointer() uintptr {
	f, _ := libc() // succeeded in Open
	return f.free
}
