# SPDX-License-Identifier: Apache-2.0
"""turns: what happens between the calls of a request: other connections, probes, cancellations.

    turns.py CASE

Each against nodes of this test, which need no program.
"""

import binascii
import ctypes
import errno
import pathlib
import random
import socket
import ssl
import sys
import tempfile
import threading
import time

from access import certificates
from client import CANCELLED, DAMAGED, DONE, FAILED, FIND, FLUSH, FOREIGN, GET, PUT, REMOVE, Refusal
from client import Store, name_of, outcomes
from cluster import until
from faults import expect, number_of
from hostile import Node, bulk, page

SOON = 15  # seconds; what should not wait is far faster, and what should takes far longer
PATIENT = {"timeout": 20_000, "connect_timeout": 20_000}


def slot_of(key):
    return binascii.crc_hqx(name_of(key).encode(), 0) % 16_384


def key_where(condition):
    return next(key for key in range(1_000) if condition(slot_of(key)))


def topology(*ranges, host=b"127.0.0.1", more=()):
    """The answer to CLUSTER SLOTS; ranges of (first, last, port), and metadata of the nodes."""
    metadata = b"$2\r\nid\r\n*%d\r\n" % len(more) + b"".join(map(bulk, more))
    return b"*%d\r\n" % len(ranges) + b"".join(
        b"*3\r\n:%d\r\n:%d\r\n*4\r\n%s:%d\r\n%s" % (first, last, bulk(host), port, metadata)
        for first, last, port in ranges)


class TlsNode(Node):
    """Ends connections without a word of TLS."""

    def __init__(self, folder):
        super().__init__()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(f"{folder}/node.pem", f"{folder}/node.key")

    def serve(self, link):
        try:
            wrapped = self.context.wrap_socket(link, server_side=True)
        except OSError:
            return
        self.links.add(wrapped)
        super().serve(wrapped)


def relay(port, hear):
    """The port of a relay that passes the node's bytes on in small pieces, and tells each."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source, target, size):
        try:
            while chunk := source.recv(size):
                target.sendall(chunk)
                if size < 65_536:
                    hear(len(chunk))
                    time.sleep(0.001)
        except OSError:
            pass
        for link in (source, target):
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept():
        while True:
            link, node = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
            for source, target, size in ((link, node, 65_536), (node, link, 5_000)):
                threading.Thread(target=pump, args=(source, target, size), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def an_error_of_tls_ends_no_other_connection():
    """A value comes in many pieces while the connection to another node breaks."""
    size, passed, one_goes_at = 1_000_000, [0], [sys.maxsize]

    def hear(count):
        passed[0] += count
        if passed[0] > one_goes_at[0]:
            one_goes_at[0] = sys.maxsize
            one.hang_up()

    with tempfile.TemporaryDirectory() as folder:
        certificates(folder)
        with TlsNode(folder) as one, TlsNode(folder) as two:
            slots = topology((0, 8_191, one.port), (8_192, 16_383, relay(two.port, hear)))
            one.instead = two.instead = {"CLUSTER": lambda _: slots}
            keys = [key_where(lambda slot: slot < 8_192), key_where(lambda slot: slot >= 8_192)]
            with Store(nodes=one.nodes(), tls="yes", tls_ca=f"{folder}/ca.pem",
                       **PATIENT) as store:
                expect(outcomes(store.run(PUT, keys, size)) == {"DONE": 2}, "puts")
                one_goes_at[0] = passed[0] + size // 2
                result = store.one(GET, keys[1], size)
                expect(one_goes_at[0] == sys.maxsize, "the other one did not break")
                expect(result.outcome == DONE, result)
                expect(store.wrong == 0, "a wrong value")
                until(lambda: store.one(GET, keys[0], size).outcome == DONE, "no service")


class NumberedNode(Node):
    """Knows which of its connections is served."""

    def __init__(self):
        super().__init__()
        self.last, self.local = 0, threading.local()

    def serve(self, link):
        self.last += 1
        self.local.number = self.last
        super().serve(link)


def a_failed_probe_gives_up_its_connection():
    """One connection stops answering, the next one answers only the login, and others are well."""
    with NumberedNode() as node:
        first_well = [0]

        def answer(words):
            number, is_login = node.local.number, words[0] == b"PING"
            is_silent = number < first_well[0] - (1 if is_login else 0)
            return None if is_silent else node.answer(words)
        node.instead = {name: answer for name in ("PING", "CLUSTER", "GET", "SET", "GETRANGE")}
        with Store(nodes=node.nodes(), timeout=300, connect_timeout=300, breaker_failures=1,
                   breaker_cooldown=100) as store:
            until(lambda: store.one(PUT, 1, 100).outcome == DONE, "a put")
            first_well[0] = node.last + 2
            until(lambda: store.one(GET, 1, 100).outcome == DONE, "no service", SOON)


def a_slot_without_an_owner_is_asked_for():
    """A part of the slots gets its owner after the store has looked: it soon looks again."""
    with Node() as node:
        last = [8_191]
        node.instead = {"CLUSTER": lambda _: topology((0, last[0], node.port))}
        key = key_where(lambda slot: slot >= 8_192)
        with Store(nodes=node.nodes(), **PATIENT) as store:
            expect(store.one(PUT, key, 100).code == errno.EAGAIN, "a put without an owner")
            last[0] = 16_383
            until(lambda: store.one(PUT, key, 100).outcome == DONE, "no service", SOON)


def other_labels_of_a_key_are_told_gone():
    """Whatever request finds that another label took the place of one that find() knows."""
    with Node() as node, Store(nodes=node.nodes(), **PATIENT) as other:
        with Store(nodes=node.nodes(), **PATIENT) as store:
            store.one(PUT, 1, 100, model=1)
            asks = [(GET, 2, DONE), (GET, 4, FOREIGN), (FIND, 5, DONE), (PUT, 6, DONE)]
            for count, (kind, asked, outcome) in enumerate(asks, 1):
                there = asked if outcome == DONE else 3
                before = store.notice_count()
                if kind != PUT:
                    other.one(PUT, 1, 100, model=there)
                result = store.one(kind, 1, 100 if kind != FIND else 0, model=asked)
                expect(result.outcome == outcome, result)
                expect(store.notice_count() == before + 1, f"{count}: {store.notices} notices")
                expect(store.find(1, model=there) == "PRESENT", f"{count}: what is there")
        # A scan tells no labels, so find() says that any of them is there.
        node.instead = {"SCAN": lambda _: page(b"0", list(node.values))}
        with Store(nodes=node.nodes(), scan=3_600, **PATIENT) as store:
            expect(store.find(1, model=6) == "PRESENT", "a key of a scan")
            expect(store.one(PUT, 1, 100, model=7).outcome == DONE, "a put")
            expect(store.notice_count() == 1, f"{store.notices} notices")
            expect(store.find(1, model=6) == "ABSENT", "what was displaced")


def held(node, command, answers=None):
    """Holds the command up: an event that it came, and one that lets it go on."""
    came, goes_on = threading.Event(), threading.Event()

    def answer(words):
        came.set()
        goes_on.wait(60)
        return (answers or node.answer)(words)
    node.instead[command] = answer
    return came, goes_on


def cancellation_ends_what_only_reads():
    with Node() as node, Store(nodes=node.nodes(), **PATIENT) as store:
        # A removal that looks whose value is there.
        store.one(PUT, 1, 100)
        came, goes_on = held(node, "GETRANGE")
        cookie = store.next_cookie
        store.submit(REMOVE, 1)
        came.wait(60)
        store.cancel(cookie)
        expect([result.outcome for result in store.drain()] == [CANCELLED], "a removal")
        # A flush that waits for another request.
        store.submit(REMOVE, 1)
        cookie = store.next_cookie
        store.submit(FLUSH)
        store.cancel(cookie)
        until(store.reap, "no answer")
        expect([result.outcome for result in store.results] == [CANCELLED], "a flush")
        store.cancel(cookie - 1)
        expect([result.outcome for result in store.drain()] == [CANCELLED] * 2, "both")
        goes_on.set()
        node.instead.clear()
        expect(store.one(GET, 1, 100).outcome == DONE, "what was not removed")
        # A get that removes what is damaged.
        node.values[name_of(1).encode()] = b"no record"
        came, goes_on = held(node, "UNLINK")
        cookie = store.next_cookie
        store.submit(GET, 1, 100)
        came.wait(60)
        store.cancel(cookie)
        time.sleep(0.3)
        goes_on.set()
        expect([result.outcome for result in store.drain()] == [DAMAGED], "a get")
        expect(not node.values, "what was damaged")


def a_damaged_value_is_told_where_it_cannot_be_removed():
    errors = {"NOPERM this user has no permissions to run the 'unlink' command": False,
              "READONLY You can't write against a read only replica.": True}
    for text, is_for_another_node in errors.items():
        with Node() as node, Store(nodes=node.nodes(), **PATIENT) as store:
            store.one(PUT, 1, 100)
            node.values[name_of(1).encode()] = b"no record"
            node.instead = {"UNLINK": lambda _, text=text: b"-%s\r\n" % text.encode()}
            before = node.counts["CLUSTER"]
            result = store.one(GET, 1, 100)
            expect(result.outcome == DAMAGED, f"{text}: {result}")
            expect(store.find(1) == "UNKNOWN" and store.notice_count() == 1, "the index")
            if is_for_another_node:
                until(lambda: node.counts["CLUSTER"] > before, "no look who is primary now", SOON)


def a_change_ends_with_whatever_it_is_answered():
    """No answer to the last command of a request makes it begin again."""
    wrong_type = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
    text = b"$5\r\nhello\r\n"
    for kind, command, answer, outcome in (
            (PUT, "SET", wrong_type, FAILED), (PUT, "SET", text, FAILED),
            (REMOVE, "UNLINK", wrong_type, FAILED), (REMOVE, "UNLINK", text, FAILED),
            (GET, "UNLINK", wrong_type, DAMAGED), (GET, "UNLINK", text, FAILED)):
        with Node() as node, Store(nodes=node.nodes(), timeout=2_000, known=0) as store:
            if kind != PUT:
                store.one(PUT, 1, 100)
            if kind == GET:
                node.values[name_of(1).encode()] = b"no record"
            node.instead, node.counts = {command: lambda _, answer=answer: answer}, {}
            result = store.one(kind, 1, 0 if kind == REMOVE else 100)
            expect(result.outcome == outcome, f"{command}, {answer}: {result}")
            expect(outcome != FAILED or result.code == errno.EPROTO, result)
            expect(node.counts[command] == 1, f"{command}, {answer}: {node.counts}")


def an_end_right_after_the_login_is_a_failure():
    for extra in (b"+OK\r\n", b"-ERR no more\r\n"):
        with Node() as node, Store(nodes=node.nodes(), **PATIENT) as store:
            store.one(PUT, 1, 100)
            node.instead = {"PING": lambda _, extra=extra: b"+PONG\r\n" + extra}
            node.counts = {}
            node.hang_up()
            while number_of(store, "breaks") == 0:
                result = store.one(GET, 1, 100)
                expect(result.outcome == FAILED and result.seconds < SOON, result)
            expect(node.counts["PING"] < 50, node.counts)
            node.instead = {}
            until(lambda: store.one(GET, 1, 100).outcome == DONE, "no service")


def redirects_may_name_a_host():
    """ASK and MOVED to a node whose host the topology tells both ways; other names wait."""
    ways = {"announced": {"host": b"node.example", "more": (b"ip", b"127.0.0.1")},
            "known besides": {"more": (b"hostname", b"node.example")}}
    for what, way in ways.items():
        with Node() as one, Node() as two:
            slots = topology((0, 8_191, one.port), (8_192, 16_383, two.port), **way)
            one.instead, two.instead = ({"CLUSTER": lambda _, slots=slots: slots} for _ in range(2))
            key = key_where(lambda slot: slot < 8_192)
            name = name_of(key).encode()
            with Store(nodes=one.nodes(), known=0, **PATIENT) as store:
                expect(store.one(PUT, key, 100).outcome == DONE, "a put")
                two.values[name] = one.values.pop(name)
                two.instead["ASKING"] = lambda _: b"+OK\r\n"
                for word in ("ASK", "MOVED"):
                    text = f"-{word} {slot_of(key)} %s:{two.port}\r\n"
                    one.instead["GET"] = lambda _, text=text: (text % "other.example").encode()
                    one.counts["GET"] = 0
                    store.submit(GET, key, 100)
                    until(lambda: one.counts["GET"] > 2, "it does not wait for a name")
                    one.instead["GET"] = lambda _, text=text: (text % "node.example").encode()
                    answers = store.drain()
                    expect([result.outcome for result in answers] == [DONE], f"{what}: {answers}")
                    expect(answers[0].seconds < SOON, f"{what}: {answers}")
                expect(store.wrong == 0, "a wrong value")


def a_page_of_a_scan_brings_no_removed_key_back():
    """Another lane removes a key while a page that has it is under way, known to find() or not."""
    keys = [key_where(lambda slot, rest=rest: slot % 4 == rest) for rest in (1, 3)]
    with Node() as node:
        node.instead = {"SCAN": lambda _: page(b"0", [name_of(keys[0]).encode()])}
        with Store(nodes=node.nodes(), scan=1, threads=2, **PATIENT) as store:
            store.one(PUT, keys[0], 100)
            with Store(nodes=node.nodes(), **PATIENT) as other:
                other.one(PUT, keys[1], 100)
            names = [name_of(key).encode() for key in (*keys, "of another process")]
            came, goes_on = held(node, "SCAN", lambda _: page(b"0", names))
            expect(came.wait(60), "no scan")
            for key in keys:
                expect(store.one(REMOVE, key).outcome == DONE, "a removal")
            node.instead["SCAN"] = lambda _: None
            goes_on.set()
            until(lambda: store.find("of another process") == "PRESENT", "the page is not read")
            for key in keys:
                expect(store.find(key) == "UNKNOWN", f"{key} is back")


def a_topology_that_is_old_when_it_comes_is_asked_for_again():
    """A slot gets its owner while an answer that does not know it is under way."""
    with Node() as node:
        last = [8_191]

        def slots(_):
            return topology((0, last[0], node.port))
        node.instead = {"CLUSTER": slots}
        key = key_where(lambda slot: slot >= 8_192)
        with Store(nodes=node.nodes(), **PATIENT) as store:
            old = slots(None)
            came, goes_on = held(node, "CLUSTER", lambda _: old)
            store.one(PUT, key, 100)
            expect(came.wait(60), "no look for its owner")
            expect(store.one(PUT, key, 100).code == errno.EAGAIN, "a put without an owner")
            last[0] = 16_383
            node.instead = {"CLUSTER": slots}
            count = node.counts["CLUSTER"]
            goes_on.set()
            until(lambda: node.counts["CLUSTER"] > count, "no second look", SOON)


def redirects_name_only_so_many_nodes():
    """A node that names another address each time: each costs memory, and a connection."""
    with Node() as node:
        node.instead = {"CLUSTER": lambda _: topology((0, 16_383, node.port))}
        with Store(nodes=node.nodes(), timeout=1_000, known=0) as store:
            store.one(PUT, 1, 100)
            turn = iter(range(1, 10_000_000))

            def other(words):
                number = next(turn)
                return b"-MOVED %d 127.%d.%d.1:1\r\n" % (
                    binascii.crc_hqx(words[1], 0) % 16_384, 1 + number // 250, number % 250)
            node.instead = {"CLUSTER": lambda _: b"-ERR no\r\n", "GET": other}
            for number in range(30):
                answers = store.run(GET, [f"{number} {i}" for i in range(100)], 100)
                if {result.code for result in answers.values()} & {errno.ELOOP, errno.ETIMEDOUT}:
                    break
            else:
                expect(False, "3,000 nodes were asked")
            node.instead = {}
            until(lambda: store.one(PUT, "after", 100).outcome == DONE, "no service")


def a_node_that_hangs_in_a_circle_has_failed():
    """Two nodes name each other, until one of them says nothing more."""
    with Node() as one, Node() as two:
        slots = topology((0, 16_383, one.port))
        one.instead = {"CLUSTER": lambda _: slots}
        two.instead = {"CLUSTER": lambda _: slots}
        with Store(nodes=one.nodes(), timeout=2_000, known=0, breaker_failures=1) as store:
            store.one(PUT, 1, 100)
            calls, hangs = [0], threading.Event()

            def moved(node):
                text = f"-MOVED {slot_of(1)} 127.0.0.1:{node.port}\r\n".encode()

                def answer(_):
                    calls[0] += 1
                    if calls[0] > 8 and node is two:
                        hangs.wait(60)
                    return text
                return answer
            one.instead["GET"], two.instead["GET"] = moved(two), moved(one)
            result = store.one(GET, 1, 100)
            expect(result.outcome == FAILED and result.code == errno.ETIMEDOUT, result)
            expect(calls[0] > 8, f"{calls[0]} redirects")
            until(lambda: number_of(store, "breaks") >= 1, "its breaker heard nothing")
            hangs.set()


def each_request_ends_once_without_memory():
    """Memory runs out for the plugin now and then; no_memory.c is loaded first."""
    library = ctypes.CDLL(None)
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    ranges = [line.split()[0].split("-") for line in maps if "quire_store_valkey" in line]
    first, last = (int(text, 16) for text in (ranges[0][0], ranges[-1][1]))
    within = library.no_memory_within
    within.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint32]
    chance = random.Random(1)
    with Node() as node, Store(nodes=node.nodes(), timeout=2_000, threads=2) as store:
        for one_of in (300, 60, 10):
            within(first, last, one_of)
            refused = 0
            for _ in range(1_000):
                kind = chance.choice([PUT, PUT, GET, FIND, REMOVE, FLUSH])
                try:
                    store.submit(kind, chance.randrange(50), 100 if kind in (PUT, GET) else 0)
                except Refusal:
                    refused += 1
                if chance.random() < 0.2:
                    store.cancel(chance.randrange(store.next_cookie))
                store.reap()
            answers = store.drain()    # a second answer to a request is a KeyError
            within(first, last, 0)
            print(f"1 of {one_of}: {library.no_memory_count()} failed; {refused} refused, "
                  f"{len(answers)} answers")
            until(lambda: store.one(PUT, "after", 100).outcome == DONE, "no service")
        expect(library.no_memory_count() > 100, "memory was there")
        expect(store.wrong == 0, "wrong values")


LIST = [an_error_of_tls_ends_no_other_connection, a_failed_probe_gives_up_its_connection,
        a_slot_without_an_owner_is_asked_for, other_labels_of_a_key_are_told_gone,
        cancellation_ends_what_only_reads, a_damaged_value_is_told_where_it_cannot_be_removed,
        a_change_ends_with_whatever_it_is_answered, an_end_right_after_the_login_is_a_failure,
        redirects_may_name_a_host, a_page_of_a_scan_brings_no_removed_key_back,
        a_topology_that_is_old_when_it_comes_is_asked_for_again, redirects_name_only_so_many_nodes,
        a_node_that_hangs_in_a_circle_has_failed, each_request_ends_once_without_memory]

if __name__ == "__main__":
    {case.__name__: case for case in LIST}[sys.argv[1]]()
