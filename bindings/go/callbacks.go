// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
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
