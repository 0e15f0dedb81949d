# SPDX-License-Identifier: Apache-2.0
"""instance: the backends that were found; devices and caches are made from an instance."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, List, Optional, Union

from . import libquire as _library
from .libquire import ffi, new, text
from .objects import Object

LogFunction = Callable[[int, str, str], None]

LOG_ERROR = 1
LOG_WARNING = 2
LOG_INFO = 3


@dataclasses.dataclass(frozen=True)
class Backend:
    """A backend, or a file that could not be loaded as one; then `message` says why."""

    name: str
    version: str
    path: str
    loaded: bool
    device_count: int
    message: str


class Instance(Object):
    """Finds backends. Everything else is made from an instance.

    plugin_path  directories that are searched for backends before all others
    log          log(level, component, message), called from any thread; an exception that it raises
                 goes to sys.unraisablehook
    library      the path of libquire; see quire.libquire
    """

    _name = "instance"
    _destroy = "instance_destroy"

    def __init__(self, plugin_path: Union[str, List[str], None] = None,
                 log: Optional[LogFunction] = None, library: Optional[str] = None):
        opened = _library.load(library)
        desc = new("quire_instance_desc")
        if plugin_path is not None:
            paths = [plugin_path] if isinstance(plugin_path, str) else plugin_path
            self._path = ffi.new("char[]", os.fsencode(":".join(paths)))
            desc.plugin_path = self._path
        self._callback = None
        if log is not None:
            self._callback = _log_callback(log)
            desc.log = self._callback
        out = ffi.new("quire_instance **")
        opened.call(opened.api.instance_create, desc, out)
        super().__init__(opened, out[0])

    @property
    def backends(self) -> List[Backend]:
        """All backends that were found, including those that did not load."""
        count = ffi.new("uint32_t *")
        self._library.call(self._library.api.backend_count, self, count)
        return [self._backend(i) for i in range(count[0])]

    def _backend(self, index: int) -> Backend:
        info = new("quire_backend_info")
        self._library.call(self._library.api.backend_get_info, self, index, info)
        return Backend(text(info.name), text(info.version), text(info.path), info.status == 0,
                       info.device_count, text(info.message))

    def load_backend(self, path: Union[str, "os.PathLike[str]"]) -> Backend:
        """Loads a backend by its absolute path. It stays loaded until the process ends."""
        index = ffi.new("uint32_t *")
        self._library.call(self._library.api.backend_load, self, os.fsencode(path), index)
        return self._backend(index[0])


def _log_callback(log: LogFunction) -> Any:
    kind = "void(void *, int32_t, const char *, const char *)"

    @ffi.callback(kind)  # type: ignore[untyped-decorator]
    def call(_user: Any, level: int, component: Any, message: Any) -> None:
        log(level, text(component), text(message))

    return call
