package pjrt

import (
	"unsafe"
)

// Numbers and structs of the XLA FFI ABI, version 0.x, through which custom
// calls reach their handlers.
const (
	ffiMetadata     = 1 // kind of the extension that asks for metadata
	ffiStageExecute = 3

	ffiAttrArray  = 1
	ffiAttrDict   = 2
	ffiAttrScalar = 3
	ffiAttrString = 4
)

// ffiExtension is the plugin's extension that registers handlers.
type ffiExtension struct {
	extension
	typeRegister, userDataAdd, register uintptr
}

// ffiRegisterArgs has no extension word, unlike other structs.
type ffiRegisterArgs struct {
	size        uintptr
	name        *byte
	nameLen     uintptr
	handler     uintptr
	platform    *byte
	platformLen uintptr
	traits      int32
}

const cFFIRegister = unsafe.Offsetof(ffiRegisterArgs{}.traits) + 4

type ffiAPI struct {
	header
	versionHeader header
	major, minor  int32
	internal      uintptr
	errorCreate   uintptr
	_             [16]uintptr
	deviceOrdinal uintptr
}

// ffiFrame is what a handler is called with.
type ffiFrame struct {
	header
	api   *ffiAPI
	ctx   uintptr
	stage int32
	args  ffiList
	rets  ffiList
	attrs ffiAttrs
}

type ffiList struct {
	header
	n     int64
	kinds *int32
	bufs  **ffiBuffer
}

type ffiAttrs struct {
	header
	n     int64
	kinds *int32
	names **ffiSpan
	attrs *unsafe.Pointer
}

type ffiSpan struct {
	ptr *byte
	len uintptr
}

type ffiScalar struct {
	dtype int32
	value unsafe.Pointer
}

type ffiArray struct {
	dtype int32
	n     uintptr
	data  unsafe.Pointer
}

type ffiBuffer struct {
	header
	dtype int32
	data  unsafe.Pointer
	rank  int64
	dims  *int64
}

type ffiMetadataExt struct {
	extension
	metadata *ffiMetadataOut
}

type ffiMetadataOut struct {
	size         uintptr
	version      header
	major, minor int32
	traits       uint32
	stateType    int64
}

type ffiErrorArgs struct {
	header
	msg  *byte
	code int32
}

type ffiOrdinalArgs struct {
	header
	ctx uintptr
	out int32
}
