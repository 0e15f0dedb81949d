// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"math"
	"runtime/cgo"
	"time"
	"unsafe"
)

// DeviceOptions say which device to open, and how.
type DeviceOptions struct {
	Backend string // its name, such as "cpu"; empty: the first that has a device
	Index   int
	Threads int // per kernel, where kernels run on the host; 0: one per core
	// PinThreads keeps each of the Threads on one core.
	PinThreads bool
	// Fast16Bit lets attention over f16 and bf16 use instructions that multiply 16-bit elements,
	// which changes the last bits of its results; DeviceInfo says whether the device has them.
	Fast16Bit bool
	// Inline makes calls that enqueue work run it themselves, which spares small kernels two
	// changes of thread; not together with RunTasks.
	Inline bool
	// RunTasks runs kernels on the engine's own threads: it calls task(i) once for each i below
	// count and returns. If it panics, TaskError keeps the reason and the device's queues stop.
	RunTasks func(count int, task func(i int))
}

// DeviceInfo describes a device.
type DeviceInfo struct {
	Name, Backend    string
	MemoryTotalBytes uint64
	MemoryFreeBytes  uint64
	CopyAlignment    int
	HostVisible      bool // device addresses are host addresses
	Fast16Bit        bool // asked for, and in effect
}

// Device is a device of a backend. A process may fork until it opens the first one.
type Device struct {
	object
	instance *Instance
	runner   *taskRunner
	handle   cgo.Handle
	visible  bool
}

// OpenDevice opens a device.
func (i *Instance) OpenDevice(options DeviceOptions) (*Device, error) {
	pointer, err := i.use()
	if err != nil {
		return nil, err
	}
	defer i.done()
	var a arena
	defer a.free()
	desc := (*C.quire_device_desc)(a.alloc(C.sizeof_quire_device_desc))
	desc.struct_size = C.sizeof_quire_device_desc
	desc.flags = flag(options.PinThreads, 1) | flag(options.Fast16Bit, 2) |
		flag(options.Inline, 4)
	desc.backend = a.text(options.Backend)
	var n counts
	desc.index, desc.threads = n.u32("Index", options.Index), n.u32("Threads", options.Threads)
	if n.err != nil {
		return nil, n.err
	}
	device := &Device{object: object{kind: "device"}, instance: i}
	if options.RunTasks != nil {
		device.runner = &taskRunner{run: options.RunTasks, panics: make(chan error, 1)}
		device.handle = cgo.NewHandle(device.runner)
		C.quire_go_set_run_tasks(desc, C.uintptr_t(device.handle))
	}
	var out *C.quire_device
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_device_open((*C.quire_instance)(pointer), desc, &out, e)
	})
	if err != nil {
		device.dropHandle()
		return nil, err
	}
	device.pointer = unsafe.Pointer(out)
	info, err := device.Info()
	device.visible = info.HostVisible
	return device, err
}

func (d *Device) dropHandle() {
	if d.handle != 0 {
		d.handle.Delete()
		d.handle = 0
	}
}

// Close closes the device. ErrBusy: queues, fences, memories or caches on it are open.
func (d *Device) Close() error {
	err := d.close(func(pointer unsafe.Pointer) error {
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_device_close((*C.quire_device)(pointer), e)
		})
		return err
	})
	if err == nil && !d.abandoned.Load() { // the device may still call it
		d.dropHandle()
	}
	return err
}

// TaskError returns what RunTasks first panicked with, or nil.
func (d *Device) TaskError() error {
	if d.runner == nil {
		return nil
	}
	select {
	case err := <-d.runner.panics:
		d.runner.panics <- err
		return err
	default:
		return nil
	}
}

// Info describes the device.
func (d *Device) Info() (DeviceInfo, error) {
	pointer, err := d.use()
	if err != nil {
		return DeviceInfo{}, err
	}
	defer d.done()
	var info C.quire_device_info
	info.struct_size = C.sizeof_quire_device_info
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_device_get_info((*C.quire_device)(pointer), &info, e)
	})
	return DeviceInfo{
		Name:             C.GoString(&info.name[0]),
		Backend:          C.GoString(&info.backend[0]),
		MemoryTotalBytes: uint64(info.memory_total_bytes),
		MemoryFreeBytes:  uint64(info.memory_free_bytes),
		CopyAlignment:    int(info.copy_alignment),
		HostVisible:      info.host_visible != 0,
		Fast16Bit:        info.flags&2 != 0,
	}, err
}

// Queue runs its work in order; queues run independently. Calls on a queue only enqueue.
type Queue struct {
	object
	device *Device
}

// NewQueue creates a queue.
func (d *Device) NewQueue() (*Queue, error) { return d.makeQueue(nil) }

// Close destroys the queue; enqueued work still runs. ErrBusy: a step that is not done uses it.
func (q *Queue) Close() error {
	return q.close(func(pointer unsafe.Pointer) error {
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_queue_destroy((*C.quire_queue)(pointer), e)
		})
		return err
	})
}

// Sync waits until all enqueued work has run.
func (q *Queue) Sync() error {
	return q.with(func(queue *C.quire_queue, e *C.quire_error) C.quire_status {
		return C.q_queue_sync(queue, e)
	})
}

// Signal enqueues a signal: the fence gets the value when all earlier work has run.
func (q *Queue) Signal(fence *Fence, value uint64) error {
	return q.withFence(fence, func(queue *C.quire_queue, f *C.quire_fence,
		e *C.quire_error) C.quire_status {
		return C.q_queue_signal(queue, f, C.uint64_t(value), e)
	})
}

// After enqueues a wait: later work runs after the fence has reached the value.
func (q *Queue) After(fence *Fence, value uint64) error {
	return q.withFence(fence, func(queue *C.quire_queue, f *C.quire_fence,
		e *C.quire_error) C.quire_status {
		return C.q_queue_after(queue, f, C.uint64_t(value), e)
	})
}

func (q *Queue) withFence(fence *Fence,
	run func(*C.quire_queue, *C.quire_fence, *C.quire_error) C.quire_status) error {
	pointers, release, err := useAll(&q.object, &fence.object)
	defer release()
	if err != nil {
		return err
	}
	_, err = call(func(e *C.quire_error) C.quire_status {
		return run((*C.quire_queue)(pointers[0]), (*C.quire_fence)(pointers[1]), e)
	})
	return err
}

// FenceFailed is a fence's value after work before it failed.
const FenceFailed = math.MaxUint64

// Fence is a number that only grows.
type Fence struct {
	object
	device *Device
}

// NewFence creates a fence with the given value.
func (d *Device) NewFence(value uint64) (*Fence, error) {
	pointer, err := d.use()
	if err != nil {
		return nil, err
	}
	defer d.done()
	var out *C.quire_fence
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_fence_create((*C.quire_device)(pointer), C.uint64_t(value), &out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Fence{object: object{kind: "fence", pointer: unsafe.Pointer(out)}, device: d}, nil
}

// Close destroys the fence.
func (f *Fence) Close() error {
	return f.close(func(pointer unsafe.Pointer) error {
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_fence_destroy((*C.quire_fence)(pointer), e)
		})
		return err
	})
}

// Value reads the fence.
func (f *Fence) Value() (uint64, error) {
	pointer, err := f.use()
	if err != nil {
		return 0, err
	}
	defer f.done()
	var value C.uint64_t
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_fence_read((*C.quire_fence)(pointer), &value, e)
	})
	return uint64(value), err
}

// Signal sets the value from the host. ErrArg: it would not grow.
func (f *Fence) Signal(value uint64) error {
	pointer, err := f.use()
	if err != nil {
		return err
	}
	defer f.done()
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_fence_signal((*C.quire_fence)(pointer), C.uint64_t(value), e)
	})
	return err
}

// Wait waits for the value; a negative timeout is for ever. ErrTimeout: time ran out.
func (f *Fence) Wait(value uint64, timeout time.Duration) error {
	pointer, err := f.use()
	if err != nil {
		return err
	}
	defer f.done()
	status, err := call(func(e *C.quire_error) C.quire_status {
		return C.q_fence_wait((*C.quire_fence)(pointer), C.uint64_t(value), nanoseconds(timeout), e)
	})
	return timedOut(status, err)
}

func nanoseconds(timeout time.Duration) C.uint64_t {
	if timeout < 0 {
		return math.MaxUint64
	}
	return C.uint64_t(timeout)
}

func timedOut(status C.quire_status, err error) error {
	if err == nil && status == statusTimeout {
		return failed(ErrTimeout, "timed out; nothing changed")
	}
	return err
}
