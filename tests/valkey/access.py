# SPDX-License-Identifier: Apache-2.0
"""access: options, passwords, users and certificates: refused in words, and no word is a secret.

    access.py CASE
"""

import errno
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile

import cluster as clusters
import client
from client import DONE, FAILED, FIND, GET, PUT, REMOVE, Refusal, Store, name_of, outcomes
from cluster import Cluster
from faults import PATIENT, expect

SECRET = "correct-horse-battery"


def refused(word, **options):
    """Opening fails, the message has the word, and never the secret."""
    try:
        Store(**options).close()
    except Refusal as refusal:
        message = str(refusal)
        expect(word in message, f"{options}: no {word!r} in {message!r}")
        expect(SECRET not in message, f"{options}: {message!r}")
        return
    expect(False, f"{options} were taken")


def wrong_options_are_named():
    node = {"nodes": "127.0.0.1:1"}
    refused("nodes")
    for nodes in ("", "a", "a:", "a:0", "a:65536", ":1", "a:1,", "a:x"):
        refused("nodes", nodes=nodes)
    refused("colour", colour="blue", **node)
    for name, values in {
            "timeout": ["0", "-1", "x", "3600001", ""], "connect_timeout": ["0", "1s"],
            "max_value": ["0", "257MiB", "x", "-1"], "threads": ["0", "17", "two"],
            "breaker_failures": ["0", "x"], "breaker_cooldown": ["0", "x"], "known": ["x", "-1"],
            "scan": ["x", "-1"], "ttl": ["x", "1.5"], "tls": ["1", "", "true"],
            "prefix": ["a{b}", "a*", "a b", "x" * 201], "username": [""], "tls_ca": [""],
            "password": [""], "password_file": ["", "/no/such/file", "/dev/null"]}.items():
        for value in values:
            refused(f"'{name}'", **{name: value}, **node)
    refused("password_file", password=SECRET, password_file=__file__, **node)
    refused("username", username="me", **node)
    refused("tls", tls_ca="/no/file", **node)
    refused("tls_key", tls="yes", tls_cert="/no/file", **node)
    refused("/no/file", tls="yes", tls_ca="/no/file", **node)
    refused("refused", password=SECRET, **node)
    refused("not found", nodes="no-such-host.invalid:80")
    for name in ("nodes", "password_file", "tls_ca", "breaker_cooldown", "scan"):
        expect(name in client.HELP, f"the help does not name {name}")


def passwords_and_users_are_needed():
    settings = {"requirepass": SECRET, "masterauth": SECRET}
    with Cluster(settings, password=SECRET, replicas=False) as cluster:
        node = {"nodes": cluster.nodes(), **PATIENT}
        refused("NOAUTH", **node)
        refused("WRONGPASS", password="wrong", **node)
        refused("WRONGPASS", username="me", password=SECRET, **node)
        with tempfile.NamedTemporaryFile("w") as file, Store(
                password=SECRET, **node) as plain:
            file.write(f"{SECRET}\nnot this\n")
            file.flush()
            with Store(password_file=file.name, **node) as store:
                expect(store.one(PUT, 1, 100).outcome == DONE, "a put")
                expect(SECRET not in store.place(), store.place())
            expect(plain.one(GET, 1, 100).outcome == DONE, "a get")
        users(cluster, node)


def users(cluster, node):
    # As docs/tiers.md says.
    least = "+ping +cluster|slots +get +getrange +set +unlink +scan +asking"
    rules = {"least": least.split(), "reader": ["+@read", "+cluster|slots", "+ping"],
             "stranger": ["+ping"], "elsewhere": ["+@all", "resetkeys", "~other:*"]}
    for server in cluster.servers:
        for name, rule in rules.items():
            server.ask("ACL", "SETUSER", name, "on", f">{SECRET}", "~quire:*", *rule)
    refused("NOPERM", username="stranger", password=SECRET, **node)
    with Store(username="reader", password=SECRET, scan=60, **node) as store:
        expect(store.one(GET, 1, 100).outcome == DONE, "a reader may read")
        put = store.one(PUT, 2, 100)
        expect(put.outcome == FAILED and put.code == errno.EACCES, put)
        expect(store.find(1) == "PRESENT", "and scan")
    with Store(username="least", password=SECRET, scan=60, **node) as store:
        for kind in (PUT, PUT, GET, FIND, REMOVE):
            size_bytes = 100 if kind in (PUT, GET) else 0
            expect(store.one(kind, 3, size_bytes).outcome == DONE, f"request {kind}")
        expect(store.stats()["recovered"] == 1, "and scan")
    with Store(username="elsewhere", password=SECRET, **node) as store:
        for kind in (PUT, GET, FIND):
            expect(store.one(kind, 1, 100 if kind != FIND else 0).code == errno.EACCES, kind)
    with Store(username="elsewhere", password=SECRET, prefix="other:", **node) as store:
        expect(store.one(PUT, 1, 100).outcome == DONE, "its own keys")
    expect(cluster.owner(name_of(1, "other:")).ask("EXISTS", name_of(1, "other:")) == 1, "prefix")


def certificates(folder):
    """A CA, a certificate of it for 127.0.0.1, and a stranger's CA."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, cwd=folder, capture_output=True)
    for name in ("ca", "stranger"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days",
                "2")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            "node.key", "-out", "node.csr", "-subj", "/CN=node")
    pathlib.Path(folder, "names").write_text("subjectAltName=IP:127.0.0.1,DNS:cache.example\n")
    openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "node.pem", "-days", "2", "-extfile", "names")


def certificates_are_checked_both_ways():
    if shutil.which("openssl") is None:
        clusters.skip("openssl is not installed")
    clusters.skip_without_tls()
    with tempfile.TemporaryDirectory() as folder:
        certificates(folder)
        ca, cert, key = (str(pathlib.Path(folder, name)) for name in
                         ("ca.pem", "node.pem", "node.key"))
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
        settings = {"tls-ca-cert-file": ca, "tls-cert-file": cert, "tls-key-file": key,
                    "tls-cluster": "yes", "tls-replication": "yes"}
        with Cluster(settings, tls=context, replicas=False) as cluster:
            node = {"nodes": cluster.nodes()}
            own = {"tls": "yes", "tls_ca": ca, "tls_cert": cert, "tls_key": key, **node}
            for name in ({}, {"tls_name": "cache.example"}):
                with Store(**own, **name, **PATIENT) as store:
                    keys = [f"{name} {i}" for i in range(60)]
                    for kind in (PUT, GET):
                        done = outcomes(store.run(kind, keys, 300_000))
                        expect(done == {"DONE": 60}, f"{kind}: {done}")
                    expect(store.wrong == 0, "wrong values")
            brief = {"timeout": 5_000, "connect_timeout": 5_000}
            refused("certificate", **{**own, **brief, "tls_ca": f"{folder}/stranger.pem"})
            refused("certificate", **own, **brief, tls_name="other.example")
            refused("", **node, **brief)
            refused("", tls="yes", tls_ca=ca, **node, **brief)
            refused("tls_key", **{**own, "tls_key": ca})


LIST = [wrong_options_are_named, passwords_and_users_are_needed,
        certificates_are_checked_both_ways]

if __name__ == "__main__":
    clusters.skip_without_server()
    {case.__name__: case for case in LIST}[sys.argv[1]]()
