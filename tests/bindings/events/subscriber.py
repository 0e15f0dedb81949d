# SPDX-License-Identifier: Apache-2.0
"""subscriber: follows a publisher as a router does: in the order of the numbers, and with a replay
where there is a gap."""

import time

import zmq

END = (1 << 64) - 1


class Subscriber:
    """engine    publishes; a replay that does not reach back is answered by what it publishes next
    slow      receives little before messages are lost

    lost, replays  messages that did not come, and replays asked for
    """

    def __init__(self, engine, at, slow=False):
        self.engine = engine
        self.context = zmq.Context()
        self.messages = self.context.socket(zmq.SUB)
        if slow:
            self.messages.setsockopt(zmq.RCVHWM, 1)
            self.messages.setsockopt(zmq.RCVBUF, 4096)
        self.messages.subscribe(b"")
        self.messages.connect(at["endpoint"])
        self.requests = self.context.socket(zmq.DEALER)
        self.requests.connect(at["replay"])
        self.lost = self.replays = 0
        self.waiting = []  # messages to be returned by read()
        for _ in range(200):  # a publisher does not say when it has a subscriber
            engine.snapshot()
            engine.publish()
            if self.messages.poll(50):
                break
        topic, number, content = self.messages.recv_multipart()
        self.expected = int.from_bytes(number, "big")
        self.take(topic, self.expected, content)

    def take(self, topic, number, content):
        self.waiting.append((topic.decode(), number, content))
        self.expected = number + 1

    def replay(self):
        """Asks for everything from the expected number on."""
        self.replays += 1
        self.requests.send_multipart([b"", self.expected.to_bytes(8, "big")])
        deadline = time.monotonic() + 20
        while True:
            while not self.requests.poll(5):
                if time.monotonic() > deadline:
                    raise TimeoutError("no replay")
                self.engine.publish()
            empty, topic, number, content = self.requests.recv_multipart()
            number = int.from_bytes(number, "big")
            if number == END:
                if (empty, topic, content) != (b"", b"", b""):
                    raise AssertionError("the end of a replay has content")
                return
            if number >= self.expected:
                self.take(topic, number, content)

    def receive(self):
        topic, number, content = self.messages.recv_multipart()
        number = int.from_bytes(number, "big")
        if number > self.expected:
            self.lost += number - self.expected
            self.replay()
        if number >= self.expected:
            self.take(topic, number, content)

    def read(self):
        """All messages up to what has been published, as (topic, number, content)."""
        deadline = time.monotonic() + 60
        while True:
            more = self.engine.publish()["more"]
            published = self.engine.published()["published"]
            if self.messages.poll(1000 if self.expected < published else 0):
                self.receive()
            elif self.expected < published:  # the last messages were lost: no later one shows it
                self.lost += published - self.expected
                self.replay()
            elif not more:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"message {self.expected} of {published} does not come")
        read, self.waiting = self.waiting, []
        return read

    def close(self):
        self.context.destroy(linger=0)
