// SPDX-License-Identifier: Apache-2.0

// Package kvevents publishes a cache's events over ZeroMQ as vLLM's publisher does, for routers
// (Dynamo, llm-d) and stores that follow it. It speaks the protocol itself and needs no other
// package.
//
//	publisher, err := kvevents.Listen(cache, kvevents.Options{
//		Endpoint: "tcp://*:5557", Replay: "tcp://*:5558"})
//	...
//	more, err := publisher.Publish() // after each step, and now and then while there are none
//
// A message has three frames: the topic, its number (8 bytes, big-endian, from 0) and a batch. A
// subscriber that sees a gap in the numbers sends [empty, first number] to the replay socket and
// gets [empty, topic, number, batch] for each batch from there on that is still kept, and [empty,
// empty, 2^64 - 1, empty] after the last. What is no longer kept cannot be replayed: then the next
// Publish begins again with AllBlocksCleared and everything that is found, for all subscribers.
//
// Nothing waits for a subscriber: one that is too slow loses messages, and sees the gap.
//
// Hashes: a router only compares the block_hashes; what it looks up are the hashes that it computes
// from token_ids itself. So a block's number serves, plus a random base in [2^62, 2^63) per
// publisher: routers keep the blocks of many engines in one table, where two engines' numbers must
// differ. As a base is above 2^32, msgpack holds a hash in 64 bits, the only width that llm-d's
// decoder takes.
//
// What a router that goes by tokens alone must not find is left out: keyed blocks, blocks without
// tokens, namespaces other than the default one that have no name, and all blocks after one that is
// left out.
package kvevents

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"quire"
)

// Options say where and how to publish; 0 is a field's default.
type Options struct {
	Endpoint string // where it listens: tcp://HOST:PORT; * is every address, or any port
	// Replay is where it listens for requests to replay. Empty: it does not, and a subscriber that
	// joins late or loses a message has to wait for the next Snapshot.
	Replay    string
	Topic     string // vLLM's default is "", llm-d needs "kv@POD@MODEL"
	Arrays    bool   // events as arrays, which llm-d needs, and not as maps
	Rank      int    // the data-parallel rank that each batch names
	Kept      int    // batches that can be replayed; 0: 1,000
	HighWater int    // messages that wait for one subscriber before it loses some; 0: 10,000
	Limit     int    // the most events that one Publish reads; 0: 1,024
}

// Publisher publishes what Cache.Events tells; it is the cache's only reader of them. Any goroutine
// may call; calls take turns.
type Publisher struct {
	cache   *quire.Cache
	options Options

	lock     sync.Mutex
	wire     *wire
	batches  []batch // the newest Kept, the oldest first
	next     uint64
	begin    bool // the next read begins again
	closed   bool
	messages *server
	replies  *server
}

type batch struct {
	number  uint64
	content []byte
	begins  bool // with AllBlocksCleared: nothing before it is needed
}

func refuse(format string, arguments ...any) error {
	return &quire.Error{Status: quire.ErrArg, Message: fmt.Sprintf(format, arguments...)}
}

func standard(number *int, standard int, name string, most int) error {
	if *number == 0 {
		*number = standard
	}
	if *number < 1 || *number > most {
		return refuse("%s is %d: 1 to %d", name, *number, most)
	}
	return nil
}

// Listen opens a publisher. The blocks of the default namespace are published if the cache has
// EventTokens; see also Name. ErrOS: an endpoint is not free.
func Listen(cache *quire.Cache, options Options) (*Publisher, error) {
	if err := standard(&options.Kept, 1000, "Kept", 1<<20); err != nil {
		return nil, err
	}
	if err := standard(&options.HighWater, 10000, "HighWater", 1<<24); err != nil {
		return nil, err
	}
	if err := standard(&options.Limit, 1024, "Limit", 1<<20); err != nil {
		return nil, err
	}
	if options.Rank < 0 || options.Rank > math.MaxInt32 {
		return nil, refuse("Rank is %d: 0 to %d", options.Rank, math.MaxInt32)
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, &quire.Error{Status: quire.ErrOS, Message: err.Error()}
	}
	base := binary.BigEndian.Uint64(random[:])>>2 | 1<<62
	p := &Publisher{cache: cache, options: options, begin: true,
		wire: newWire(cache.Groups(), cache.BlockTokens(), options.Arrays, base)}
	var err error
	p.messages, err = open(options.Endpoint, "PUB", options.HighWater,
		func(subscriber *peer, m message) { subscriber.subscribe(m) })
	if err != nil {
		return nil, err
	}
	if options.Replay != "" {
		p.replies, err = open(options.Replay, "ROUTER", 2*(options.Kept+1), p.replay)
	}
	if err != nil {
		p.messages.close()
		return nil, err
	}
	return p, nil
}

func open(endpoint, kind string, room int, handle func(*peer, message)) (*server, error) {
	s, err := listen(endpoint, kind, room, handle)
	if err != nil {
		return nil, &quire.Error{Status: quire.ErrOS, Message: err.Error()}
	}
	return s, nil
}

// Endpoint is where it publishes; the port is known even if the given one was *.
func (p *Publisher) Endpoint() string { return p.messages.endpoint() }

// ReplayEndpoint is where it replays; empty if it does not.
func (p *Publisher) ReplayEndpoint() string {
	if p.replies == nil {
		return ""
	}
	return p.replies.endpoint()
}

// Published is how many messages were published, which is the number of the next one.
func (p *Publisher) Published() uint64 {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.next
}

// Name publishes the blocks of a namespace, too, which gives its tokens away (EventTokens). Routers
// see the name as that of a LoRA adapter: it has to be part of what they look up. Everything is
// told again.
func (p *Publisher) Name(namespace *quire.Namespace, name string) error {
	if name == "" {
		return refuse("name is empty: a router would take the namespace's blocks for those of the " +
			"default namespace")
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.wire.names[namespace.Handle()] = name
	p.begin = true
	return nil
}

// Snapshot lets the next Publish begin again, for subscribers that cannot ask for a replay.
func (p *Publisher) Snapshot() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.begin = true
}

// Publish publishes what changed since the last call, as one message, if anything did. True: there
// is more to tell, which the next call does. After an error of the cache the next call begins
// again. ErrStale: the publisher is closed.
func (p *Publisher) Publish() (bool, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.closed {
		return false, &quire.Error{Status: quire.ErrStale, Message: "the publisher is closed"}
	}
	events, more, err := p.cache.Events(p.begin, p.options.Limit)
	if err != nil {
		p.begin = true
		return false, err
	}
	p.begin = false
	if list := p.wire.say(events); len(list) != 0 {
		seconds := float64(time.Now().UnixNano()) / 1e9
		p.send(p.wire.batch(seconds, list, p.options.Rank), list[0].kind == quire.EventCleared)
	}
	return more, nil
}

func (p *Publisher) send(content []byte, begins bool) {
	b := batch{p.next, content, begins}
	p.next++
	if len(p.batches) == p.options.Kept {
		p.batches[0] = batch{} // for the collector
		p.batches = p.batches[1:]
	}
	p.batches = append(p.batches, b)
	m := message{[]byte(p.options.Topic), numberOf(b.number), content}
	p.messages.each(func(subscriber *peer) {
		if subscriber.wants(p.options.Topic) {
			subscriber.offer(m)
		}
	})
}

func numberOf(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// replay answers a client. One that does not read its answers is cut off, and may ask again.
func (p *Publisher) replay(client *peer, request message) {
	if len(request) != 2 || len(request[1]) != 8 {
		return // not a request; there is no form for an answer
	}
	first := binary.BigEndian.Uint64(request[1])
	p.lock.Lock()
	defer p.lock.Unlock()
	oldest, begins := p.next, false
	if len(p.batches) != 0 {
		oldest = p.batches[0].number
	}
	for _, b := range p.batches {
		begins = begins || b.begins
	}
	if first < oldest && !begins {
		p.begin = true
	}
	whole := true
	for _, b := range p.batches {
		if b.number >= first {
			whole = client.offer(message{nil, []byte(p.options.Topic), numberOf(b.number),
				b.content}) && whole
		}
	}
	if !client.offer(message{nil, nil, numberOf(math.MaxUint64), nil}) || !whole {
		client.close()
	}
}

// Close stops publishing; what subscribers have not received yet is lost. The cache stays open.
// Closing it again does nothing.
func (p *Publisher) Close() {
	p.lock.Lock()
	closed := p.closed
	p.closed = true
	p.lock.Unlock() // the peers' goroutines may wait for it
	if closed {
		return
	}
	p.messages.close()
	if p.replies != nil {
		p.replies.close()
	}
}
