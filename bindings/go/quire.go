// SPDX-License-Identifier: Apache-2.0

// Package quire is a paged KV cache for LLM inference, on any device: blocks, verified prefixes,
// preemption, swapping, migration and paged attention. It opens libquire when it is first used, and
// links nothing.
//
//	instance, err := quire.NewInstance(quire.InstanceOptions{})
//	cache, err := instance.NewCache(quire.CacheOptions{
//		Groups: []quire.Group{{Layers: 32, KVHeads: 8, HeadDim: 128}}, Blocks: 64})
//	chat, err := cache.NewSequence(quire.SequenceOptions{})
//	step, err := cache.BeginCommit(quire.StepOptions{}, nil,
//		[]quire.Item{{Sequence: chat.Handle(), TokenCount: 3}}, []uint32{1, 2, 3}, results)
//	err = step.Finish()
//
// The C headers, quire/*.h, say what each call means; the names here follow theirs. A call that
// fails changes nothing. Being short of blocks is a result, not an error.
//
// Objects are closed by hand, children first. Close returns ErrBusy, and does nothing, while an
// object is in use, also by a call in another goroutine. Other calls on a closed object return
// ErrStale. All objects may be used from any goroutine.
package quire

/*
#cgo CFLAGS: -std=c99 -D_GNU_SOURCE -I${SRCDIR}/include
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"sync"
	"unsafe"
)

// Version is the version of this package, and the oldest libquire that it works with.
const Version = "0.1.0"

var opening struct {
	sync.Mutex
	done bool
	path string
}

// Open opens libquire; if it is not called, the first NewInstance does so. An empty path means the
// file that the environment variable QUIRE_LIBRARY names, else libquire.so.0 where the dynamic
// linker looks. A process has only one libquire.
func Open(path string) error {
	opening.Lock()
	defer opening.Unlock()
	if opening.done {
		if path != "" && path != opening.path {
			return &Error{Status: ErrArg,
				Message: "another libquire is already open; a process can open only one"}
		}
		return nil
	}
	var why [512]C.char
	var name *C.char
	if path != "" {
		name = C.CString(path)
		defer C.free(unsafe.Pointer(name))
	}
	if status := C.quire_go_open(name, &why[0], C.size_t(len(why))); status < 0 {
		return &Error{Status: Status(status), Message: C.GoString(&why[0])}
	}
	opening.done, opening.path = true, path
	return nil
}

// arena is C memory for structs that hold pointers: Go memory passed to C may not hold Go pointers.
type arena struct {
	blocks []unsafe.Pointer
}

func (a *arena) alloc(size uintptr) unsafe.Pointer {
	block := C.calloc(1, C.size_t(size)+1) // never of 0 bytes
	a.blocks = append(a.blocks, block)
	return block
}

func (a *arena) text(s string) *C.char {
	if s == "" {
		return nil
	}
	block := C.CString(s)
	a.blocks = append(a.blocks, unsafe.Pointer(block))
	return block
}

func (a *arena) bytes(content []byte) unsafe.Pointer {
	if len(content) == 0 {
		return nil
	}
	block := a.alloc(uintptr(len(content)))
	copy(unsafe.Slice((*byte)(block), len(content)), content)
	return block
}

func (a *arena) free() {
	for _, block := range a.blocks {
		C.free(block)
	}
}

func flag(set bool, bit uint32) C.uint32_t {
	if set {
		return C.uint32_t(bit)
	}
	return 0
}
