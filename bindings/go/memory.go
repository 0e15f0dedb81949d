// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import "unsafe"

// Memory is zeroed memory for an engine's activations.
type Memory struct {
	object
	device  *Device
	address uint64
	host    unsafe.Pointer
	size    uint64
}

// NewMemory allocates memory: of the host, reachable by the device, if host is set, else of the
// device.
func (d *Device) NewMemory(sizeBytes uint64, host bool) (*Memory, error) {
	pointer, err := d.use()
	if err != nil {
		return nil, err
	}
	defer d.done()
	var desc C.quire_memory_desc
	desc.struct_size = C.sizeof_quire_memory_desc
	desc.size_bytes, desc.kind = C.uint64_t(sizeBytes), flag(host, 1)
	var out *C.quire_memory
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_memory_create((*C.quire_device)(pointer), &desc, &out, e)
	})
	if err != nil {
		return nil, err
	}
	var info C.quire_memory_info
	info.struct_size = C.sizeof_quire_memory_info
	_, err = call(func(e *C.quire_error) C.quire_status { return C.q_memory_get_info(out, &info, e) })
	return &Memory{
		object:  object{kind: "memory", pointer: unsafe.Pointer(out)},
		device:  d,
		address: uint64(info.address),
		host:    info.host_pointer,
		size:    uint64(info.size_bytes),
	}, err
}

// Close frees the memory. Sync the queues that work on it first, and do not use the slices that
// Bytes and Float32s returned any more.
func (m *Memory) Close() error {
	return m.close(func(pointer unsafe.Pointer) error {
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_memory_destroy((*C.quire_memory)(pointer), e)
		})
		return err
	})
}

// SizeBytes returns the size.
func (m *Memory) SizeBytes() uint64 { return m.size }

// Address returns the address for the arguments of kernels.
func (m *Memory) Address() uint64 { return m.address }

// Bytes returns the memory as the host sees it, without a copy; nil if the host cannot reach it.
func (m *Memory) Bytes() []byte {
	if m.host == nil {
		return nil
	}
	return unsafe.Slice((*byte)(m.host), m.size)
}

// Float32s returns the memory as the host sees it, without a copy; nil if the host cannot reach it.
func (m *Memory) Float32s() []float32 {
	if m.host == nil {
		return nil
	}
	return unsafe.Slice((*float32)(m.host), m.size/4)
}

// Copy enqueues a copy from source to target, in bytes; the ranges must not overlap.
func (q *Queue) Copy(target *Memory, targetOffset uint64, source *Memory, sourceOffset,
	sizeBytes uint64) error {
	pointers, release, err := useAll(&q.object, &target.object, &source.object)
	defer release()
	if err != nil {
		return err
	}
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_memory_copy((*C.quire_queue)(pointers[0]), (*C.quire_memory)(pointers[1]),
			C.uint64_t(targetOffset), (*C.quire_memory)(pointers[2]), C.uint64_t(sourceOffset),
			C.uint64_t(sizeBytes), e)
	})
	return err
}
