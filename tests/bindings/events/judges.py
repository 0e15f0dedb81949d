# SPDX-License-Identifier: Apache-2.0
"""judges: routers, which get the messages of a publisher and say what a prompt would find. Those of
other projects:

  Vllm        vLLM's own event structs (module vllm.distributed.kv_events), by which it encodes its
              events, too: a message must decode, and encoded again have the same fields in the
              same order
  Dynamo      Dynamo's RadixTree (the package ai-dynamo-runtime), fed with what Vllm decoded
  DynamoWire  Dynamo's decoder, its tree and its indexes of lower tiers (the crate
              dynamo-kv-router), which take the bytes
  Llmd        llm-d's decoder and index (the Go module of llm-d-kv-cache), which take the bytes

Each needs what is not installed here by default; missing() says what, for the reason of a skip.
Plain is the least that a router does, and runs everywhere.
"""

import base64
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent


def has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def plain(content):
    """The values of a message, with the fields of maps in their order. The bytes may differ:
    msgspec does not always choose the shortest head of a map."""
    import msgpack
    return msgpack.unpackb(content, object_pairs_hook=list)


def vllm_events():
    """The path of vLLM's event structs; None if there are none."""
    folder = os.environ.get("QUIRE_VLLM")
    if folder is None and has("vllm"):
        folder = pathlib.Path(importlib.util.find_spec("vllm").origin).parents[1]
    path = pathlib.Path(folder or "/nonexistent") / "vllm" / "distributed" / "kv_events.py"
    return path if path.exists() else None


class Vllm:
    """Decodes messages as vLLM's own subscribers do. The rest of vLLM is not imported: what the
    file imports from it, for its publisher, is stubbed."""

    STUBS = {"vllm": {}, "vllm.config": {}, "vllm.config.kv_events": {"KVEventsConfig": object},
             "vllm.logger": {"init_logger": lambda name: None}, "vllm.utils": {},
             "vllm.utils.network_utils": {"get_ip": None, "get_tcp_uri": None,
                                          "is_valid_ipv6_address": None, "split_zmq_path": None},
             "vllm.v1": {}, "vllm.v1.core": {},
             "vllm.v1.core.kv_cache_utils": {"ExternalBlockHash": bytes | int}}

    def __init__(self):
        import msgspec
        kept = {name: sys.modules.get(name) for name in self.STUBS}
        for name, members in self.STUBS.items():
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(members)
        try:
            spec = importlib.util.spec_from_file_location("vllm_kv_events", vllm_events())
            self.structs = importlib.util.module_from_spec(spec)
            sys.modules["vllm_kv_events"] = self.structs
            spec.loader.exec_module(self.structs)
        finally:
            for name, module in kept.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module
        self.decoder = msgspec.msgpack.Decoder(type=self.structs.KVEventBatch)
        self.encoder = msgspec.msgpack.Encoder()

    @staticmethod
    def missing():
        if not has("msgspec"):
            return "msgspec is not installed"
        return None if vllm_events() else (
            "vLLM's event structs are not here: name vLLM's source by QUIRE_VLLM")

    def decode(self, content):
        batch = self.decoder.decode(content)
        if plain(self.encoder.encode(batch)) != plain(content):
            raise AssertionError(f"vLLM says this in another way: {plain(content)}")
        return batch


class Plain:
    """A tree of blocks, in which a block follows from its parent by its tokens and name."""

    def __init__(self, block_tokens):
        self.block_tokens = block_tokens
        self.blocks = {}  # by (parent, name, tokens)
        self.places = {}  # the keys of self.blocks, by block
        self.media = {}   # where a block is

    @staticmethod
    def missing():
        return None

    def message(self, topic, number, content):
        import msgpack
        for event in msgpack.unpackb(content)[1]:
            kind, *values = event.values() if isinstance(event, dict) else event
            if kind == "AllBlocksCleared":
                self.blocks, self.places, self.media = {}, {}, {}
            elif kind == "BlockRemoved":
                for block in values[0]:
                    self.media[block].remove(values[1])
                    if not self.media[block]:
                        del self.media[block], self.blocks[self.places.pop(block)]
            else:
                hashes, parent, tokens, size, _, medium, name = values[:7]
                if parent is not None and parent not in self.places:
                    raise AssertionError(f"the parent of {event} is not known")
                for i, block in enumerate(hashes):
                    place = parent, name, tuple(tokens[i * size:(i + 1) * size])
                    media = self.media.setdefault(block, set())
                    if (medium in media or self.blocks.get(place, block) != block
                            or self.places.get(block, place) != place):
                        raise AssertionError(f"{event} is told twice, or in two ways")
                    self.blocks[place], self.places[block] = block, place
                    media.add(medium)
                    parent = block

    def find(self, tokens, name=None):
        block, found = None, 0
        for at in range(0, len(tokens), self.block_tokens):
            block = self.blocks.get((block, name, tuple(tokens[at:at + self.block_tokens])))
            if block is None:
                break
            found += 1
        return found

    def close(self):
        pass


class Dynamo:
    WORKER = 7

    def __init__(self, block_tokens):
        from dynamo._core import RadixTree, compute_block_hash_for_seq
        self.hashes_of = compute_block_hash_for_seq
        self.block_tokens = block_tokens
        self.vllm = Vllm()
        self.tree = RadixTree()
        self.applied = 0

    @staticmethod
    def missing():
        return Vllm.missing() or (None if has("dynamo._core") else
                                  "Dynamo's RadixTree is not installed (ai-dynamo-runtime)")

    def message(self, topic, number, content):
        batch = self.vllm.decode(content)
        for event in batch.events:
            self.applied += 1
            self.tree.apply_event(self.WORKER, json.dumps(
                {"event_id": self.applied, "dp_rank": batch.data_parallel_rank,
                 "data": self.data(event)}).encode())

    def data(self, event):
        kind = type(event).__name__
        if kind == "AllBlocksCleared":
            return "cleared"
        if kind == "BlockRemoved":
            return {"removed": {"block_hashes": event.block_hashes}}
        if len(event.token_ids) != event.block_size * len(event.block_hashes):
            raise AssertionError(f"{event} has too many or too few tokens")
        looked_up = self.hashes_of(event.token_ids, self.block_tokens, lora_name=event.lora_name)
        return {"stored": {
            "parent_hash": event.parent_block_hash,
            "blocks": [{"block_hash": block, "tokens_hash": tokens, "mm_extra_info": None}
                       for block, tokens in zip(event.block_hashes, looked_up)]}}

    def find(self, tokens, name=None):
        hashes = self.hashes_of(tokens, self.block_tokens, lora_name=name)
        scores = self.tree.find_matches(hashes).scores
        return max(scores.values(), default=0)

    def close(self):
        pass


class Process:
    """A judge in a program of another language, which answers a question by a line."""

    def start(self, program, block_tokens):
        self.process = subprocess.Popen([program, str(block_tokens)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def say(self, **line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def ask(self, **question):
        self.say(**question)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the judge ended with {self.process.wait()}")
        return int(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        if self.process.returncode != 0:
            raise RuntimeError(f"the judge ended with {self.process.returncode}")


class DynamoWire(Process):
    """Built by cargo build --release --locked in the folder dynamo, with --target-dir elsewhere."""

    def __init__(self, block_tokens):
        self.start(os.environ["QUIRE_DYNAMO_WIRE"], block_tokens)

    @staticmethod
    def missing():
        return None if os.environ.get("QUIRE_DYNAMO_WIRE") else (
            "Dynamo's decoder is not built: name the program dynamo-judge by QUIRE_DYNAMO_WIRE")

    def message(self, topic, number, content):
        self.say(content=list(content))

    def find(self, tokens, name=None):
        return self.ask(tokens=tokens, name=name)


class Llmd(Process):
    MODEL = "model"

    def __init__(self, block_tokens, folder):
        """folder  for the program, which is built inside the checkout, without changing it."""
        checkout = pathlib.Path(os.environ["QUIRE_LLMD"]).resolve()
        overlay = pathlib.Path(folder) / "overlay.json"
        overlay.write_text(json.dumps({"Replace": {
            str(checkout / "quire_judge" / "main.go"): str(HERE / "llmd" / "main.go")}}))
        program = pathlib.Path(folder) / "llmd"
        if not program.exists():
            subprocess.run(["go", "build", "-mod=mod", "-p", "1", "-overlay", overlay, "-o",
                            program, "./quire_judge"], cwd=checkout, check=True)
        self.start(program, block_tokens)

    @staticmethod
    def missing():
        if not os.environ.get("QUIRE_LLMD"):
            return "llm-d's source is not here: name a checkout of llm-d-kv-cache by QUIRE_LLMD"
        return None if shutil.which("go") else "go is not installed"

    def message(self, topic, number, content):
        self.say(topic=topic, number=number, content=base64.b64encode(content).decode())

    def find(self, tokens, name=None):
        return self.ask(tokens=tokens, model=name or self.MODEL)
