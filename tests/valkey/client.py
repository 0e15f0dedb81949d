# SPDX-License-Identifier: Apache-2.0
"""client: the plugin, through plugin/store.h alone, with many requests under way."""

import ctypes
import hashlib
import os
import pathlib
import select
import time

PUT, GET, FIND, REMOVE, FLUSH = 1, 2, 3, 4, 5
DONE, MISS, FOREIGN, DAMAGED, SIZE, FULL, FAILED, CANCELLED = range(8)
NAMES = ["DONE", "MISS", "FOREIGN", "DAMAGED", "SIZE", "FULL", "FAILED", "CANCELLED"]
HANG = 60  # seconds
HEADER_BYTES = 136  # before each value in the cluster

U8, U32, U64 = ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
POINTER = ctypes.c_void_p


class Label(ctypes.Structure):
    _fields_ = [("key", U8 * 32), ("fingerprint", U8 * 32), ("name_space", U8 * 32)]


class Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Desc(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("flags", U32), ("options", ctypes.POINTER(Option)),
                ("option_count", U32), ("option_stride", U32)]


class Piece(ctypes.Structure):
    _fields_ = [("address", POINTER), ("size_bytes", U64)]


class Request(ctypes.Structure):
    _fields_ = [("kind", U32), ("flags", U32), ("cookie", U64), ("label", Label),
                ("pieces", ctypes.POINTER(Piece)), ("piece_count", U32), ("reserved0", U32)]


class Answer(ctypes.Structure):
    _fields_ = [("outcome", U32), ("kind", U32), ("cookie", U64), ("label", Label),
                ("size_bytes", U64), ("native_code", ctypes.c_int64)]


class Info(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("flags", U32), ("next", POINTER), ("max_value_bytes", U64),
                ("capacity_bytes", U64), ("max_requests", U32), ("reserved0", U32),
                ("place", ctypes.c_char * 256)]


STATS = ["records", "value_bytes", "used_bytes", "puts", "puts_known", "puts_refused", "hits",
         "misses", "foreign", "damaged", "failed_reads", "removed", "evicted", "written_bytes",
         "read_bytes", "recovered", "skipped_bytes"]


class Stats(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("flags", U32), ("next", POINTER),
                *[(name, U64) for name in STATS]]


class Error(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("status", ctypes.c_int32), ("domain", U32), ("shard", U32),
                ("native_code", ctypes.c_int64), ("backend", ctypes.c_char * 32),
                ("message", ctypes.c_char * 480)]


class HostInfo(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("abi_major", U32), ("abi_minor", U32), ("rest", U8 * 36)]


CALLS = ["open", "close_wait", "get_info", "get_stats", "submit", "reap", "cancel", "descriptor",
         "find", "list", "shutdown"]


class Api(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("abi_major", U32), ("abi_minor", U32),
                ("min_host_minor", U32), ("name", ctypes.c_char_p), ("version", ctypes.c_char_p),
                ("help", ctypes.c_char_p), *[(name, POINTER) for name in CALLS]]


def load():
    path = pathlib.Path(os.environ["QUIRE_PLUGIN_PATH"], "quire_store_valkey.so")
    library = ctypes.CDLL(str(path))
    host = HostInfo(struct_size=48, abi_major=0, abi_minor=1)
    table = ctypes.POINTER(Api)()
    if library.quire_store_query_v0(ctypes.byref(host), ctypes.byref(table), None) != 0:
        raise RuntimeError("the plugin does not load")
    return table.contents


API = load()
HELP = API.help.decode()


def call(name, *arguments):
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[POINTER] * len(arguments))(getattr(API, name))(
        *arguments)


def label_of(key, model=1, tenant=0):
    label = Label()
    label.key[:] = hashlib.sha256(f"key {key}".encode()).digest()
    label.fingerprint[:] = hashlib.sha256(f"model {model}".encode()).digest()
    if tenant:
        label.name_space[:] = hashlib.sha256(f"tenant {tenant}".encode()).digest()
    return label


def value_of(key, size_bytes):
    """Bytes that only this key and size have."""
    return hashlib.shake_128(f"value {key} {size_bytes}".encode()).digest(size_bytes)


class Refusal(Exception):
    """A call's error."""


class Result:
    """An answer, with when it came."""

    def __init__(self, answer, key, seconds, value):
        self.outcome, self.kind, self.code = answer.outcome, answer.kind, answer.native_code
        self.size_bytes, self.key, self.seconds, self.value = answer.size_bytes, key, seconds, value

    def __repr__(self):
        return f"{NAMES[self.outcome]} of {self.key} ({self.code}) after {self.seconds:.2f} s"


class Store:
    """An open store. Every value that a get gives is compared with the key's."""

    def __init__(self, flags=0, **options):
        pairs = [(name.encode(), str(value).encode()) for name, value in options.items()]
        array = (Option * len(pairs))(*[Option(*pair) for pair in pairs])
        desc = Desc(ctypes.sizeof(Desc), flags, array, len(pairs), ctypes.sizeof(Option))
        error = Error(struct_size=ctypes.sizeof(Error))
        self.handle = POINTER()
        if call("open", ctypes.addressof(desc), ctypes.addressof(self.handle),
                ctypes.addressof(error)) != 0:
            raise Refusal(error.message.decode())
        self.timeout = int(options.get("timeout", 1000)) / 1000
        self.results, self.waiting, self.next_cookie = [], {}, 1
        self.answers, self.wrong, self.slowest = 0, 0, 0.0
        self.notices = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self, timeout=HANG):
        """How many seconds it took."""
        if not self.handle:
            return 0
        began = time.monotonic()
        status = ctypes.CFUNCTYPE(ctypes.c_int32, POINTER, U64, POINTER)(API.close_wait)(
            self.handle, int(timeout * 1e9), None)
        if status != 0:
            raise TimeoutError(f"close_wait: {status}")
        self.handle = POINTER()
        return time.monotonic() - began

    def submit(self, kind, key=0, size_bytes=0, model=1, tenant=0):
        label = Label() if kind == FLUSH else label_of(key, model, tenant)
        request = Request(kind=kind, cookie=self.next_cookie, label=label)
        buffer, piece = None, None
        if kind in (PUT, GET):
            content = value_of(key, size_bytes) if kind == PUT else bytes(size_bytes)
            buffer = ctypes.create_string_buffer(content, size_bytes)
            piece = Piece(ctypes.addressof(buffer), size_bytes)
            request.pieces, request.piece_count = ctypes.pointer(piece), 1
        taken = U32()
        error = Error(struct_size=ctypes.sizeof(Error))
        status = ctypes.CFUNCTYPE(ctypes.c_int32, POINTER, POINTER, U32, U32, POINTER, POINTER)(
            API.submit)(self.handle, ctypes.addressof(request), 1, ctypes.sizeof(Request),
                        ctypes.addressof(taken), ctypes.addressof(error))
        if status != 0:
            raise Refusal(error.message.decode())
        if taken.value == 0:
            return False
        self.waiting[self.next_cookie] = (key, size_bytes, buffer, time.monotonic(), piece)
        self.next_cookie += 1
        return True

    def reap(self, patience=0.0):
        descriptor = ctypes.CFUNCTYPE(ctypes.c_int32, POINTER)(API.descriptor)(self.handle)
        select.select([descriptor], [], [], patience)
        answers, count = (Answer * 64)(), U32()
        ctypes.CFUNCTYPE(ctypes.c_int32, POINTER, POINTER, U32, U32, POINTER, POINTER)(API.reap)(
            self.handle, ctypes.addressof(answers), 64, ctypes.sizeof(Answer),
            ctypes.addressof(count), None)
        for answer in answers[:count.value]:
            if answer.kind == 0:
                self.notices += 1
                continue
            key, size_bytes, buffer, began, _ = self.waiting.pop(answer.cookie)
            value = buffer.raw[:size_bytes] if buffer is not None else b""
            result = Result(answer, key, time.monotonic() - began, value)
            if answer.kind == GET and answer.outcome == DONE:
                self.wrong += value != value_of(key, size_bytes)
            self.answers += 1
            self.slowest = max(self.slowest, result.seconds)
            self.results.append(result)
        return count.value

    def notice_count(self):
        """How many notices came since open."""
        while self.reap():
            pass
        return self.notices

    def drain(self):
        """The answers to all that is under way."""
        end = time.monotonic() + HANG
        while self.waiting:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.waiting)} requests have no answer")
            self.reap(0.2)
        results, self.results = self.results, []
        return results

    def run(self, kind, keys, size_bytes=0, **label):
        """One request for each key, many at a time; the answers by key."""
        for key in keys:
            while not self.submit(kind, key, size_bytes, **label):
                self.reap(0.2)
        return {result.key: result for result in self.drain()}

    def one(self, kind, key=0, size_bytes=0, **label):
        return self.run(kind, [key], size_bytes, **label)[key]

    def find(self, key, **label):
        wanted, found = label_of(key, **label), U8(9)
        ctypes.CFUNCTYPE(ctypes.c_int32, POINTER, POINTER, U32, U32, POINTER, POINTER)(API.find)(
            self.handle, ctypes.addressof(wanted), 1, ctypes.sizeof(Label),
            ctypes.addressof(found), None)
        return ["ABSENT", "PRESENT", "UNKNOWN"][found.value]

    def cancel(self, cookie):
        ctypes.CFUNCTYPE(ctypes.c_int32, POINTER, U64, POINTER)(API.cancel)(
            self.handle, cookie, None)

    def place(self):
        info = Info(struct_size=ctypes.sizeof(Info))
        call("get_info", self.handle, ctypes.addressof(info), None)
        return info.place.decode()

    def stats(self):
        stats = Stats(struct_size=ctypes.sizeof(Stats))
        call("get_stats", self.handle, ctypes.addressof(stats), None)
        return {name: getattr(stats, name) for name in STATS}


def name_of(key, prefix="quire:"):
    """The key's name in the cluster."""
    return prefix + bytes(label_of(key).key).hex()


def outcomes(results):
    counted = {}
    for result in results.values():
        counted[NAMES[result.outcome]] = counted.get(NAMES[result.outcome], 0) + 1
    return counted
