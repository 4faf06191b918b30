package pjrt

import "reflect"

// Shapes shared by many entry points. obj is the receiver handle.
type (
	handleArgs struct {
		header
		obj uintptr
	}
	handleOutArgs struct {
		header
		obj, out uintptr
	}
	intArgs struct {
		header
		obj uintptr
		out int32
	}
	flagArgs struct {
		header
		obj uintptr
		out bool
	}
	stringArgs struct {
		header
		obj uintptr
		str *byte
		len uintptr
	}
	handleListArgs struct {
		header
		obj  uintptr
		list *uintptr
		n    uintptr
	}
)

type errorArgs = handleArgs

type errorMessageArgs = stringArgs

type errorCodeArgs = intArgs

// namedValue is a tagged (name, value) pair. value holds the union's 8 bytes; it
// is no Go pointer, because it may hold an arbitrary integer.
type namedValue struct {
	header
	name    *byte
	nameLen uintptr
	kind    int32
	value   uint64
	n       uintptr
}

var (
	cNamedValue     = cSize(reflect.TypeFor[namedValue]())
	cProgram        = cSize(reflect.TypeFor[program]())
	cExecuteOptions = cSize(reflect.TypeFor[executeOptions]())
)

type pluginAttrsArgs struct {
	header
	list *namedValue
	n    uintptr
}

type descAttrsArgs struct {
	header
	obj  uintptr
	n    uintptr
	list *namedValue
}

// topoAttrsArgs has the last two fields of descAttrsArgs the other way round.
type topoAttrsArgs struct {
	header
	obj  uintptr
	list *namedValue
	n    uintptr
}

type onReadyArgs struct {
	header
	event    uintptr
	callback uintptr
	user     uintptr
}

type clientCreateArgs struct {
	header
	options    *namedValue
	numOptions uintptr
	kvGet      uintptr
	kvGetUser  uintptr
	kvPut      uintptr
	kvPutUser  uintptr
	client     uintptr
	kvTry      uintptr
	kvTryUser  uintptr
}

// kvGetArgs, kvTryArgs and kvPutArgs are built by the plugin and handed to our
// key-value callbacks. makeError points at a C function pointer.
type kvGetArgs struct {
	header
	key       *byte
	keyLen    uintptr
	timeoutMS int32
	makeError *uintptr
	user      uintptr
	value     *byte
	valueLen  uintptr
	deleter   uintptr
}

type kvTryArgs struct {
	header
	key       *byte
	keyLen    uintptr
	makeError *uintptr
	user      uintptr
	value     *byte
	valueLen  uintptr
	deleter   uintptr
}

type kvPutArgs struct {
	header
	key       *byte
	keyLen    uintptr
	value     *byte
	valueLen  uintptr
	makeError *uintptr
	user      uintptr
}

type program struct {
	header
	code      *byte
	codeLen   uintptr
	format    *byte
	formatLen uintptr
}

type clientCompileArgs struct {
	header
	client     uintptr
	program    *program
	options    *byte
	optionsLen uintptr
	loaded     uintptr
}

type compileArgs struct {
	header
	topology   uintptr
	program    *program
	options    *byte
	optionsLen uintptr
	client     uintptr
	executable uintptr
}

type topoCreateArgs struct {
	header
	name       *byte
	nameLen    uintptr
	options    *namedValue
	numOptions uintptr
	topology   uintptr
}

type fromHostArgs struct {
	header
	client    uintptr
	data      *byte
	dtype     int32
	dims      *int64
	numDims   uintptr
	strides   *int64
	numStride uintptr
	semantics int32
	device    uintptr
	memory    uintptr
	layout    uintptr
	done      uintptr
	buffer    uintptr
}

type toHostArgs struct {
	header
	src    uintptr
	layout *memoryLayout
	dst    *byte
	size   uintptr
	event  uintptr
}

type executeOptions struct {
	header
	sendCallbacks   uintptr
	recvCallbacks   uintptr
	numSend         uintptr
	numRecv         uintptr
	launchID        int32
	nonDonatable    uintptr
	numNonDonatable uintptr
	context         uintptr
	callLocation    uintptr
	numTasks        uintptr
	taskIDs         uintptr
	incarnations    uintptr
	multiSlice      uintptr
	majorToMinor    bool
	hloCallbacks    uintptr
	numHLOCallbacks uintptr
}

type executeArgs struct {
	header
	loaded     uintptr
	options    uintptr
	arguments  uintptr
	numDevices uintptr
	numArgs    uintptr
	outputs    uintptr
	events     uintptr
	device     uintptr
}

type optimizedArgs struct {
	header
	obj     uintptr
	program *program
}

type serializeArgs struct {
	header
	obj     uintptr
	bytes   *byte
	n       uintptr
	backing uintptr
	deleter uintptr
}

type deserializeArgs struct {
	header
	client     uintptr
	bytes      *byte
	n          uintptr
	loaded     uintptr
	options    *byte
	optionsLen uintptr
	loadOpts   uintptr
}

type memoryArgs struct {
	header
	obj   uintptr
	stats MemoryStats
}

type typesArgs struct {
	header
	obj   uintptr
	types *int32
	n     uintptr
}

type outDimsArgs struct {
	header
	obj   uintptr
	n     uintptr
	dims  *int64
	ranks *uintptr
}

type memoryKindsArgs struct {
	header
	obj   uintptr
	n     uintptr
	kinds **byte
	sizes *uintptr
}

type copyArgs struct {
	header
	obj, dst, out uintptr
}

// memoryLayout is the tiled member of a union with strides, which are smaller.
type memoryLayout struct {
	header
	tiled tiledLayout
	kind  int32
}

type tiledLayout struct {
	header
	minorToMajor *int64
	rank         uintptr
	tileDims     uintptr
	tileSizes    uintptr
	numTiles     uintptr
}

var (
	cMemoryLayout = cSize(reflect.TypeFor[memoryLayout]())
	cTiledLayout  = cSize(reflect.TypeFor[tiledLayout]())
)

// optionalInt is a value with a flag that says whether the plugin knows it.
type optionalInt struct {
	value int64
	known bool
}

type deviceStatsArgs struct {
	header
	device            uintptr
	inUse             int64
	peak              optionalInt
	allocations       optionalInt
	largestAllocation optionalInt
	limit             optionalInt
	reserved          optionalInt
	peakReserved      optionalInt
	reservableLimit   optionalInt
	largestFree       optionalInt
	pool              optionalInt
	peakPool          optionalInt
}
