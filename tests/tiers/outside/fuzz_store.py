# SPDX-License-Identifier: Apache-2.0
"""fuzz_store: the plugin of fuzz_store.c from Python, which sets its faults and looks into it."""

import ctypes

CHANCES = ["p_miss", "p_failed", "p_cancelled", "p_damaged", "p_foreign", "p_flip", "p_swap",
           "p_size", "p_full", "p_evict", "p_find_miss", "p_find_failed", "p_find_cancelled",
           "p_put_failed", "p_put_cancelled"]  # per mille
SETTINGS = ["find_mode", "max_requests", "max_delay", "hold", "take_none", "use_descriptor",
            "remote", "notices", *CHANCES, "cancel_honoured"]
FIND_TELLS, FIND_UNKNOWN, FIND_SOMETIMES, FIND_LIES, FIND_PRESENT_OR_UNKNOWN = range(5)


class Control(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_uint32) for name in SETTINGS),
                *((name, ctypes.c_uint64) for name in ["random", "wrong_requests"])]


class FuzzStore:
    """All stores that the plugin has opened in this process."""

    def __init__(self, plugin):
        self.plugin = ctypes.CDLL(str(plugin))
        self.plugin.fuzz_live.restype = ctypes.c_uint64
        self.plugin.fuzz_outstanding.restype = ctypes.c_uint32
        self.control = Control.in_dll(self.plugin, "fuzz_control")

    def reset(self, seed):
        self.plugin.fuzz_reset()
        self.control.random = seed * 2654435761 % (1 << 62) + 1

    def set_faults(self, chance):
        """About three in ten of the faults, each rare, common or certain."""
        for name in CHANCES:
            if chance.random() < 0.3:
                choices = [5, 30, 100] if name == "p_evict" else [10, 50, 200, 1000]
                setattr(self.control, name, chance.choice(choices))

    def be_truthful(self):
        for name in CHANCES:
            setattr(self.control, name, 0)

    def let_go(self):
        self.control.hold = self.control.take_none = 0

    def evict_all(self):
        self.plugin.fuzz_evict_all()

    def has(self, key):
        return bool(self.plugin.fuzz_has(key))

    def settings(self):
        values = {name: getattr(self.control, name) for name in SETTINGS}
        return {name: value for name, value in values.items() if value}

    def problem(self):
        """None, or the trace that the library left in the plugin once all is closed."""
        if self.plugin.fuzz_live():
            return "stores are left open"
        return "requests are outstanding" if self.plugin.fuzz_outstanding() else None
