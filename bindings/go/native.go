// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import "unsafe"

// NativeKind says which stream or event of another API a Native is: QUIRE_NATIVE_* of quire/base.h.
type NativeKind uint32

const (
	CUDAStream      NativeKind = 0x100
	CUDAEvent       NativeKind = 0x101
	HIPStream       NativeKind = 0x200
	HIPEvent        NativeKind = 0x201
	VulkanQueue     NativeKind = 0x300
	VulkanSemaphore NativeKind = 0x301 // a timeline; Aux0 is its value
)

// Native is a stream or event of another API, such as CUDA's. The engine owns it.
type Native struct {
	Kind              NativeKind
	Value, Aux0, Aux1 uint64
}

func (n Native) desc() C.quire_native {
	return C.quire_native{kind: C.uint32_t(n.Kind), value: C.uint64_t(n.Value),
		aux0: C.uint64_t(n.Aux0), aux1: C.uint64_t(n.Aux1)}
}

// BindQueue creates a queue that enqueues on a stream of the engine's, in the order of calls. The
// engine keeps the stream alive until Device.Close has returned. ErrArg: the stream is of another
// device. ErrBusy: the engine is capturing it. ErrUnsupported: the backend has no such streams.
func (d *Device) BindQueue(stream Native) (*Queue, error) {
	native := stream.desc()
	return d.makeQueue(&native)
}

// SignalNative signals the engine's own semaphore, or records its event, when all earlier work has
// run. ErrUnsupported: the backend has no such semaphores. ErrBusy: the queue waits for a fence
// without a pending signal.
func (q *Queue) SignalNative(semaphore Native) error {
	native := semaphore.desc()
	return q.with(func(queue *C.quire_queue, e *C.quire_error) C.quire_status {
		return C.q_queue_signal_native(queue, &native, e)
	})
}

// AfterNative lets later work run after the engine's own semaphore was signalled; see
// quire_queue_after_native for the order of submissions.
func (q *Queue) AfterNative(semaphore Native) error {
	native := semaphore.desc()
	return q.with(func(queue *C.quire_queue, e *C.quire_error) C.quire_status {
		return C.q_queue_after_native(queue, &native, e)
	})
}

// FinishAfter is Finish where the engine's own work of the step is not on the step's queue: the
// semaphore or event is signalled when that work ends, and the step's queue waits for it. Only in a
// cache with memory on one shard.
func (s *Step) FinishAfter(event Native) error {
	native := event.desc()
	return s.finish(&native, stepOK)
}

func (q *Queue) with(run func(queue *C.quire_queue, e *C.quire_error) C.quire_status) error {
	pointer, err := q.use()
	if err != nil {
		return err
	}
	defer q.done()
	_, err = call(func(e *C.quire_error) C.quire_status {
		return run((*C.quire_queue)(pointer), e)
	})
	return err
}

func (d *Device) makeQueue(native *C.quire_native) (*Queue, error) {
	pointer, err := d.use()
	if err != nil {
		return nil, err
	}
	defer d.done()
	var out *C.quire_queue
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_queue_create((*C.quire_device)(pointer), native, &out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Queue{object: object{kind: "queue", pointer: unsafe.Pointer(out)}, device: d}, nil
}
