package pjrt

import (
	"errors"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// mapStore is a KeyValueStore for tests.
type mapStore struct{ sync.Map }

func (m *mapStore) Get(k string, d time.Duration) ([]byte, error) {
	if k == "panic" {
		panic("store")
	}
	if d != 10*time.Millisecond {
		return nil, errors.New("wrong timeout")
	}
	return m.TryGet(k)
}

func (m *mapStore) TryGet(k string) ([]byte, error) {
	if v, ok := m.Load(k); ok {
		return v.([]byte), nil
	}
	return nil, &Error{Code: NotFound, Message: "no " + k}
}

func (m *mapStore) Put(k string, v []byte) error {
	if k == "" {
		return errors.New("no key")
	}
	m.Store(k, v)
	return nil
}

var madeError struct {
	code int32
	msg  string
}

// makeError stands for the plugin's constructor of errors.
var makeError = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(code int32, msg *byte, n uintptr) uintptr {
		madeError.code, madeError.msg = code, cString(msg, n)
		return 99
	})
})

// TestKeyValueCallbacks calls the trampolines through C, as a plugin does.
func TestKeyValueCallbacks(t *testing.T) {
	id := newHandle(new(mapStore))
	defer handles.Delete(id)
	tr := kvTrampolines()
	var m arena
	defer m.free()
	mk := pinned[uintptr](&m)
	*mk = makeError()
	call := func(f uintptr, a unsafe.Pointer) uintptr {
		r, _, _ := purego.SyscallN(f, uintptr(a))
		return r
	}
	put := pinned[kvPutArgs](&m)
	*put = kvPutArgs{key: m.str("topo"), keyLen: 4, value: m.str("value"), valueLen: 5, makeError: mk, user: id}
	require.Zero(t, call(tr.put, unsafe.Pointer(put)))
	get := pinned[kvGetArgs](&m)
	*get = kvGetArgs{key: m.str("topo"), keyLen: 4, timeoutMS: 10, makeError: mk, user: id}
	require.Zero(t, call(tr.get, unsafe.Pointer(get)))
	require.Equal(t, "value", cString(get.value, get.valueLen))
	purego.SyscallN(get.deleter, uintptr(unsafe.Pointer(get.value)))
	try := pinned[kvTryArgs](&m)
	*try = kvTryArgs{key: m.str("topo"), keyLen: 4, makeError: mk, user: id}
	require.Zero(t, call(tr.try, unsafe.Pointer(try)))
	require.Equal(t, "value", cString(try.value, try.valueLen))
	purego.SyscallN(try.deleter, uintptr(unsafe.Pointer(try.value)))

	fails := func(r uintptr, code Code, msg string) {
		t.Helper()
		require.EqualValues(t, 99, r)
		require.Equal(t, code, Code(madeError.code))
		require.Contains(t, madeError.msg, msg)
	}
	try.key = m.str("none")
	fails(call(tr.try, unsafe.Pointer(try)), NotFound, "no none")
	get.key, get.keyLen = m.str("panic"), 5
	fails(call(tr.get, unsafe.Pointer(get)), Internal, "panic: store")
	get.key, get.timeoutMS = m.str("topo"), 11
	fails(call(tr.get, unsafe.Pointer(get)), DeadlineExceeded, "wrong timeout")
	put.key, put.keyLen = nil, 0
	fails(call(tr.put, unsafe.Pointer(put)), Internal, "no key")
	put.user = 1 << 40
	fails(call(tr.put, unsafe.Pointer(put)), FailedPrecondition, "client is closed")
}

// TestNamedValues passes every kind of option through the C form and back.
func TestNamedValues(t *testing.T) {
	var m arena
	defer m.free()
	in := map[string]any{"i": 1 << 40, "j": int64(-1), "s": "text", "e": "", "b": true, "f": float32(0.5), "d": 0.25, "l": []int64{1, -2}, "n": []int64{}}
	list, n, err := encodeValues(&m, in)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"i": int64(1 << 40), "j": int64(-1), "s": "text", "e": "", "b": true, "f": float32(0.5), "d": float32(0.25), "l": []int64{1, -2}, "n": []int64(nil)}, decodeValues(list, n))
	_, _, err = encodeValues(&m, map[string]any{"bad": []string{"x"}})
	require.ErrorContains(t, err, `option "bad": unsupported type []string`)
}

// TestRef destroys a handle once, after the last holder, however close and drop
// interleave.
func TestRef(t *testing.T) {
	fam := &family{owner: kindClient}
	for range 200 {
		require.NoError(t, fam.join(kindBuffer))
		destroyed := 0
		r := &ref{kind: kindBuffer, family: fam, p: &Plugin{}, destroy: &slot[handleArgs]{index: 0, name: "none"}}
		live[kindBuffer].Add(1)
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				for range 50 {
					if r.hold() == nil {
						r.drop()
					}
				}
				if k == 2 {
					_ = r.close()
				}
			})
		}
		wg.Wait()
		require.True(t, r.closed())
		require.ErrorIs(t, r.hold(), ErrClosed)
		require.NoError(t, r.close(), "closing again")
		fam.mu.Lock()
		destroyed = 1 - fam.n[kindBuffer]
		fam.mu.Unlock()
		require.Equal(t, 1, destroyed)
	}
	require.NotContains(t, LiveObjects(), "buffer")
	_, err := fam.dissolve()
	require.NoError(t, err)
	require.ErrorIs(t, fam.join(kindBuffer), ErrClosed)
}
