# SPDX-License-Identifier: Apache-2.0
"""hostile: a node of this test answers with what no node should; requests end, in words.

    hostile.py CASE

The node is a server that is no cluster and keeps values in memory. It needs no program, and a
case says what it answers to one command instead.
"""

import errno
import socket
import sys
import tempfile
import threading
import time

from client import DONE, FAILED, GET, PUT, Refusal, Store
from cluster import until
from faults import expect

SINGLE = b"-ERR This instance has cluster support disabled\r\n"
LIFE = 240  # seconds, after which a node serves no more


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


def refusal(**options):
    """The words with which opening fails, and after how many seconds."""
    began = time.monotonic()
    try:
        Store(**options).close()
    except Refusal as refused:
        return str(refused), time.monotonic() - began
    expect(False, f"{options} were taken")
    return "", 0


def only_ok_is_stored():
    with Node() as node, Store(nodes=node.nodes(), timeout=20_000, known=0) as store:
        for answer in (b"+PONG\r\n", b"+QUEUED\r\n", b"+\r\n", b"+ok\r\n", b":1\r\n",
                       b"$2\r\nOK\r\n"):
            node.instead = {"SET": lambda _, answer=answer: answer}
            result = store.one(PUT, 1, 100)
            expect(result.outcome == FAILED, f"{answer}: {result}")
        expect(store.stats()["puts"] == 0, store.stats())
        node.instead = {}
        expect(store.one(PUT, 1, 100).outcome == DONE, "a put after it")


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


LIST = [only_ok_is_stored, a_password_file_is_read_again, repeated_nodes_are_tried_once]

if __name__ == "__main__":
    {case.__name__: case for case in LIST}[sys.argv[1]]()
