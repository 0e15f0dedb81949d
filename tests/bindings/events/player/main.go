// SPDX-License-Identifier: Apache-2.0

// player plays a workload on a cache and publishes its events with the Go package, as its standard
// input says: one JSON object per line, whose "do" names what to do, and each is answered by one.
// engines.py defines the commands, and does the same in Python.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"quire"
	"quire/kvevents"
)

type command struct {
	Do          string
	Blocks      int
	BlockTokens int `json:"block_tokens"`
	Arrays      bool
	Topic       string
	Kept        int
	HighWater   int `json:"high_water"`
	Limit       int
	Sequence    int
	Tokens      []uint32
	Tenant      int // 0: none; 1: one that gives its tokens away and has a name; 2: one without
	Keyed       bool
	Drop        bool
	Fail        bool
}

type player struct {
	instance  *quire.Instance
	cache     *quire.Cache
	publisher *kvevents.Publisher
	tenants   [3]*quire.Namespace
	sequences map[int]quire.Sequence
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func done(err error) { must(0, err) }

func (p *player) open(c *command) map[string]any {
	p.instance = must(quire.NewInstance(quire.InstanceOptions{}))
	p.cache = must(p.instance.NewCache(quire.CacheOptions{
		Groups: []quire.Group{{Layers: 1, KVHeads: 1, HeadDim: 8}}, Blocks: c.Blocks,
		BlockTokens: c.BlockTokens, Flags: quire.Events | quire.EventTokens}))
	p.publisher = must(kvevents.Listen(p.cache, kvevents.Options{Endpoint: "tcp://127.0.0.1:*",
		Replay: "tcp://127.0.0.1:*", Topic: c.Topic, Arrays: c.Arrays, Kept: c.Kept,
		HighWater: c.HighWater, Limit: c.Limit}))
	p.tenants[1] = must(p.cache.NewNamespaceWith(quire.NamespaceOptions{EventTokens: true}))
	p.tenants[2] = must(p.cache.NewNamespaceWith(quire.NamespaceOptions{EventTokens: true}))
	done(p.publisher.Name(p.tenants[1], "named"))
	p.sequences = map[int]quire.Sequence{}
	return map[string]any{"endpoint": p.publisher.Endpoint(),
		"replay": p.publisher.ReplayEndpoint()}
}

func (p *player) begin(c *command) quire.Sequence {
	options := quire.SequenceOptions{Namespace: p.tenants[c.Tenant]}
	if c.Keyed {
		options.Keys = []quire.Key{{Type: quire.SaltKey, Content: []byte("salt")}}
	}
	return must(p.cache.NewSequence(options))
}

// grow computes tokens of a sequence, if there is room.
func (p *player) grow(c *command) map[string]any {
	sequence, known := p.sequences[c.Sequence]
	if !known {
		sequence = p.begin(c)
		p.sequences[c.Sequence] = sequence
	}
	results := make([]quire.Result, 1)
	step := must(p.cache.BeginCommit(quire.StepOptions{}, nil, []quire.Item{{
		Sequence: sequence.Handle(), TokenCount: uint32(len(c.Tokens))}}, c.Tokens, results))
	if c.Fail {
		done(step.Fail())
	} else {
		done(step.Finish())
	}
	return map[string]any{"run": results[0].Outcome == quire.Run}
}

func (p *player) play(c *command) map[string]any {
	switch c.Do {
	case "open":
		return p.open(c)
	case "grow":
		return p.grow(c)
	case "end":
		done(p.sequences[c.Sequence].End(c.Drop))
		delete(p.sequences, c.Sequence)
	case "reset":
		done(p.cache.Reset())
	case "snapshot":
		p.publisher.Snapshot()
	case "publish":
		return map[string]any{"more": must(p.publisher.Publish())}
	case "published":
		return map[string]any{"published": p.publisher.Published()}
	case "probe":
		sequence := p.begin(c)
		hits := must(sequence.Probe(c.Tokens))
		done(sequence.End(false))
		return map[string]any{"hits": hits}
	case "evictions":
		return map[string]any{"evictions": must(p.cache.Stats()).Evictions}
	default:
		done(fmt.Errorf("there is no command %q", c.Do))
	}
	return map[string]any{}
}

func main() {
	var p player
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var c command
		done(json.Unmarshal(lines.Bytes(), &c))
		done(answers.Encode(p.play(&c)))
	}
	p.publisher.Close()
	done(p.cache.Close())
	done(p.instance.Close())
}
