// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
	"sync"
)

// Status is the kind of a failure, for errors.Is(err, quire.ErrBusy).
type Status int32

// The statuses of quire/base.h.
const (
	ErrArg          Status = -1  // an argument is wrong; the message says which and why
	ErrStale        Status = -2  // a handle is closed, ended, or of another cache
	ErrBusy         Status = -3  // the object is in use; the message says by what
	ErrUnsupported  Status = -4  // not offered by this library, backend or cache
	ErrStruct       Status = -5  // package and library disagree on a struct
	ErrHostMemory   Status = -6  // the host is out of memory
	ErrDeviceMemory Status = -7  // the device is out of memory
	ErrDeviceLost   Status = -8  // the device failed; its caches keep their bookkeeping
	ErrBackend      Status = -9  // a backend is missing, damaged or broke its contract
	ErrIncompatible Status = -10 // the versions of the two sides are incompatible
	ErrReentrant    Status = -11 // a callback called back into the object that called it
	ErrForked       Status = -12 // the process forked after a device was opened
	ErrLimit        Status = -13 // a stated limit would be exceeded
	ErrOS           Status = -14 // an operating system call failed; NativeCode is errno
	ErrInternal     Status = -15 // a bug in the library
	ErrTimeout      Status = 3   // time ran out; nothing changed
)

const (
	statusIncomplete = 1
	statusNoBlocks   = 2
	statusTimeout    = 3
)

func (s Status) Error() string { return C.GoString(statusName(s)) }

// Error is a failed call. errors.Is matches it with its Status.
type Error struct {
	Status     Status
	Backend    string // its name, if one was involved
	NativeCode int64
	Message    string
}

func (e *Error) Error() string { return e.Message }

// Is reports whether target is the Status of the failure.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// slots pools the error structs that calls fill: cgo would otherwise allocate a new one for each
// call.
var slots = sync.Pool{New: func() any {
	slot := new(C.quire_error)
	slot.struct_size = C.sizeof_quire_error
	return slot
}}

// call runs a call with an error slot and turns a negative status into an *Error.
func call(run func(e *C.quire_error) C.quire_status) (C.quire_status, error) {
	slot := slots.Get().(*C.quire_error)
	defer slots.Put(slot)
	status := run(slot)
	if status < 0 {
		return status, errorOf(status, slot)
	}
	return status, nil
}

func errorOf(status C.quire_status, slot *C.quire_error) error {
	return &Error{
		Status:     Status(status),
		Backend:    C.GoString(&slot.backend[0]),
		NativeCode: int64(slot.native_code),
		Message:    C.GoString(&slot.message[0]),
	}
}

func failed(status Status, format string, arguments ...any) error {
	return &Error{Status: status, Message: fmt.Sprintf(format, arguments...)}
}
