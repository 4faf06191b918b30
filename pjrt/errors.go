package pjrt

import (
	"errors"
	"fmt"
)

// ErrClosed is wrapped by the error of any use of an object after its Close.
var ErrClosed = errors.New("used after Close")

// Code is a canonical status code.
type Code int32

// Status codes used by the plugins.
const (
	OK Code = iota
	Cancelled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

var codeNames = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
	"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// String returns the canonical name, such as "RESOURCE_EXHAUSTED".
func (c Code) String() string {
	if c >= 0 && int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", int32(c))
}

// Error is a failure reported by the plugin. Op is the entry point of the C
// API, without its PJRT_ prefix.
type Error struct {
	Code    Code
	Message string
	Op      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("pjrt: %s: %s: %s", e.Op, e.Code, e.Message)
}

// IsUnimplemented reports whether err says that the plugin lacks the operation.
func IsUnimplemented(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == Unimplemented
}

func closedError(k kind) error { return fmt.Errorf("pjrt: %s: %w", k, ErrClosed) }
