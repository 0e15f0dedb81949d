// SPDX-License-Identifier: Apache-2.0

package kvevents

import (
	"encoding/binary"
	"math"

	"quire"
)

// wire follows what one cache tells, and says it as vLLM does.
//
// Source: the module vllm.distributed.kv_events of vLLM 0.33.0. A batch is the msgpack array
// [seconds, events, rank]; an event is a map whose "type" names it. As an array, the form of
// earlier releases, which llm-d reads, an event has the same values in the same order, with its
// type first.
type wire struct {
	arrays      bool
	base        uint64 // in [2^62, 2^63)
	blockTokens int
	specs       []spec
	names       map[uint64]string  // of the published namespaces; the default one is unnamed
	told        map[place]struct{} // blocks that were told as stored
}

// spec is what a batch says about a group. Routers count on the blocks of full attention only.
type spec struct {
	kind   string
	window int
}

var kinds = map[quire.GroupKind]string{
	quire.Full: "full_attention", quire.Window: "sliding_window",
	quire.Chunked: "chunked_local_attention", quire.Latent: "mla_attention",
	quire.Cross: "cross_attention",
}

// media are words for the levels: vLLM's for device memory, the host tier and a store; and Dynamo's
// for a store that other machines share, which vLLM calls STORAGE of another locality, and Dynamo
// passes over.
var media = [...]string{"GPU", "CPU", "STORAGE", "EXTERNAL"}

// place is where a group holds a block. A block that moves is in two places for a moment.
type place struct {
	block uint64
	group uint32
	level uint32
}

func newWire(groups []quire.Group, blockTokens int, arrays bool, base uint64) *wire {
	w := &wire{arrays: arrays, base: base, blockTokens: blockTokens,
		names: map[uint64]string{0: ""}, told: map[place]struct{}{}}
	for _, group := range groups {
		w.specs = append(w.specs, spec{kinds[group.Kind], group.Window})
	}
	return w
}

// said is an event of a batch.
type said struct {
	kind   quire.EventKind
	group  uint32
	level  uint32
	blocks []uint64
	parent uint64
	name   string
	tokens []uint32
}

// say returns what a batch says about the events. Neighbours that continue each other become one.
func (w *wire) say(events []quire.Event) []said {
	var list []said
	for i := range events {
		event := &events[i]
		var last *said
		if len(list) != 0 {
			last = &list[len(list)-1]
		}
		switch event.Kind {
		case quire.EventCleared:
			w.told = map[place]struct{}{}
			list = append(list, said{kind: event.Kind})
		case quire.EventRemoved:
			at := place{event.Block, event.Group, event.Level}
			if _, told := w.told[at]; !told {
				continue
			}
			delete(w.told, at)
			if !last.continues(event) {
				list = append(list, said{kind: event.Kind, group: event.Group, level: event.Level})
				last = &list[len(list)-1]
			}
			last.blocks = append(last.blocks, event.Block)
		case quire.EventStored:
			if !w.publishes(event) {
				continue
			}
			w.told[place{event.Block, event.Group, event.Level}] = struct{}{}
			name := w.names[event.Namespace]
			if !last.continues(event) || last.name != name ||
				last.blocks[len(last.blocks)-1] != event.Parent {
				list = append(list, said{kind: event.Kind, group: event.Group, level: event.Level,
					parent: event.Parent, name: name})
				last = &list[len(list)-1]
			}
			last.blocks = append(last.blocks, event.Block)
			last.tokens = append(last.tokens, event.Tokens...)
		}
	}
	return list
}

// continues is true if the event may be told together with those before it.
func (s *said) continues(event *quire.Event) bool {
	return s != nil && s.kind == event.Kind && s.group == event.Group && s.level == event.Level
}

// publishes is true of a stored block that a router that goes by tokens and names may find.
func (w *wire) publishes(event *quire.Event) bool {
	if _, named := w.names[event.Namespace]; !named {
		return false
	}
	if event.Keyed || event.Tokens == nil || int(event.Level) >= len(media) {
		return false
	}
	if event.Parent == 0 {
		return true
	}
	for group := range w.specs {
		for level := range media {
			at := place{event.Parent, uint32(group), uint32(level)}
			if _, known := w.told[at]; known {
				return true
			}
		}
	}
	return false
}

// batch encodes a batch.
func (w *wire) batch(seconds float64, list []said, rank int) []byte {
	p := packer{}
	p.array(3)
	p.float(seconds)
	p.array(len(list))
	for i := range list {
		w.event(&p, &list[i])
	}
	p.uint(uint64(rank))
	return p.bytes
}

// event encodes an event: its fields in vLLM's order, without those at the end that have a default.
func (w *wire) event(p *packer, e *said) {
	switch e.kind {
	case quire.EventCleared:
		w.open(p, "AllBlocksCleared", 0)
	case quire.EventRemoved:
		w.open(p, "BlockRemoved", 3)
		w.hashes(p, e.blocks)
		w.field(p, "medium").text(media[e.level])
		w.field(p, "group_idx").uint(uint64(e.group))
	default:
		s := w.specs[e.group]
		fields := 9
		if w.arrays {
			fields++ // extra_keys, which a map leaves out
		}
		if s.window != 0 {
			fields++
		}
		w.open(p, "BlockStored", fields)
		w.hashes(p, e.blocks)
		if w.field(p, "parent_block_hash"); e.parent == 0 {
			p.null()
		} else {
			p.uint(w.base + e.parent)
		}
		w.field(p, "token_ids").array(len(e.tokens))
		for _, token := range e.tokens {
			p.uint(uint64(token))
		}
		w.field(p, "block_size").uint(uint64(w.blockTokens))
		w.field(p, "lora_id").null()
		w.field(p, "medium").text(media[e.level])
		if w.field(p, "lora_name"); e.name == "" {
			p.null()
		} else {
			p.text(e.name)
		}
		if w.arrays {
			p.null()
		}
		w.field(p, "group_idx").uint(uint64(e.group))
		w.field(p, "kv_cache_spec_kind").text(s.kind)
		if s.window != 0 {
			w.field(p, "kv_cache_spec_sliding_window").uint(uint64(s.window))
		}
	}
}

func (w *wire) open(p *packer, kind string, fields int) {
	if w.arrays {
		p.array(1 + fields)
	} else {
		p.object(1 + fields)
		p.text("type")
	}
	p.text(kind)
}

func (w *wire) field(p *packer, name string) *packer {
	if !w.arrays {
		p.text(name)
	}
	return p
}

func (w *wire) hashes(p *packer, blocks []uint64) {
	w.field(p, "block_hashes").array(len(blocks))
	for _, block := range blocks {
		p.uint(w.base + block)
	}
}

// packer writes msgpack, each value in its shortest form.
//
// Source: https://github.com/msgpack/msgpack/blob/master/spec.md
type packer struct{ bytes []byte }

func (p *packer) null() { p.bytes = append(p.bytes, 0xc0) }

func (p *packer) float(number float64) {
	p.bytes = append(p.bytes, 0xcb)
	p.bytes = binary.BigEndian.AppendUint64(p.bytes, math.Float64bits(number))
}

func (p *packer) uint(number uint64) {
	switch {
	case number < 1<<7:
		p.bytes = append(p.bytes, byte(number))
	case number < 1<<8:
		p.bytes = append(p.bytes, 0xcc, byte(number))
	case number < 1<<16:
		p.bytes = binary.BigEndian.AppendUint16(append(p.bytes, 0xcd), uint16(number))
	case number < 1<<32:
		p.bytes = binary.BigEndian.AppendUint32(append(p.bytes, 0xce), uint32(number))
	default:
		p.bytes = binary.BigEndian.AppendUint64(append(p.bytes, 0xcf), number)
	}
}

// head begins a value of `count` parts: in the byte `short` up to 15 or 31 of them, else with the
// byte `medium` and 16 bits, or the byte after it and 32.
func (p *packer) head(count, most int, short, medium byte) {
	switch {
	case count <= most:
		p.bytes = append(p.bytes, short|byte(count))
	case count < 1<<16:
		p.bytes = binary.BigEndian.AppendUint16(append(p.bytes, medium), uint16(count))
	default:
		p.bytes = binary.BigEndian.AppendUint32(append(p.bytes, medium+1), uint32(count))
	}
}

func (p *packer) array(count int)  { p.head(count, 15, 0x90, 0xdc) }
func (p *packer) object(count int) { p.head(count, 15, 0x80, 0xde) }

func (p *packer) text(text string) {
	if len(text) > 31 && len(text) < 1<<8 {
		p.bytes = append(p.bytes, 0xd9, byte(len(text)))
	} else {
		p.head(len(text), 31, 0xa0, 0xda)
	}
	p.bytes = append(p.bytes, text...)
}
