package pjrt

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func (s slot[T]) info() (string, int, uintptr) { return s.name, s.index, s.size }

// TestLayout compares positions in the function table and struct layouts with
// those a C compiler printed from the public headers (testdata/layouts.txt).
func TestLayout(t *testing.T) {
	f, err := os.Open("testdata/layouts.txt")
	require.NoError(t, err)
	defer f.Close()
	want := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, v, _ := strings.Cut(s.Text(), " ")
		want[name] = v
	}
	check := func(name string, v ...any) {
		t.Helper()
		require.Equal(t, want[name], strings.TrimSuffix(fmt.Sprintln(v...), "\n"), name)
		delete(want, name)
	}
	for _, s := range []interface{ info() (string, int, uintptr) }{
		sErrorDestroy, sErrorMessage, sErrorCode, sPluginInit, sPluginAttrs, sEventDestroy, sEventIsReady, sEventAwait, sEventOnReady,
		sClientCreate, sClientDestroy, sClientPlatform, sClientVersion, sClientProcess, sClientDevices, sClientLocal, sClientCompile,
		sClientTopology, sFromHost, sDescID, sDescProcess, sDescAttrs, sDescKind, sDeviceDesc, sDeviceHardware, sDeviceMemories,
		sDeviceDefault, sDeviceStats, sMemoryID, sMemoryKind, sExecDestroy, sExecName, sExecReplicas, sExecPartitions,
		sExecNumOutputs, sExecCost, sExecProgram, sExecOutKinds, sExecOutTypes, sExecOutDims, sExecFingerprint, sExecSerialize,
		sLoadedDestroy, sLoadedExec, sLoadedDevices, sExecute, sDeserialize, sBufDestroy, sBufSize, sBufMemory, sBufDelete,
		sBufIsDeleted, sBufToDevice, sBufToMemory, sBufToHost, sBufReady, sBufPointer, sTopoCreate, sTopoDestroy, sTopoPlatform,
		sTopoVersion, sTopoDevices, sTopoAttrs, sCompile, sExecMemory,
	} {
		name, index, size := s.info()
		check(name, index, size)
	}
	check("NamedValue", cNamedValue, unsafe.Offsetof(namedValue{}.kind), unsafe.Offsetof(namedValue{}.value), unsafe.Offsetof(namedValue{}.n))
	check("Program", cProgram)
	check("ExecuteOptions", cExecuteOptions, unsafe.Offsetof(executeOptions{}.launchID), unsafe.Offsetof(executeOptions{}.nonDonatable), unsafe.Offsetof(executeOptions{}.multiSlice))
	check("BufferFromHost", unsafe.Offsetof(fromHostArgs{}.dtype), unsafe.Offsetof(fromHostArgs{}.semantics), unsafe.Offsetof(fromHostArgs{}.device), unsafe.Offsetof(fromHostArgs{}.done))
	check("kvGet", unsafe.Offsetof(kvGetArgs{}.makeError), unsafe.Offsetof(kvGetArgs{}.deleter))
	check("kvTry", unsafe.Offsetof(kvTryArgs{}.makeError), unsafe.Offsetof(kvTryArgs{}.deleter))
	check("kvPut", unsafe.Offsetof(kvPutArgs{}.makeError), unsafe.Offsetof(kvPutArgs{}.user))
	check("MemoryLayout", cMemoryLayout, unsafe.Offsetof(memoryLayout{}.tiled)+unsafe.Offsetof(tiledLayout{}.minorToMajor), unsafe.Offsetof(memoryLayout{}.kind))
	check("MemoryLayoutTiled", cTiledLayout)
	stats := deviceStatsArgs{}
	check("Device_MemoryStats_fields", unsafe.Offsetof(stats.limit), unsafe.Offsetof(stats.largestFree), unsafe.Offsetof(stats.peakPool)+unsafe.Offsetof(stats.peakPool.known))

	check("ffi_CallFrame_api", unsafe.Offsetof(ffiFrame{}.api))
	check("ffi_CallFrame_ctx", unsafe.Offsetof(ffiFrame{}.ctx))
	check("ffi_CallFrame_stage", unsafe.Offsetof(ffiFrame{}.stage))
	check("ffi_CallFrame_args", unsafe.Offsetof(ffiFrame{}.args))
	check("ffi_CallFrame_rets", unsafe.Offsetof(ffiFrame{}.rets))
	check("ffi_CallFrame_attrs", unsafe.Offsetof(ffiFrame{}.attrs))
	check("ffi_Buffer_dtype", unsafe.Offsetof(ffiBuffer{}.dtype))
	check("ffi_Buffer_data", unsafe.Offsetof(ffiBuffer{}.data))
	check("ffi_Buffer_rank", unsafe.Offsetof(ffiBuffer{}.rank))
	check("ffi_Buffer_dims", unsafe.Offsetof(ffiBuffer{}.dims))
	check("ffi_Api_XLA_FFI_Error_Create", unsafe.Offsetof(ffiAPI{}.errorCreate))
	check("ffi_Api_XLA_FFI_DeviceOrdinal_Get", unsafe.Offsetof(ffiAPI{}.deviceOrdinal))
	check("ffi_Attrs_names", unsafe.Offsetof(ffiAttrs{}.names))
	check("ffi_Attrs_attrs", unsafe.Offsetof(ffiAttrs{}.attrs))
	check("ffi_Args_args", unsafe.Offsetof(ffiList{}.bufs))
	check("ffi_Scalar_value", unsafe.Offsetof(ffiScalar{}.value))
	check("ffi_Array_size", unsafe.Offsetof(ffiArray{}.n))
	check("ffi_Array_data", unsafe.Offsetof(ffiArray{}.data))
	check("ffi_Metadata_traits", unsafe.Offsetof(ffiMetadataOut{}.traits))
	check("ffi_Metadata_state_type_id", unsafe.Offsetof(ffiMetadataOut{}.stateType))
	check("ffi_Metadata_Extension_metadata", unsafe.Offsetof(ffiMetadataExt{}.metadata))
	check("ffi_Error_Create_Args", cSize(reflect.TypeFor[ffiErrorArgs]()))
	check("ffi_DeviceOrdinal_Get_Args", cSize(reflect.TypeFor[ffiOrdinalArgs]()))
	require.Empty(t, want, "layouts that nothing is compared with")
}
