# SPDX-License-Identifier: Apache-2.0
# _ffi.py is generated from the C headers; cffi's objects have no static types.
from typing import Any

ffi: Any
