// SPDX-License-Identifier: Apache-2.0

package kvevents

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// zmtp: the listening side of ZeroMQ's protocol over TCP, as far as a PUB and a ROUTER socket that
// only listen need it.
//
// Why not a package: of those in Go without C, the one that is kept sends one message at a time to
// all subscribers, so that one that does not read stops the others, and answers all clients of a
// ROUTER that gave no identity, which is every client of libzmq. Here each peer has a queue and an
// answer of its own.
//
// Source: RFC 23, ZMTP 3.0 (https://rfc.zeromq.org/spec/23/), mechanism NULL. A peer of 3.1 speaks
// 3.0 with one of 3.0: it subscribes by messages, and sends no pings.

const (
	greetingSize = 64
	longestFrame = 1 << 16 // that a peer may send: subscriptions and requests are short
	patience     = 10 * time.Second

	frameMore    = 1
	frameLong    = 2
	frameCommand = 4
)

// message is the frames of a message.
type message [][]byte

// peer is a connection, with what waits to be sent to it.
type peer struct {
	connection net.Conn
	outgoing   chan message
	gone       chan struct{}
	once       sync.Once
	lock       sync.Mutex
	topics     map[string]int // subscriptions, and how often each was made
}

func (p *peer) close() {
	p.once.Do(func() {
		close(p.gone)
		p.connection.Close()
	})
}

// offer queues a message; false: the peer's queue is full, and it loses the message.
func (p *peer) offer(m message) bool {
	select {
	case p.outgoing <- m:
		return true
	default:
		return false
	}
}

// wants is true if the peer subscribed to a beginning of the topic.
func (p *peer) wants(topic string) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	for subscribed := range p.topics {
		if strings.HasPrefix(topic, subscribed) {
			return true
		}
	}
	return false
}

// subscribe handles a subscriber's message: 1 or 0, and a topic.
func (p *peer) subscribe(m message) {
	if len(m) != 1 || len(m[0]) == 0 {
		return
	}
	topic := string(m[0][1:])
	p.lock.Lock()
	defer p.lock.Unlock()
	switch m[0][0] {
	case 1:
		p.topics[topic]++
	case 0:
		if p.topics[topic]--; p.topics[topic] <= 0 {
			delete(p.topics, topic)
		}
	}
}

// server accepts peers and reads what they send.
type server struct {
	listener net.Listener
	kind     string // its socket's type
	room     int    // of a peer's queue, in messages
	handle   func(*peer, message)
	lock     sync.Mutex
	peers    map[*peer]struct{}
	closed   bool
	running  sync.WaitGroup
}

// listen opens a socket. endpoint  tcp://HOST:PORT; * is every address, or any port.
func listen(endpoint, kind string, room int, handle func(*peer, message)) (*server, error) {
	address := strings.TrimPrefix(endpoint, "tcp://")
	if address == endpoint {
		return nil, fmt.Errorf("%q is not an endpoint: only tcp://HOST:PORT is supported", endpoint)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is not an endpoint: %w", endpoint, err)
	}
	if host == "*" {
		host = ""
	}
	if port == "*" {
		port = "0"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, kind: kind, room: room, handle: handle,
		peers: map[*peer]struct{}{}}
	s.running.Add(1)
	go s.accept()
	return s, nil
}

func (s *server) endpoint() string { return "tcp://" + s.listener.Addr().String() }

func (s *server) accept() {
	defer s.running.Done()
	for {
		connection, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		p := &peer{connection: connection, outgoing: make(chan message, s.room),
			gone: make(chan struct{}), topics: map[string]int{}}
		s.lock.Lock()
		if s.closed {
			s.lock.Unlock()
			p.close()
			return
		}
		s.peers[p] = struct{}{}
		s.running.Add(1)
		s.lock.Unlock()
		go s.serve(p)
	}
}

// each calls visit with every peer.
func (s *server) each(visit func(*peer)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for p := range s.peers {
		visit(p)
	}
}

func (s *server) close() {
	s.lock.Lock()
	s.closed = true
	for p := range s.peers {
		p.close()
	}
	s.lock.Unlock()
	s.listener.Close()
	s.running.Wait()
}

// serve greets a peer and reads its messages until either side closes.
func (s *server) serve(p *peer) {
	defer s.running.Done()
	defer func() {
		p.close()
		s.lock.Lock()
		delete(s.peers, p)
		s.lock.Unlock()
	}()
	p.connection.SetDeadline(time.Now().Add(patience))
	reader := bufio.NewReader(p.connection)
	if s.greet(p.connection, reader) != nil {
		return
	}
	p.connection.SetDeadline(time.Time{})
	s.running.Add(1)
	go s.write(p)
	for {
		received, err := readMessage(reader)
		if err != nil {
			return
		}
		s.handle(p, received)
	}
}

func (s *server) write(p *peer) {
	defer s.running.Done()
	writer := bufio.NewWriter(p.connection)
	for {
		select {
		case <-p.gone:
			return
		case m := <-p.outgoing:
			writeMessage(writer, m)
			if len(p.outgoing) == 0 && writer.Flush() != nil {
				p.close()
				return
			}
		}
	}
}

func greeting() []byte {
	content := make([]byte, greetingSize)
	content[0], content[9], content[10] = 0xff, 0x7f, 3 // signature, version 3.0
	copy(content[12:], "NULL")
	return content
}

// greet exchanges greetings and READY commands.
func (s *server) greet(connection net.Conn, reader *bufio.Reader) error {
	if _, err := connection.Write(greeting()); err != nil {
		return err
	}
	theirs := make([]byte, greetingSize)
	if _, err := io.ReadFull(reader, theirs); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[9]&1 != 1 || theirs[10] < 3 ||
		strings.TrimRight(string(theirs[12:32]), "\x00") != "NULL" {
		return errors.New("the peer does not speak ZMTP 3 without security")
	}
	body := append([]byte{5}, "READY"...)
	body = property(body, "Socket-Type", s.kind)
	body = property(body, "Identity", "")
	if _, err := connection.Write(append([]byte{frameCommand, byte(len(body))}, body...)); err != nil {
		return err
	}
	flags, ready, err := readFrame(reader)
	if err == nil && (flags&frameCommand == 0 || !strings.HasPrefix(string(ready), "\x05READY")) {
		err = errors.New("the peer did not say that it is ready")
	}
	return err
}

func property(body []byte, name, value string) []byte {
	body = append(append(body, byte(len(name))), name...)
	return append(binary.BigEndian.AppendUint32(body, uint32(len(value))), value...)
}

func readFrame(reader *bufio.Reader) (flags byte, body []byte, err error) {
	if flags, err = reader.ReadByte(); err != nil {
		return
	}
	var size uint64
	if flags&frameLong == 0 {
		var short byte
		if short, err = reader.ReadByte(); err != nil {
			return
		}
		size = uint64(short)
	} else {
		var long [8]byte
		if _, err = io.ReadFull(reader, long[:]); err != nil {
			return
		}
		size = binary.BigEndian.Uint64(long[:])
	}
	if size > longestFrame {
		return 0, nil, fmt.Errorf("the peer sent a frame of %d bytes", size)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(reader, body)
	return
}

// readMessage reads the next message, and passes over commands.
func readMessage(reader *bufio.Reader) (message, error) {
	var m message
	for {
		flags, body, err := readFrame(reader)
		if err != nil {
			return nil, err
		}
		if flags&frameCommand != 0 {
			continue
		}
		if m = append(m, body); len(m) > 8 {
			return nil, errors.New("the peer sent a message of more than 8 frames")
		}
		if flags&frameMore == 0 {
			return m, nil
		}
	}
}

// writeMessage leaves errors to the flush that follows.
func writeMessage(writer *bufio.Writer, m message) {
	for i, frame := range m {
		flags := byte(0)
		if i < len(m)-1 {
			flags |= frameMore
		}
		if len(frame) < 1<<8 {
			writer.Write([]byte{flags, byte(len(frame))})
		} else {
			writer.Write(binary.BigEndian.AppendUint64([]byte{flags | frameLong},
				uint64(len(frame))))
		}
		writer.Write(frame)
	}
}
