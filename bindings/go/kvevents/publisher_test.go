// SPDX-License-Identifier: Apache-2.0

package kvevents

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"quire"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func publisher(t *testing.T, options Options) *Publisher {
	t.Helper()
	instance, err := quire.NewInstance(quire.InstanceOptions{})
	check(t, err)
	cache, err := instance.NewCache(quire.CacheOptions{Blocks: 16, BlockTokens: 4,
		Groups: []quire.Group{{Layers: 1, KVHeads: 1, HeadDim: 8}},
		Flags:  quire.Events | quire.EventTokens})
	check(t, err)
	options.Endpoint, options.Replay = "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"
	p, err := Listen(cache, options)
	check(t, err)
	t.Cleanup(func() {
		p.Close()
		check(t, cache.Close())
		check(t, instance.Close())
	})
	return p
}

// subscribe connects as a subscriber of all topics does: greeting, READY, and a message of 1.
func subscribe(t *testing.T, p *Publisher) (net.Conn, *bufio.Reader) {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(p.Endpoint(), "tcp://"))
	check(t, err)
	t.Cleanup(func() { connection.Close() })
	reader := bufio.NewReader(connection)
	check(t, (&server{kind: "SUB"}).greet(connection, reader))
	_, err = connection.Write([]byte{0, 1, 1})
	check(t, err)
	for subscribed := false; !subscribed; time.Sleep(time.Millisecond) {
		p.messages.each(func(s *peer) {
			if s.connection.RemoteAddr().String() == connection.LocalAddr().String() {
				subscribed = s.wants("")
			}
		})
	}
	return connection, reader
}

// A subscriber that does not read costs neither the engine nor the other subscribers anything.
func TestStuckSubscriberStopsNoOne(t *testing.T) {
	p := publisher(t, Options{HighWater: 4})
	subscribe(t, p) // never reads
	_, reader := subscribe(t, p)
	content := make([]byte, 1<<16) // so that buffers fill up
	for number := uint64(0); number < 500; number++ {
		p.lock.Lock()
		p.send(content, false)
		p.lock.Unlock()
		got, err := readLong(reader)
		check(t, err)
		if len(got) != 3 || binary.BigEndian.Uint64(got[1]) != number {
			t.Fatalf("message %d did not come", number)
		}
	}
}

// readLong is readMessage for frames of any length.
func readLong(reader *bufio.Reader) (message, error) {
	var m message
	for {
		flags, err := reader.ReadByte()
		if err != nil {
			return nil, err
		}
		size := make([]byte, 8)
		if flags&frameLong == 0 {
			size[7], err = reader.ReadByte()
		} else {
			_, err = fill(reader, size)
		}
		if err != nil {
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint64(size))
		if _, err := fill(reader, body); err != nil {
			return nil, err
		}
		if m = append(m, body); flags&frameMore == 0 {
			return m, nil
		}
	}
}

func fill(reader *bufio.Reader, body []byte) (read int, err error) {
	for read < len(body) && err == nil {
		var n int
		n, err = reader.Read(body[read:])
		read += n
	}
	return
}

// What connects and does not speak the protocol is cut off, and harms nothing.
func TestForeignPeersAreCutOff(t *testing.T) {
	p := publisher(t, Options{})
	for _, said := range []string{"GET / HTTP/1.1\r\n\r\n" + strings.Repeat(" ", 64),
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00PLAIN" + strings.Repeat("\x00", 47),
		string(greeting()) + "\x02\xff\xff\xff\xff\xff\xff\xff\xff"} {
		connection, err := net.Dial("tcp", strings.TrimPrefix(p.Endpoint(), "tcp://"))
		check(t, err)
		_, err = connection.Write([]byte(said))
		check(t, err)
		connection.SetReadDeadline(time.Now().Add(20 * time.Second))
		for err == nil {
			_, err = connection.Read(make([]byte, 256))
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%q is still connected", said)
		}
		connection.Close()
	}
	_, err := p.Publish()
	check(t, err)
}

func TestWrongUseIsRefusedInWords(t *testing.T) {
	p := publisher(t, Options{})
	for _, options := range []Options{{Kept: -1}, {HighWater: -1}, {Limit: 1<<20 + 1}, {Rank: -1}} {
		options.Endpoint = "tcp://127.0.0.1:*"
		if _, err := Listen(p.cache, options); !errors.Is(err, quire.ErrArg) {
			t.Errorf("%+v: %v", options, err)
		}
	}
	for _, endpoint := range []string{p.Endpoint(), "ipc:///x", "tcp://127.0.0.1", ""} {
		if _, err := Listen(p.cache, Options{Endpoint: endpoint}); !errors.Is(err, quire.ErrOS) {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	p.Close()
	p.Close()
	if _, err := p.Publish(); !errors.Is(err, quire.ErrStale) {
		t.Errorf("a closed publisher: %v", err)
	}
}
