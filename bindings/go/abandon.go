// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import "unsafe"

// Abandoned says what was left: quire_abandon_info of quire/abandon.h.
type Abandoned struct {
	DeviceBytes uint64 // allocated on the device
	HostBytes   uint64 // host memory that the device can access
	EngineBytes uint64 // the engine's own, imported; the device may still write to it
}

// abandon gives the object up, also while other goroutines are in calls on it. Its pointer stays,
// because the library frees nothing: calls are ErrStale from then on, and Close does nothing.
func (o *object) abandon(
	run func(pointer unsafe.Pointer, info *C.quire_abandon_info, e *C.quire_error) C.quire_status,
) (Abandoned, error) {
	pointer, err := o.use()
	if err != nil {
		return Abandoned{}, err
	}
	defer o.done()
	var info C.quire_abandon_info
	info.struct_size = C.sizeof_quire_abandon_info
	_, err = call(func(e *C.quire_error) C.quire_status { return run(pointer, &info, e) })
	if err != nil {
		return Abandoned{}, err
	}
	o.abandoned.Store(true)
	return Abandoned{DeviceBytes: uint64(info.device_bytes), HostBytes: uint64(info.host_bytes),
		EngineBytes: uint64(info.engine_bytes)}, nil
}

// Abandon gives up a cache whose device no longer responds, whatever state it is in, with all that
// belongs to it. It waits for nothing, and frees nothing that the device may still touch. After
// that, its devices and the queues of its unfinished steps can only be abandoned.
func (c *Cache) Abandon() (Abandoned, error) {
	return c.abandon(func(pointer unsafe.Pointer, info *C.quire_abandon_info,
		e *C.quire_error) C.quire_status {
		return C.q_cache_abandon((*C.quire_cache)(pointer), info, e)
	})
}

// Abandon gives up a device that no longer responds, with its queues, fences and memory. ErrBusy:
// caches on it are neither closed nor abandoned.
func (d *Device) Abandon() (Abandoned, error) {
	return d.abandon(func(pointer unsafe.Pointer, info *C.quire_abandon_info,
		e *C.quire_error) C.quire_status {
		return C.q_device_abandon((*C.quire_device)(pointer), info, e)
	})
}

// Abandon gives up a queue whose work never ends: calls that wait for their turn on it return, and
// one that is in the driver returns when the driver does. Fail the steps on it, or abandon their
// cache; its device can then only be abandoned.
func (q *Queue) Abandon() error {
	_, err := q.abandon(func(pointer unsafe.Pointer, _ *C.quire_abandon_info,
		e *C.quire_error) C.quire_status {
		return C.q_queue_abandon((*C.quire_queue)(pointer), e)
	})
	return err
}
