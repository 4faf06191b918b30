package pjrt

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutOfMemoryMessages(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		message           string
		needed, available int64
		memory            string
	}{
		{"E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries (32.00G) exceeds available HBM (15.75G). HLO module: args.", 32 * gib, 15*gib + gib/4*3, "hbm"},
		{"XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded hbm capacity by 4.75G.", 20*gib + gib/2, 15*gib + gib/4*3, "hbm"},
		{"Ran out of memory in memory space vmem while allocating on stack: scoped allocation with size 19.00M and limit 16.00M exceeded scoped vmem limit by 3.00M.", 19 << 20, 16 << 20, "vmem"},
		{"Error allocating device buffer: Attempting to allocate 8.00G. That was not possible. There are 7.50G free.; (0x0x0_HBM0)", 8 * gib, 7*gib + gib/2, ""},
		{"Attempting to reserve 12.50G at the bottom of memory. That was not possible. There are 9.50G free, 0B reserved, and 9.50G reservable.", 12*gib + gib/2, 9*gib + gib/2, ""},
		{"Out of memory allocating 4398046511104 bytes.", 4398046511104, 0, ""},
		{"Out of memory while trying to allocate 1234 bytes.", 1234, 0, ""},
		{"No memory left, for a reason nobody has seen yet", 0, 0, ""},
	} {
		err := (&Error{Code: ResourceExhausted, Message: c.message, Op: "Compile"}).refine()
		var oom *OutOfMemory
		require.True(t, errors.As(err, &oom), c.message)
		require.Equal(t, []int64{c.needed, c.available}, []int64{oom.Needed, oom.Available}, c.message)
		require.Equal(t, c.memory, oom.Memory, c.message)
		require.Contains(t, err.Error(), c.message)
		var plain *Error
		require.True(t, errors.As(err, &plain))
		require.Equal(t, ResourceExhausted, plain.Code)
	}
	for _, e := range []*Error{{Code: ResourceExhausted, Message: "too many callbacks"}, {Code: Internal, Message: "Out of memory allocating 5 bytes"}} {
		var oom *OutOfMemory
		require.False(t, errors.As(e.refine(), &oom), e.Message)
	}
}
