// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
	"io"
	"runtime/cgo"
	"unsafe"
)

// The functions that the library calls. A panic that unwinds through C would end the process, so
// each of them recovers.

//export quireGoLog
func quireGoLog(handle C.uintptr_t, level C.int32_t, component, message *C.char) {
	defer func() { _ = recover() }()
	log := cgo.Handle(handle).Value().(func(int, string, string))
	log(int(level), C.GoString(component), C.GoString(message))
}

// taskRunner is a device's RunTasks, and the first error that it panicked with.
type taskRunner struct {
	run    func(count int, task func(i int))
	panics chan error // room for one
}

//export quireGoRunTasks
func quireGoRunTasks(handle C.uintptr_t, count C.uint32_t, task, context unsafe.Pointer) {
	runner := cgo.Handle(handle).Value().(*taskRunner)
	defer func() {
		if why := recover(); why != nil {
			select {
			case runner.panics <- fmt.Errorf("RunTasks panicked: %v", why):
			default:
			}
		}
	}()
	runner.run(int(count), func(i int) {
		C.quire_go_run_task(C.quire_task(task), context, C.uint32_t(i))
	})
}

// stream is where a session goes or comes from, and why it stopped.
type stream struct {
	to   io.Writer
	from io.Reader
	err  error
}

// run runs what uses the stream, and returns the status for the library.
func (s *stream) run(use func() error) (status C.quire_status) {
	defer func() {
		if why := recover(); why != nil {
			s.err = fmt.Errorf("the session's stream panicked: %v", why)
		}
		if s.err != nil {
			status = C.QUIRE_E_OS
		}
	}()
	s.err = use()
	return 0
}

//export quireGoSessionWrite
func quireGoSessionWrite(handle C.uintptr_t, content unsafe.Pointer, size C.uint64_t) C.int32_t {
	s := cgo.Handle(handle).Value().(*stream)
	return C.int32_t(s.run(func() error {
		count, err := s.to.Write(unsafe.Slice((*byte)(content), size))
		if err == nil && count != int(size) {
			err = io.ErrShortWrite
		}
		return err
	}))
}

//export quireGoSessionRead
func quireGoSessionRead(handle C.uintptr_t, content unsafe.Pointer, size C.uint64_t) C.int32_t {
	s := cgo.Handle(handle).Value().(*stream)
	return C.int32_t(s.run(func() error {
		_, err := io.ReadFull(s.from, unsafe.Slice((*byte)(content), size))
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}))
}
