# SPDX-License-Identifier: Apache-2.0
"""hostile: a node of this test answers with what no node should; requests end, in words.

    hostile.py CASE

The node is a server that is no cluster and keeps values in memory. It needs no program, and a
case says what it answers to one command instead.
"""

import binascii
import errno
import os
import pathlib
import socket
import sys
import tempfile
import threading
import time

from client import DONE, FAILED, FIND, GET, PUT, REMOVE, Refusal, Store, name_of
from cluster import until
from faults import expect, number_of

SINGLE = b"-ERR This instance has cluster support disabled\r\n"
SECRET = "correct-horse-battery"
LIFE = 240  # seconds, after which a node serves no more
MEMORY = 192 << 20  # bytes that replies may take, with what Python takes meanwhile


class Node:
    """Answers on a port of its own until the context ends."""

    def __init__(self, port=0, password=None):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.values, self.counts, self.links = {}, {}, set()
        self.password = password
        self.instead = {}  # by command: words -> bytes, or an iterator of them, or None
        self.end = time.monotonic() + LIFE

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.end = 0
        self.listener.shutdown(socket.SHUT_RDWR)  # ends the accept() of the thread
        self.listener.close()
        self.hang_up()

    def nodes(self):
        return f"127.0.0.1:{self.port}"

    def hang_up(self):
        for link in list(self.links):
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept(self):
        while time.monotonic() < self.end:
            try:
                link = self.listener.accept()[0]
            except OSError:
                return
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links.add(link)
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def serve(self, link):
        link.settimeout(LIFE)
        try:
            with link, link.makefile("rb") as file:
                logged_in = self.password is None
                while time.monotonic() < self.end:
                    words = read_command(file)
                    name = words[0].decode().upper()
                    self.counts[name] = self.counts.get(name, 0) + 1
                    if name == "AUTH":
                        logged_in = words[-1].decode() == self.password
                    if not logged_in and name not in self.instead:
                        link.sendall(b"-WRONGPASS invalid username-password pair\r\n")
                        continue
                    answer = self.instead.get(name, self.answer)(words)
                    for part in [answer] if isinstance(answer, bytes) else answer or []:
                        link.sendall(part)
        except (OSError, ConnectionError, ValueError):
            pass
        finally:
            self.links.discard(link)

    def answer(self, words):
        name, key = words[0].upper(), words[1] if len(words) > 1 else b""
        if name == b"PING":
            return b"+PONG\r\n"
        if name == b"CLUSTER":
            return SINGLE
        if name == b"SET":
            if b"NX" in words[3:] and key in self.values:
                return b"$-1\r\n"
            self.values[key] = words[2]
        if name in (b"SET", b"AUTH"):
            return b"+OK\r\n"
        if name == b"GET":
            return bulk(self.values[key]) if key in self.values else b"$-1\r\n"
        if name == b"GETRANGE":
            return bulk(self.values.get(key, b"")[:int(words[3]) + 1])
        if name == b"UNLINK":
            return b":%d\r\n" % (self.values.pop(key, None) is not None)
        return b"-ERR unknown command\r\n"


def read_command(file):
    def line(kind):
        text = file.readline()
        if not text.startswith(kind) or not text.endswith(b"\r\n"):
            raise ConnectionError
        return int(text[1:])
    words = []
    for _ in range(line(b"*")):
        size = line(b"$")
        words.append(file.read(size + 2)[:-2])
    return words


def bulk(text):
    return b"$%d\r\n%s\r\n" % (len(text), text)


def endless(head, chunk):
    """A reply that does not end while the connection lives."""
    yield head
    end = time.monotonic() + 60
    while time.monotonic() < end:
        yield chunk


def memory():
    """The most bytes of memory that the process ever had."""
    for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise ValueError("no VmHWM")


def refusal(**options):
    """The words with which opening fails, and after how many seconds."""
    began = time.monotonic()
    try:
        Store(**options).close()
    except Refusal as refused:
        return str(refused), time.monotonic() - began
    expect(False, f"{options} were taken")
    return "", 0


DEEP = b"*1\r\n" * 300_000
# Answers that no command has. Those that do not end are made anew by each call.
WRONG = {
    "nested 300,000 deep": lambda: DEEP + b":1\r\n",
    "2,147,483,647 elements": lambda: b"*2147483647\r\n",
    "100,000,000 elements": lambda: b"*100000000\r\n",
    "a trillion elements": lambda: b"*1000000000000\r\n",
    "numbers without end": lambda: endless(b"*40000000\r\n", b":1\r\n" * 65_536),
    "arrays without end": lambda: endless(b"", b"*1\r\n" * 65_536),
    "a line without end": lambda: endless(b"+", b"x" * 262_144),
    "an error without end": lambda: endless(b"-ERR ", b"x" * 262_144),
    "a number without end": lambda: endless(b":", b"1" * 262_144),
    "a size without end": lambda: endless(b"$", b"1" * 262_144),
    "a huge text": lambda: endless(b"$9223372036854775807\r\n", b"x" * 262_144),
    "a text of 300 MB": lambda: endless(b"$300000000\r\n", b"x" * 262_144),
    "a map": lambda: b"%1\r\n+a\r\n+b\r\n",
    "a push": lambda: b">2\r\n+invalidate\r\n*1\r\n+a\r\n",
    "pushes without end": lambda: endless(b"", b">1\r\n+x\r\n" * 32_768),
    "a double": lambda: b",1.5\r\n",
    "a boolean": lambda: b"#t\r\n",
    "two answers": lambda: b"+OK\r\n" * 100,
}


def serves_again(store, node):
    node.instead = {}
    until(lambda: store.one(PUT, "after", 100).outcome == DONE, "no put after it")
    until(lambda: store.one(GET, "after", 100).outcome == DONE, "no get after it")


def wrong_answers_end_a_request_at_once():
    """To each command: the request has failed, long before its deadline, in little memory."""
    patient = {"timeout": 20_000, "connect_timeout": 20_000, "breaker_failures": 1_000}
    kinds = {"GET": GET, "SET": PUT, "GETRANGE": FIND, "UNLINK": REMOVE}
    with Node() as node, Store(nodes=node.nodes(), known=0, **patient) as store:
        serves_again(store, node)
        before = memory()
        for command, kind in kinds.items():
            for what, answer in WRONG.items():
                key = f"{command} {what}"
                store.one(PUT, key, 100)
                node.instead = {command: lambda _, answer=answer: answer()}
                result = store.one(kind, key, 100 if kind in (GET, PUT) else 0)
                if what != "two answers":  # the first one may be right
                    expect(result.outcome == FAILED, f"{key}: {result}")
                    expect(result.code == errno.EPROTO, f"{key}: {os.strerror(result.code)}")
                expect(result.seconds < 10, f"{key}: {result}")
                serves_again(store, node)
        taken = memory() - before
        print(f"{store.answers} answers, slowest {store.slowest:.2f} s, {taken >> 20} MiB more; "
              f"{store.place()}")
        expect(taken < MEMORY, f"{taken >> 20} MiB for a reply")
        expect(store.wrong == 0, "wrong values")


def wrong_answers_end_an_open_at_once():
    with Node() as node:
        before = memory()
        for command in ("PING", "CLUSTER", "AUTH"):
            options = {"password": SECRET} if command == "AUTH" else {}
            for what, answer in WRONG.items():
                if command == "CLUSTER" and what.startswith("a text"):
                    continue
                node.instead = {command: lambda _, answer=answer: answer()}
                if what == "two answers" and command != "CLUSTER":
                    continue
                words, seconds = refusal(nodes=node.nodes(), timeout=20_000,
                                         connect_timeout=20_000, **options)
                expect("reply" in words or "node" in words or "rotocol" in words, words)
                expect("memory" not in words, f"{command}, {what}: {words}")
                expect(seconds < 10, f"{command}, {what}: {seconds} s")
        taken = memory() - before
        expect(taken < MEMORY, f"{taken >> 20} MiB for a reply")


def slots(count, node):
    return b"*%d\r\n" % count + b"".join(
        b"*3\r\n:%d\r\n:%d\r\n" % (i % 16_384, i % 16_384) + node(i) for i in range(count))


def large_topologies_are_read_or_refused():
    """A cluster whose every slot is a range of its own is read; more is no cluster."""
    with Node() as node:
        def one(_):
            metadata = b"*4\r\n+hostname\r\n+a.example\r\n+zone\r\n+b\r\n"
            return b"*4\r\n$9\r\n127.0.0.1\r\n:%d\r\n$2\r\nid\r\n" % node.port + metadata
        node.instead = {"CLUSTER": lambda _: slots(16_384, one)}
        with Store(nodes=node.nodes(), timeout=20_000) as store:
            expect(store.one(PUT, 1, 100).outcome == DONE, "a put")
            expect(store.place().startswith("cluster of 1 "), store.place())
        for count in (16_385, 300_000):
            node.instead = {"CLUSTER": lambda _, count=count: slots(count, one)}
            words, seconds = refusal(nodes=node.nodes(), timeout=20_000)
            expect("slots" in words or "elements" in words, words)
            expect(seconds < 15, f"{seconds} s")

        def other(i):
            return b"*2\r\n$%d\r\n10.0.%d.%d\r\n:1\r\n" % (
                len(f"10.0.{i >> 8 & 255}.{i & 255}"), i >> 8 & 255, i & 255)
        node.instead = {"CLUSTER": lambda _: slots(16_384, other)}
        began = time.monotonic()
        with Store(nodes=node.nodes(), timeout=20_000) as store:
            expect(store.place().startswith("cluster of 16384 "), store.place())
        expect(time.monotonic() - began < 15, "many nodes took long")
        node.instead = {"CLUSTER": lambda _: slots(3, lambda _: b"*2\r\n+a.example\r\n:7000\r\n")}
        words, _ = refusal(nodes=node.nodes())
        expect("names of its nodes and not their addresses" in words, words)
        node.instead = {"CLUSTER": lambda _: b"*0\r\n"}
        words, _ = refusal(nodes=node.nodes())
        expect("knows no slots" in words, words)


def only_ok_is_stored():
    with Node() as node, Store(nodes=node.nodes(), timeout=20_000, known=0) as store:
        for answer in (b"+PONG\r\n", b"+QUEUED\r\n", b"+\r\n", b"+ok\r\n", b":1\r\n",
                       b"$2\r\nOK\r\n"):
            node.instead = {"SET": lambda _, answer=answer: answer}
            result = store.one(PUT, 1, 100)
            expect(result.outcome == FAILED, f"{answer}: {result}")
        expect(store.stats()["puts"] == 0, store.stats())
        serves_again(store, node)


def secrets_are_in_no_message():
    """A node that repeats what it was sent, options in the wrong place, and control characters."""
    name = "an-engine-of-ours"

    def repeats(words):
        texts = b" ".join(b"'" + word[:128] + b"'" for word in words[1:])
        return b"-ERR unknown command 'AUTH', with args beginning with: " + texts + b"\r\n"
    answers = {
        "as a node": repeats,
        "bare": lambda words: b"-" + b" ".join(words) + b"\r\n",
        "cut": lambda words: b"-ERR " + words[-1][:12] + b" " + words[-1][4:] + b"\r\n",
        "long": lambda words: b"-ERR " + words[-1] * 2_000 + b"\r\n",
        "escapes": lambda _: b"-ERR \x1b[31mred\x07 \xff\xfe\x00 end\r\n",
    }

    def expect_clean(words):
        whole = words.lower()
        for text in (SECRET, name):
            for at in range(len(text) - 7):
                expect(text[at:at + 8] not in whole, f"{text[at:at + 8]!r} in {words!r}")
        expect(words.isprintable() and words.isascii(), f"{words!r}")
        expect(len(words) < 400, f"{len(words)} characters: {words}")

    with Node() as node:
        own = {"nodes": node.nodes(), "username": name, "password": SECRET}
        for command in ("AUTH", "CLUSTER"):
            for answer in answers.values():
                last = [b"AUTH", name.encode(), SECRET.encode()]
                node.instead = {"AUTH": lambda _: b"+OK\r\n",
                                command: lambda _, answer=answer: answer(last)}
                expect_clean(refusal(**own)[0])
        expect("\\x1b[31mred\\x07 \\xff\\xfe\\x00 end" in refusal(**own)[0], refusal(**own)[0])
        node.instead = {"AUTH": lambda _: endless(b"", b"-ERR " + SECRET.encode() + b"\r\n")}
        expect_clean(refusal(**own)[0])
    here = "127.0.0.1:1"
    for nodes in (f"redis://user:{SECRET}@{here}", f"user:{SECRET}@{here}", f"{SECRET}@{here}",
                  f"rediss://{here}", f"{here},user:{SECRET}@{here}", f"{SECRET}"):
        words, _ = refusal(nodes=nodes)
        expect_clean(words)
        expect("'nodes'" in words and "host:port" in words, words)
    for option in ("timeout", "connect_timeout", "max_value", "threads", "breaker_failures",
                   "breaker_cooldown", "known", "scan", "ttl", "tls", "password_file"):
        words, _ = refusal(nodes=here, **{option: SECRET})
        expect_clean(words)
        expect(f"'{option}'" in words, words)
    expect_clean(refusal(nodes=here, prefix=f"{{{SECRET}}}")[0])
    for option in ("tls_ca", "tls_cert", "tls_key"):
        pair = {"tls_cert": SECRET, "tls_key": SECRET} if option != "tls_ca" else {option: SECRET}
        expect_clean(refusal(nodes=here, tls="yes", **pair)[0])


def a_password_file_is_read_again():
    with tempfile.NamedTemporaryFile("w") as file, Node(password="first") as node:
        def give(text):
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
        give("first\n")
        with Store(nodes=node.nodes(), password_file=file.name, breaker_cooldown=50) as store:
            expect(store.one(PUT, 1, 100).outcome == DONE, "a put")
            node.password = "second"
            node.hang_up()
            until(lambda: store.one(GET, 1, 100).code == errno.EACCES, "the old one is refused")
            give("second\n")
            until(lambda: store.one(GET, 1, 100).outcome == DONE, "the new one is not read")
            # Half way through a rotation: the one of open() is tried.
            node.password = "first"
            give("")
            node.hang_up()
            until(lambda: store.one(GET, 1, 100).outcome == DONE, "the first one is not tried")


def repeated_nodes_are_tried_once():
    with Node() as node:
        dead = node.port
    for count in (1, 10):
        words, seconds = refusal(nodes=",".join([f"127.0.0.1:{dead}"] * count),
                                 breaker_cooldown=15_000)
        expect("refused" in words, words)
        expect(seconds < 3, f"{count}: {seconds} s")
    with Node() as node:
        nodes = ",".join([f"127.0.0.1:{dead}"] * 10 + [node.nodes()])
        with Store(nodes=nodes, breaker_cooldown=15_000) as store:
            expect(store.one(PUT, 1, 100).outcome == DONE, "a put")


def redirects_in_circles_go_on_at_a_pace():
    """Two nodes name each other: that may end, so requests go on until their deadlines."""
    commands = ["SET", "GET", "GETRANGE", "UNLINK"]

    def names(node, word, other=0):
        return lambda words: b"-%s %d 127.0.0.1:%d\r\n" % (
            word, (binascii.crc_hqx(words[1], 0) + other) % 16_384, node.port)

    with Node() as one, Node() as two:
        for node in (one, two):
            node.instead = {"CLUSTER": lambda _: slots(
                16_384, lambda _: b"*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % one.port)}
        two.values = one.values
        with Store(nodes=one.nodes(), timeout=1_500, known=0) as store:
            for word in (b"MOVED", b"ASK"):
                key = word.decode()
                expect(store.one(PUT, key, 100).outcome == DONE, "a put")
                one.instead["GET"] = names(two, word, 1)
                result = store.one(GET, key, 100)
                expect(result.code == errno.EPROTO, f"of another slot: {result}")
                before = number_of(store, "redirects")
                for command in commands:
                    one.instead[command], two.instead[command] = names(two, word), names(one, word)
                # One that a slow node keeps at its deadline has waited for that node.
                for _ in range(5):
                    result = store.one(GET, key, 100)
                    if result.code == errno.ELOOP:
                        break
                    before = number_of(store, "redirects")
                count = number_of(store, "redirects") - before
                print(f"{key}: {count} redirects; {result}")
                expect(result.outcome == FAILED and result.code == errno.ELOOP, f"{result}")
                expect(1.4 < result.seconds < 15, f"{result}")
                expect(16 < count < 400, f"{count} redirects")
                store.submit(GET, key, 100)
                time.sleep(0.3)
                expect(store.reap() == 0, f"{store.results}")
                for command in commands:    # they agree: the second one has it
                    two.instead.pop(command)
                answers = store.drain()
                expect([result.outcome for result in answers] == [DONE], f"{answers}")
                for command in commands:
                    one.instead.pop(command)
        expect(store.wrong == 0, "wrong values")


def page(cursor, names):
    return b"*2\r\n" + bulk(cursor) + b"*%d\r\n" % len(names) + b"".join(map(bulk, names))


def scans_end():
    """A cursor that never comes to 0 is followed at a pace, and not for ever where it stands."""
    names = [name_of(f"seen {i}").encode() for i in range(500)]
    with Node() as node:
        turn = iter(range(1, 10_000_000))
        node.instead = {"SCAN": lambda _: page(b"%d" % next(turn), names)}
        with Store(nodes=node.nodes(), scan=1, timeout=20_000, known=10_000) as store:
            began, count = time.monotonic(), node.counts["SCAN"]
            time.sleep(2)
            rate = (node.counts["SCAN"] - count) / (time.monotonic() - began)
            print(f"{rate:.0f} pages a second")
            expect(rate <= 1_100, f"{rate} pages a second")
            expect(store.stats()["records"] == 500, store.stats())
            expect(store.one(PUT, 1, 100).outcome == DONE, "a put meanwhile")
        for what, answer in {
                "the same cursor": page(b"7", []), "a long cursor": page(b"9" * 1_000, []),
                "no page": b"*0\r\n", "one element": b"*1\r\n:0\r\n",
                "a page of pages": b"*2\r\n*0\r\n$1\r\na\r\n",
                "65,536 names": b"*2\r\n$1\r\n5\r\n*65536\r\n"}.items():
            node.instead, node.counts = {"SCAN": lambda _, answer=answer: answer}, {}
            began = time.monotonic()
            with Store(nodes=node.nodes(), scan=1, timeout=20_000) as store:
                took = time.monotonic() - began
                expect(took < 9, f"{what}: {took} s to open")
                time.sleep(0.5)
                expect(node.counts["SCAN"] <= 3, f"{what}: {node.counts}")
                serves_again(store, node)
        node.instead = {"SCAN": lambda _: page(b"0", names + [b"quire:", b"quire:zz", b"\0" * 70])}
        with Store(nodes=node.nodes(), scan=60, timeout=20_000) as store:
            expect(store.stats()["recovered"] == 500, store.stats())


LIST = [wrong_answers_end_a_request_at_once, wrong_answers_end_an_open_at_once,
        large_topologies_are_read_or_refused, only_ok_is_stored, secrets_are_in_no_message,
        a_password_file_is_read_again, repeated_nodes_are_tried_once,
        redirects_in_circles_go_on_at_a_pace, scans_end]

if __name__ == "__main__":
    {case.__name__: case for case in LIST}[sys.argv[1]]()
