// SPDX-License-Identifier: Apache-2.0

package quire

// #include "table.h"
import "C"

import "unsafe"

// EventKind is QUIRE_EVENT_* of quire/events.h.
type EventKind uint32

const (
	EventStored  EventKind = 1
	EventRemoved EventKind = 2
	EventCleared EventKind = 3
)

// Event says that a published block came, went, or that all are gone: quire_cache_event of
// quire/events.h. Tokens are those of a stored block whose namespace gives them away, else nil.
type Event struct {
	Kind          EventKind
	Block, Parent uint64
	Namespace     uint64
	Group, Level  uint32
	Position      uint32
	Keyed         bool
	Tokens        []uint32
}

// The tokens that one call of Events can return, but for those of one event.
const mostTokens = 1 << 24

// Events returns at most `limit` changes since the last call, and whether there are more. A cache
// needs the flag Events. With restart everything that is found is told again, after EventCleared.
func (c *Cache) Events(restart bool, limit int) ([]Event, bool, error) {
	if limit < 1 || limit > 1<<20 {
		return nil, false, failed(ErrArg, "limit is %d: 1 to 2^20", limit)
	}
	raw := make([]C.quire_cache_event, limit)
	places := limit
	if most := 1 + mostTokens/c.spanTokens; places > most {
		places = most
	}
	tokens := make([]C.quire_token, places*c.spanTokens)
	var info C.quire_events_info
	info.struct_size = C.sizeof_quire_events_info
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_events(cache, flag(restart, 1), unsafe.Pointer(&raw[0]),
			C.uint32_t(limit), C.sizeof_quire_cache_event, &tokens[0], C.uint32_t(len(tokens)),
			&info, e)
	})
	if err != nil {
		return nil, false, err
	}
	events := make([]Event, info.event_count)
	for i := range events {
		events[i] = readEvent(&raw[i], tokens)
	}
	return events, info.has_more != 0, nil
}

func readEvent(raw *C.quire_cache_event, tokens []C.quire_token) Event {
	event := Event{EventKind(raw.kind), uint64(raw.block), uint64(raw.parent), uint64(raw.ns),
		uint32(raw.group), uint32(raw.level), uint32(raw.position),
		raw.flags&C.QUIRE_EVENT_KEYED != 0, nil}
	if raw.flags&C.QUIRE_EVENT_HAS_TOKENS != 0 {
		for _, token := range tokens[raw.token_offset : raw.token_offset+raw.token_count] {
			event.Tokens = append(event.Tokens, uint32(token))
		}
	}
	return event
}
