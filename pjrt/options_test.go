package pjrt

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

func fakeDevices(ids ...int) []*Device {
	var ds []*Device
	for _, id := range ids {
		ds = append(ds, &Device{ID: id})
	}
	return ds
}

func TestAssignmentChecks(t *testing.T) {
	eight := fakeDevices(0, 1, 2, 3, 4, 5, 6, 7)
	for _, c := range []struct {
		o    CompileOptions
		want string
	}{
		{CompileOptions{Partitions: 16}, "1 replicas × 16 partitions need 16 devices, the client has 8"},
		{CompileOptions{Partitions: 3, Replicas: 3}, "3 replicas × 3 partitions need 9 devices"},
		{CompileOptions{Partitions: 1 << 40, Replicas: 1 << 40}, "need"},
		{CompileOptions{Partitions: -1}, "0 replicas × -1 partitions"},
		{CompileOptions{Partitions: 8, DeviceIDs: []int{0, 1, 2}}, "3 device ids for 1 replicas × 8 partitions"},
		{CompileOptions{Partitions: 2, DeviceIDs: []int{3, 3}}, "device id 3 stands at positions 0 and 1"},
		{CompileOptions{Partitions: 2, DeviceIDs: []int{0, 8}}, "device id 8 at position 1 is not one of the 8 devices of the client"},
		{CompileOptions{Partitions: 2, DeviceIDs: []int{0, -1}}, "device id -1"},
	} {
		_, err := c.o.check(eight, "the client")
		require.ErrorContains(t, err, c.want)
	}
	ids, err := CompileOptions{Partitions: 2, Replicas: 2}.check(fakeDevices(100000, 100001, 200000, 200001), "x")
	require.NoError(t, err)
	require.Equal(t, []int{100000, 100001, 200000, 200001}, ids, "the default takes the ids there are")
	ids, err = CompileOptions{Partitions: 2, DeviceIDs: []int{7, 0}}.check(eight, "x")
	require.NoError(t, err)
	require.Equal(t, []int{7, 0}, ids)
}

func TestProgramChecks(t *testing.T) {
	const mesh8 = `module @m { sdy.mesh @mesh = <["a"=2, "b"=4]> func.func public @main() {} }`
	for _, c := range []struct {
		program, want string
		o             CompileOptions
	}{
		{"", "empty", CompileOptions{}},
		{" \n", "empty", CompileOptions{}},
		{"module @m attributes {mhlo.num_partitions = 8 : i32} { func.func", "mhlo.num_partitions = 8, the options say 1", CompileOptions{}},
		{"module @m attributes {mhlo.num_replicas = 2 : i32} { func.func", "mhlo.num_replicas = 2, the options say 1", CompileOptions{}},
		{mesh8, "Shardy is not set", CompileOptions{Partitions: 8}},
		{mesh8, `mesh @mesh = <["a"=2, "b"=4]> has 8 devices, the options say 4 partitions`, CompileOptions{Partitions: 4, Shardy: true}},
		{`sdy.mesh @mesh = <["a"=9223372036854775807, "b"=4]>`, `axis of size`, CompileOptions{Partitions: 4, Shardy: true}},
		{`sdy.mesh @one = <["a"=8]> sdy.mesh @two = <["a"=4]>`, "mesh @two", CompileOptions{Partitions: 8, Shardy: true}},
	} {
		require.ErrorContains(t, c.o.checkProgram([]byte(c.program)), c.want)
	}
	for _, ok := range []string{mesh8, `module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {`, `sdy.mesh @max = <[], device_ids=[3]>`, "ML\xefRsdy.mesh @x = <[\"a\"=3]>"} {
		require.NoError(t, CompileOptions{Partitions: 8, Shardy: true}.checkProgram([]byte(ok)))
	}
}

// TestMarshal checks the wire form field by field.
func TestMarshal(t *testing.T) {
	o := CompileOptions{Replicas: 2, Partitions: 2, Shardy: true, OptLevel: LevelO0, MemoryFittingLevel: LevelO2, Flags: map[string]any{"b": true, "a": 7, "s": "x", "f": 0.5}}
	b, err := o.marshal([]int{4, 5, 6, 7})
	require.NoError(t, err)
	top := fields(t, b)
	require.Len(t, top[7], 4)
	build := fields(t, top[3][0].([]byte))
	require.Equal(t, map[protowire.Number][]any{
		1: {uint64(1<<64 - 1)}, 4: {uint64(2)}, 5: {uint64(2)}, 6: {uint64(1)}, 9: build[9], 19: {uint64(1)}, 24: {uint64(9)}, 25: {uint64(29)},
	}, build)
	assign := fields(t, build[9][0].([]byte))
	require.Equal(t, []any{uint64(2)}, assign[1])
	require.Equal(t, []any{uint64(2)}, assign[2])
	// One list of replicas for each partition.
	require.Equal(t, []any{[]byte{4, 6}}, fields(t, assign[3][0].([]byte))[1])
	require.Equal(t, []any{[]byte{5, 7}}, fields(t, assign[3][1].([]byte))[1])
	flag := fields(t, top[7][0].([]byte)) // in alphabetical order
	require.Equal(t, "a", string(flag[1][0].([]byte)))
	require.Equal(t, []any{uint64(7)}, fields(t, flag[2][0].([]byte))[3])

	_, err = CompileOptions{Flags: map[string]any{"x": []int{1}}}.marshal([]int{0})
	require.ErrorContains(t, err, `flag "x": value of type []int`)
}

func fields(t *testing.T, b []byte) map[protowire.Number][]any {
	t.Helper()
	m := map[protowire.Number][]any{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		require.Positive(t, n)
		b = b[n:]
		var x any
		switch typ {
		case protowire.VarintType:
			x, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			x, n = protowire.ConsumeBytes(b)
		case protowire.Fixed64Type:
			x, n = protowire.ConsumeFixed64(b)
		}
		require.Positive(t, n)
		m[num], b = append(m[num], x), b[n:]
	}
	return m
}

func TestVersion(t *testing.T) {
	require.NoError(t, checkVersion("p.so", 0, minMinor))
	require.NoError(t, checkVersion("p.so", 0, minMinor+1000))
	require.ErrorContains(t, checkVersion("p.so", 0, minMinor-1), "install a newer plugin")
	require.ErrorContains(t, checkVersion("p.so", 1, 0), "p.so speaks version 1.0 of the PJRT C API; this program needs 0.")
	require.ErrorContains(t, checkVersion("p.so", 1, 0), "update this program")
}
