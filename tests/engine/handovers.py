# SPDX-License-Identifier: Apache-2.0
"""handovers: prompts that one cache computes and another goes on from, and what is lost on the way.

    handovers.py ENGINE WEIGHTS_FOLDER CASE
"""

import pathlib
import random
import socket
import struct
import subprocess
import tempfile
import threading
import time

import serving
from serving import expect, refused

BEGINNING = "Once upon a time, there was a little girl"
LOST = b"the hand-over was lost"


def story(engine, *options, prompt=BEGINNING):
    """The story of one process, as the bytes of its stdout."""
    result = engine.run(*engine.trained(), "--prompt", prompt, "--steps", "256", *options)
    expect(result.returncode == 0, f"{options}: {result.stderr.decode()}")
    return result


def apart(engine, first, second, *options):
    """The golden story, its beginning computed on another device."""
    whole = story(engine, *options).stdout
    expect(whole.strip() and BEGINNING.encode() + whole == engine.golden(),
           f"the beginning leads to another story: {whole}")
    for prompt in (BEGINNING, ""):
        text = story(engine, "--prefill-on", first, "--decode-on", second, *options, prompt=prompt)
        golden = whole if prompt else engine.golden()
        expect(LOST not in text.stderr, text.stderr)
        expect(text.stdout == golden, f"{first} and {second} tell another story: {text.stdout}")


class Pair:
    """Two engines: the one that decodes listens, the other computes the prompt. what(stream) makes
    of the bytes what comes through, and None where the connection ends."""

    def __init__(self, engine, *options):
        self.engine, self.options = engine, options
        self.folder = tempfile.TemporaryDirectory()
        self.text = ["--prompt", BEGINNING, *engine.trained(), "--hand-over-seconds", "20"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def path(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def start(self, *options):
        return subprocess.Popen([self.engine.program, *self.text, *self.options, *options],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def decode(self, where):
        return self.start("--steps", "256", "--hand-over-listen", where)

    def prefill(self, where):
        return self.start("--chunk", "4", "--hand-over-to", where)

    def told(self, decoder):
        out, err = decoder.communicate(timeout=60)
        expect(decoder.returncode == 0, err)
        return out, err

    def capture(self):
        """The bytes of a hand-over."""
        door = listening(self.path("capture"))
        sender = self.prefill(self.path("capture"))
        stream = b"".join(iter_bytes(accepted(door)))
        _, err = sender.communicate(timeout=60)
        expect(sender.returncode == 0, err)
        return stream

    def deliver(self, stream):
        """What a decoding engine tells that was given these bytes, and then nothing more."""
        where = self.path("deliver")
        decoder = self.decode(where)
        link = connected(where)
        try:
            link.sendall(stream)
        except BrokenPipeError:
            pass  # it was refused before the last byte
        link.close()
        return self.told(decoder)


def listening(where):
    door = socket.socket(socket.AF_UNIX)
    door.settimeout(30)
    door.bind(where)
    door.listen(1)
    return door


def accepted(door):
    link, _ = door.accept()
    door.close()
    link.settimeout(30)
    return link


def connected(where):
    for _ in range(1500):
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(where)
            return link
        except OSError:
            link.close()
            time.sleep(0.02)
    raise AssertionError(f"no one listens on {where}")


def iter_bytes(link):
    with link:
        while piece := link.recv(65536):
            yield piece


def ends_of(stream):
    """Where the head, each part and the tail of a hand-over end."""
    ends = [struct.unpack_from("<Q", stream, 16)[0]]
    while len(stream) - ends[-1] > 64:
        ends.append(ends[-1] + struct.unpack_from("<Q", stream, ends[-1] + 16)[0])
    expect(ends[-1] == len(stream) - 64 and stream[ends[-1]:][:8] == b"QUIREEND", ends[-3:])
    return [*ends, len(stream)]


def golden_story_by_one_process(engine):
    apart(engine, "cpu", "cpu")
    apart(engine, "cpu", "cpu", "--kv-dtype", "f16", "--chunk", "5")


def golden_story_by_a_prefill_and_a_decode_process(engine):
    whole = story(engine).stdout
    expect(BEGINNING.encode() + whole == engine.golden(), "the beginning leads elsewhere")
    with Pair(engine) as pair:
        for where in (pair.path("socket"), f"127.0.0.1:{free_port()}"):
            decoder = pair.decode(where)
            sender = pair.prefill(where)
            _, err = sender.communicate(timeout=60)
            expect(sender.returncode == 0 and b"handed over" in err, err)
            text, err = pair.told(decoder)
            expect(text == whole and LOST not in err, f"{where}: {text} {err}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def a_lost_hand_over_changes_no_text(engine):
    whole = story(engine).stdout
    runs = 0
    with Pair(engine) as pair:
        stream = pair.capture()
        text, err = pair.deliver(stream)
        expect(text == whole and LOST not in err, "the captured one is whole")
        ends = ends_of(stream)
        expect(len(ends) > 5, f"{len(ends)} parts: one per layer and block")
        for end in [0, *ends[:-1], *(end - 1 for end in ends)]:
            text, err = pair.deliver(stream[:end])
            expect(text == whole and LOST in err, f"cut at {end}: {text} {err}")
            runs += 1
        for begin, end in zip([0, *ends], ends):
            at = (begin + end) // 2
            flipped = stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1:]
            text, err = pair.deliver(flipped)
            expect(text == whole and LOST in err, f"flipped at {at}: {text} {err}")
            runs += 1
    print(f"{runs} hand-overs of {len(ends) - 2} parts were lost on the decode side")


def a_decode_engine_that_goes_is_no_harm_to_the_other(engine):
    """Cuts the stream on the side of the prefill engine, after each part."""
    with Pair(engine) as pair:
        ends = ends_of(pair.capture())
        for i, end in enumerate(ends[:-1]):
            where = pair.path(f"cut{i}")
            door = listening(where)
            sender = pair.prefill(where)
            link, left = accepted(door), end
            while left:
                left -= len(link.recv(left))
            link.close()
            _, err = sender.communicate(timeout=60)
            # As much as fits into the socket's buffer was sent before the end was noticed.
            expect(sender.returncode in (0, 1), f"{sender.returncode} {err}")
            expect(sender.returncode == 0 or b"quire-engine: the other engine" in err, err)
    print(f"{len(ends) - 1} hand-overs were lost on the prefill side")


def kills_of_either_process_change_no_text(engine):
    whole = story(engine).stdout
    random_time = random.Random(7)
    lost = 0
    with Pair(engine) as pair:
        for i in range(20):
            where = pair.path(f"kill{i}")
            decoder, sender = pair.decode(where), pair.prefill(where)
            time.sleep(random_time.uniform(0, 0.12))
            if i % 4 == 3:
                decoder.kill()
                decoder.communicate()
                _, err = sender.communicate(timeout=60)
                expect(sender.returncode in (0, 1), err)
                continue
            sender.kill()
            sender.communicate()
            threading.Thread(target=give_up, args=(where,), daemon=True).start()
            text, err = pair.told(decoder)
            lost += LOST in err
            expect(text == whole, f"kill {i}: {text} {err}")
    print(f"20 kills, {lost} of 15 hand-overs were lost by those of the prefill process")


def give_up(where):
    """A decoding engine that no one has connected to need not wait for its timeout."""
    try:
        connected(where).close()
    except (AssertionError, OSError):
        pass


def hand_over_of_another_prompt_is_refused(engine):
    """Also a shorter one, and one that only begins alike: the text is that of the own prompt."""
    own = story(engine).stdout
    for other in ("Once upon a time, there was a little boy", "Once", BEGINNING + " and her dog"):
        with Pair(engine) as pair:
            decoder = pair.decode(pair.path("door"))
            sender = engine.run(*engine.trained(), "--prompt", other, "--hand-over-to",
                                pair.path("door"), "--hand-over-seconds", "20")
            out, err = pair.told(decoder)
            expect(out == own and LOST in err and b"foreign hand-over" in err, err)
            expect(sender.returncode in (0, 1), sender.stderr)


def mistakes_about_hand_overs_are_explained(engine):
    refused(engine, 2, "--prompt", "--prefill-on", "cpu")
    refused(engine, 2, "--prefill-on", "--prompt", "a", "--prefill-on", "cpu:x")
    refused(engine, 2, "excludes", "--prompt", "a", "--prefill-on", "cpu", "--hand-over-to", "b")
    refused(engine, 2, "--processes", "--prompt", "a", "--hand-over-to", "b",
            *serving.IN_PROCESSES)
    refused(engine, 1, "no one listens", "--prompt", "a", "--hand-over-to", "/nowhere/at/all",
            "--hand-over-seconds", "0.1")
    for wrong in ("7070", ":7070", "[::1]:x", "nowhere:"):
        refused(engine, 1, "is no address", "--prompt", "a", "--hand-over-listen", wrong)
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"keep this")
        file.flush()
        refused(engine, 1, "is no socket", "--prompt", "a", "--hand-over-listen", file.name)
        expect(pathlib.Path(file.name).read_bytes() == b"keep this", "the file is gone")
    late = engine.run("--prompt", "a", "--steps", "20", "--hand-over-listen",
                      tempfile.gettempdir() + "/quire-no-one", "--hand-over-seconds", "0.1")
    expect(late.returncode == 0 and b"silent for too long" in late.stderr, late.stderr)
    without = engine.run("--prompt", "a", "--steps", "20", "--prefill-on", "cpu", "--host-bytes",
                         "0")
    expect(without.returncode == 0 and b"give more --host-bytes" in without.stderr, without.stderr)
    expect(without.stdout == late.stdout, "both computed the prompt themselves")


def golden_story_handed_over_to_and_from_vulkan(engine):
    serving.on_vulkan(engine)
    apart(engine, "cpu", "vulkan")
    apart(engine, "vulkan", "cpu", "--kv-dtype", "f16")


def golden_story_handed_over_from_cuda(engine):
    apart(engine, "cuda", "cpu", "--kv-dtype", "f16")


def golden_story_handed_over_to_hip(engine):
    apart(engine, "cpu", "hip", "--kv-dtype", "f16")


def golden_story_handed_over_from_vendor_to_vendor(engine):
    serving.on_vulkan(engine)
    apart(engine, "cuda", "vulkan", "--kv-dtype", "f16")
    apart(engine, "hip", "cuda", "--kv-dtype", "f16")


LISTS = {
    "--list": [golden_story_by_one_process, golden_story_by_a_prefill_and_a_decode_process,
               a_lost_hand_over_changes_no_text, a_decode_engine_that_goes_is_no_harm_to_the_other,
               kills_of_either_process_change_no_text, hand_over_of_another_prompt_is_refused,
               mistakes_about_hand_overs_are_explained],
    "--list-vulkan": [golden_story_handed_over_to_and_from_vulkan],
    "--list-cuda": [golden_story_handed_over_from_cuda],
    "--list-hip": [golden_story_handed_over_to_hip],
    "--list-gpu": [golden_story_handed_over_from_vendor_to_vendor],
}

if __name__ == "__main__":
    serving.main(LISTS)
