# SPDX-License-Identifier: Apache-2.0
"""device: an open device of a backend."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Callable, List, Optional

from .instance import Instance
from .libquire import ffi, new, text
from .objects import Abandoned, Object, expect

Task = Callable[[int], None]
# run_tasks(task_count, task): calls task(i) once for each i below task_count, then returns.
RunTasks = Callable[[int, Task], None]


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """A device's properties: quire_device_info of quire/device.h."""

    name: str
    backend: str
    memory_total_bytes: int
    memory_free_bytes: int
    copy_alignment: int
    host_visible: bool  # device addresses are host addresses, so arrays need no copy
    fast_16bit: bool  # requested, and in effect


class Device(Object):
    """An open device. A process may fork only until it opens its first device.

    backend      its name, such as "cpu"; None: the first backend that has a device
    index        which of the backend's devices
    threads      threads that run a kernel, if kernels run on the host; 0: one per core
    pin_threads  keep each of these threads on one core
    fast_16bit   let attention over f16 and bf16 use instructions that multiply 16-bit numbers,
                 which changes the last bits of its results; info.fast_16bit says whether it does
    inline       calls that enqueue work run it themselves, which spares small kernels two changes
                 of thread; not together with run_tasks
    run_tasks    run kernels on the engine's own threads instead. An exception that it raises is
                 kept in `task_error`, and the device's queues stop.
    """

    _name = "device"
    _destroy = "device_close"

    def __init__(self, instance: Instance, backend: Optional[str] = None, *, index: int = 0,
                 threads: int = 0, pin_threads: bool = False, fast_16bit: bool = False,
                 inline: bool = False, run_tasks: Optional[RunTasks] = None):
        self._instance = expect(instance, Instance, "instance")
        self.task_error: Optional[BaseException] = None
        desc = new("quire_device_desc", index=index, threads=threads,
                   flags=int(pin_threads) | int(fast_16bit) << 1 | int(inline) << 2)
        name = None
        if backend is not None:
            name = ffi.new("char[]", backend.encode())
            desc.backend = name
        # Arrays that work may read until the device is closed.
        self._until_closed: List[Any] = []
        self._callback = None
        if run_tasks is not None:
            self._callback = _task_callback(run_tasks, weakref.ref(self))
            desc.run_tasks = self._callback
        out = ffi.new("quire_device **")
        library = instance._library
        library.call(library.api.device_open, instance, desc, out)
        super().__init__(library, out[0])
        self._host_visible = self.info.host_visible

    @property
    def info(self) -> DeviceInfo:
        """The device's properties; memory_free_bytes is current."""
        info = new("quire_device_info")
        self._library.call(self._library.api.device_get_info, self, info)
        return DeviceInfo(text(info.name), text(info.backend), info.memory_total_bytes,
                          info.memory_free_bytes, info.copy_alignment, bool(info.host_visible),
                          bool(info.flags & 2))

    def abandon(self) -> Abandoned:
        """Gives up a device that no longer answers, with its queues, fences and memory. Errors:
        BusyError while caches on it are neither closed nor abandoned."""
        info = new("quire_abandon_info")
        self._abandon("device_abandon", info)
        return Abandoned(info.device_bytes, info.host_bytes, info.engine_bytes)


def _task_callback(run_tasks: RunTasks, device: "weakref.ref[Device]") -> Any:
    """Does not keep the device alive, which keeps the callback."""
    kind = "void(void *, uint32_t, quire_task, void *)"

    @ffi.callback(kind)  # type: ignore[untyped-decorator]
    def call(_user: Any, task_count: int, task: Any, context: Any) -> None:
        try:
            run_tasks(task_count, lambda i: task(context, i))
        except BaseException as why:  # it must not unwind through the library
            _keep_error(device, why)

    return call


def _keep_error(device: "weakref.ref[Device]", why: BaseException) -> None:
    """A function of its own, because the error keeps the frame that caught it."""
    owner = device()
    if owner is not None:
        owner.task_error = why
