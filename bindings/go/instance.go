// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include <stdlib.h>
#include "table.h"
static const char *status_name(quire_status status) {
    // quire_status_name is not in the table; these are the names of quire/base.h.
    static const char *const names[] = {
        "QUIRE_OK", "QUIRE_E_ARG", "QUIRE_E_STALE", "QUIRE_E_BUSY", "QUIRE_E_UNSUPPORTED",
        "QUIRE_E_STRUCT", "QUIRE_E_HOST_MEMORY", "QUIRE_E_DEVICE_MEMORY", "QUIRE_E_DEVICE_LOST",
        "QUIRE_E_BACKEND", "QUIRE_E_INCOMPATIBLE", "QUIRE_E_REENTRANT", "QUIRE_E_FORKED",
        "QUIRE_E_LIMIT", "QUIRE_E_OS", "QUIRE_E_INTERNAL"};
    if (status == QUIRE_S_TIMEOUT) return "QUIRE_S_TIMEOUT";
    return status <= 0 && status >= -15 ? names[-status] : "unknown status";
}
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

func statusName(s Status) *C.char { return C.status_name(C.quire_status(s)) }

// InstanceOptions are the options of a new instance.
type InstanceOptions struct {
	// PluginPath is a colon-separated list of directories, searched for backends before all others.
	PluginPath string
	// Log receives messages, from any thread; nil: no log. Levels: 1 error, 2 warning, 3 info. If
	// it panics, only the message is lost.
	Log func(level int, component, message string)
}

// Backend is a backend that was found, or a file that could not be loaded as one: then Message says
// why.
type Backend struct {
	Name, Version, Path string
	Loaded              bool
	DeviceCount         int
	Message             string
}

// Instance finds backends. Everything else is created from it.
type Instance struct {
	object
	log cgo.Handle
}

// NewInstance opens libquire, if it is not open yet, and looks for backends.
func NewInstance(options InstanceOptions) (*Instance, error) {
	if err := Open(""); err != nil {
		return nil, err
	}
	var a arena
	defer a.free()
	desc := (*C.quire_instance_desc)(a.alloc(C.sizeof_quire_instance_desc))
	desc.struct_size = C.sizeof_quire_instance_desc
	desc.plugin_path = a.text(options.PluginPath)
	instance := &Instance{object: object{kind: "instance"}}
	if options.Log != nil {
		instance.log = cgo.NewHandle(options.Log)
		C.quire_go_set_log(desc, C.uintptr_t(instance.log))
	}
	var out *C.quire_instance
	_, err := call(func(e *C.quire_error) C.quire_status { return C.q_instance_create(desc, &out, e) })
	if err != nil {
		instance.dropLog()
		return nil, err
	}
	instance.pointer = unsafe.Pointer(out)
	return instance, nil
}

func (i *Instance) dropLog() {
	if i.log != 0 {
		i.log.Delete()
		i.log = 0
	}
}

// Close destroys the instance. ErrBusy: devices or caches of it are open.
func (i *Instance) Close() error {
	err := i.close(func(pointer unsafe.Pointer) error {
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_instance_destroy((*C.quire_instance)(pointer), e)
		})
		return err
	})
	if err == nil {
		i.dropLog()
	}
	return err
}

// Backends lists all backends that were found, including those that did not load.
func (i *Instance) Backends() ([]Backend, error) {
	pointer, err := i.use()
	if err != nil {
		return nil, err
	}
	defer i.done()
	var count C.uint32_t
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_backend_count((*C.quire_instance)(pointer), &count, e)
	})
	if err != nil {
		return nil, err
	}
	backends := make([]Backend, 0, count)
	for at := C.uint32_t(0); at < count; at++ {
		backend, err := i.backend(pointer, at)
		if err != nil {
			return nil, err
		}
		backends = append(backends, backend)
	}
	return backends, nil
}

func (i *Instance) backend(pointer unsafe.Pointer, at C.uint32_t) (Backend, error) {
	var info C.quire_backend_info
	info.struct_size = C.sizeof_quire_backend_info
	_, err := call(func(e *C.quire_error) C.quire_status {
		return C.q_backend_get_info((*C.quire_instance)(pointer), at, &info, e)
	})
	return Backend{
		Name:        C.GoString(&info.name[0]),
		Version:     C.GoString(&info.version[0]),
		Path:        C.GoString(&info.path[0]),
		Loaded:      info.status == 0,
		DeviceCount: int(info.device_count),
		Message:     C.GoString(&info.message[0]),
	}, err
}

// LoadBackend loads a backend by its absolute path. It stays loaded until the process ends.
func (i *Instance) LoadBackend(path string) (Backend, error) {
	pointer, err := i.use()
	if err != nil {
		return Backend{}, err
	}
	defer i.done()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var at C.uint32_t
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_backend_load((*C.quire_instance)(pointer), name, &at, e)
	})
	if err != nil {
		return Backend{}, err
	}
	return i.backend(pointer, at)
}
