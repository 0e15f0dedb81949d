// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// object owns one pointer from the library. Calls hold its lock for reading; Close needs it for
// writing, and fails instead of waiting for it.
type object struct {
	lock    sync.RWMutex
	pointer unsafe.Pointer
	kind    string
	// Set once the library has given the object up. It answers ErrStale then, and is never freed.
	abandoned atomic.Bool
}

// use returns the pointer for a call; release it with done.
func (o *object) use() (unsafe.Pointer, error) {
	o.lock.RLock()
	if o.pointer == nil {
		o.lock.RUnlock()
		return nil, failed(ErrStale, "the %s is closed", o.kind)
	}
	return o.pointer, nil
}

func (o *object) done() { o.lock.RUnlock() }

// close ends the object by calling destroy; closing it again, or after it was abandoned, does
// nothing.
func (o *object) close(destroy func(pointer unsafe.Pointer) error) error {
	if o.abandoned.Load() {
		return nil
	}
	if !o.lock.TryLock() {
		return failed(ErrBusy, "another goroutine is in a call on the %s", o.kind)
	}
	defer o.lock.Unlock()
	if o.pointer == nil {
		return nil
	}
	if err := destroy(o.pointer); err != nil {
		return err
	}
	o.pointer = nil
	return nil
}

// useAll returns the pointers of several objects; release them with the function, which is never
// nil.
func useAll(objects ...*object) ([]unsafe.Pointer, func(), error) {
	pointers := make([]unsafe.Pointer, 0, len(objects))
	used := 0
	release := func() {
		for _, o := range objects[:used] {
			o.done()
		}
	}
	for _, o := range objects {
		pointer, err := o.use()
		if err != nil {
			release()
			used = 0
			return nil, release, err
		}
		used++
		pointers = append(pointers, pointer)
	}
	return pointers, release, nil
}
