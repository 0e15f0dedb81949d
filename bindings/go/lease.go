// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"sync"
	"unsafe"
)

// LeaseOptions are quire_lease_desc of quire/lease.h.
type LeaseOptions struct {
	Namespace *Namespace // nil: the default one
	Keys      []Key      // of whole sequences: without Begin and End
}

// Lease holds blocks that belong to no sequence, for a radix tree or a store of the engine's own.
// It takes blocks for the engine to fill, publishes what the engine filled, finds and pins what is
// cached, and gives all of it back. A lease has the blocks of one namespace and set of keys, and
// finds what sequences with the same ones publish, as they find what it publishes.
//
// Take, Give, Pin, Publish, and Match with MatchPin, change the open step: Abort undoes them, and
// work on a block that was given back must come before the step on its queues. Blocks that a lease
// holds are never evicted, swapped or preempted.
//
// A Lease lives until it is ended, or its cache is closed; a Lease that the program merely forgets
// keeps its blocks until then. It may be used from any goroutine. Every call on a lease that was
// ended, or with a step that was, is ErrStale. A block is named by its id, as Sequence.Blocks
// returns it; an id that the lease may not name, because it is out of range, or another
// namespace's, or held by no one, is ErrArg, and the call changes nothing.
type Lease struct {
	cache  *Cache
	handle C.quire_lease
}

// Shortage says how many blocks a call of a lease lacked; it is zero if the call has been done, and
// else the call changed nothing.
type Shortage struct {
	Blocks int    // missing in the shortest pool; 0: nothing was missing
	Reason uint32 // WaitPool or WaitQuota
}

// LeaseInfo is quire_lease_info of quire/lease.h.
type LeaseInfo struct {
	Namespace  uint64 // the handle; 0: the default one
	BlocksHeld uint64 // over all groups, each once
	Holds      uint64 // the same, each as often as it is held
	BlocksLost uint64 // withdrawn, plus those that left the lease, by steps that failed
}

// LeaseFlags are QUIRE_LEASE_* of quire/lease.h.
type LeaseFlags uint32

const (
	LeasePublished LeaseFlags = 1 << 0 // the block can be found
	LeaseOwned     LeaseFlags = 1 << 1 // the lease took the block, so it may publish it
)

// LeaseBlock is a block that a lease holds: quire_lease_block of quire/lease.h.
type LeaseBlock struct {
	Block int32
	Holds uint32 // how often
	Flags LeaseFlags
	_     uint32
}

// This line compiles only if the struct is as large as the library's.
var _ [0]struct{} = [unsafe.Sizeof(LeaseBlock{}) ^ C.sizeof_quire_lease_block]struct{}{}

// MatchHow says what a match does with what it finds: QUIRE_MATCH_* of quire/lease.h.
type MatchHow uint32

const (
	MatchLook  MatchHow = 0 // changes nothing
	MatchTouch MatchHow = 1 // what is found is evicted as if it had been given back just now
	MatchPin   MatchHow = 2 // the lease holds what is found once more
)

// NewLease creates a lease that holds nothing. ErrArg: a key is a span. ErrStale: the namespace is
// closed, or belongs to another cache. ErrLimit: as many sequences and leases live as MaxSequences
// allows.
func (c *Cache) NewLease(options LeaseOptions) (Lease, error) {
	var a arena
	defer a.free()
	var n counts
	ns, err := options.Namespace.handleFor(c)
	if err != nil {
		return Lease{}, err
	}
	desc := (*C.quire_lease_desc)(a.alloc(C.sizeof_quire_lease_desc))
	*desc = C.quire_lease_desc{
		struct_size: C.sizeof_quire_lease_desc,
		ns:          ns,
		keys:        describeKeys(&a, &n, options.Keys),
		key_count:   n.u32("the number of Keys", len(options.Keys)),
		key_stride:  C.sizeof_quire_key,
	}
	if n.err != nil {
		return Lease{}, n.err
	}
	var out C.quire_lease
	_, err = c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_lease_create(cache, desc, &out, e)
	})
	if err != nil {
		return Lease{}, err
	}
	return Lease{c, out}, nil
}

func (l Lease) with(
	run func(cache *C.quire_cache, e *C.quire_error) C.quire_status,
) (C.quire_status, error) {
	if l.cache == nil {
		return 0, failed(ErrStale, "the Lease is empty: make one with NewLease")
	}
	return l.cache.with(run)
}

// leaseResults pools the structs that calls fill, as slots does.
var leaseResults = sync.Pool{New: func() any { return new(C.quire_lease_result) }}

// asked runs a call that may lack blocks, and returns its number of blocks.
func (l Lease) asked(run func(cache *C.quire_cache, result *C.quire_lease_result,
	e *C.quire_error) C.quire_status) (int, Shortage, error) {
	result := leaseResults.Get().(*C.quire_lease_result)
	defer leaseResults.Put(result)
	*result = C.quire_lease_result{struct_size: C.sizeof_quire_lease_result}
	status, err := l.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return run(cache, result, e)
	})
	if err != nil {
		return 0, Shortage{}, err
	}
	if status == statusNoBlocks {
		return 0, Shortage{int(result.blocks_short), uint32(result.reason)}, nil
	}
	return int(result.blocks), Shortage{}, nil
}

func idsOf(ids []int32) *C.int32_t {
	if len(ids) == 0 {
		return nil
	}
	return (*C.int32_t)(unsafe.Pointer(&ids[0]))
}

// handleFor returns the step's handle for a call; there must be a step.
func (s *Step) handleFor(call string) (C.quire_step, error) {
	if s == nil {
		return 0, failed(ErrArg, "%s needs the open step", call)
	}
	return s.handle, nil
}

// End ends the lease and gives all its blocks back; published ones stay cached. ErrBusy: the open
// step has changed the lease.
func (l Lease) End() error {
	_, err := l.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_lease_end(cache, l.handle, e)
	})
	return err
}

// Info returns the lease's counts, with the changes of the open step.
func (l Lease) Info() (LeaseInfo, error) {
	info := C.quire_lease_info{struct_size: C.sizeof_quire_lease_info}
	_, err := l.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_lease_get_info(cache, l.handle, &info, e)
	})
	return LeaseInfo{uint64(info.ns), uint64(info.blocks_held), uint64(info.holds),
		uint64(info.blocks_lost)}, err
}

// Blocks lists what the lease holds in a group, with the changes of the open step. A migration
// changes the ids and keeps the order.
func (l Lease) Blocks(group int) ([]LeaseBlock, error) {
	var n counts
	inGroup := n.u32("group", group)
	if n.err != nil {
		return nil, n.err
	}
	list := make([]LeaseBlock, 64)
	for {
		var count C.uint32_t
		_, err := l.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_lease_blocks(cache, l.handle, inGroup, 0, unsafe.Pointer(&list[0]),
				C.uint32_t(len(list)), C.sizeof_quire_lease_block, &count, e)
		})
		if err != nil {
			return nil, err
		}
		if int(count) <= len(list) {
			return list[:count], nil
		}
		list = make([]LeaseBlock, count)
	}
}

// Take takes len(ids) blocks of a group for the engine to fill, free ones before cached ones, and
// writes their ids. It takes all of them or none: a shortage is a result. ErrBusy: the step is
// committed.
func (l Lease) Take(step *Step, group int, ids []int32) (Shortage, error) {
	handle, err := step.handleFor("Take")
	if err != nil {
		return Shortage{}, err
	}
	var n counts
	inGroup, count := n.u32("group", group), n.u32("the length of ids", len(ids))
	if n.err != nil {
		return Shortage{}, n.err
	}
	_, short, err := l.asked(func(cache *C.quire_cache, result *C.quire_lease_result,
		e *C.quire_error) C.quire_status {
		return C.q_lease_take(cache, handle, l.handle, inGroup, count, idsOf(ids), result, e)
	})
	return short, err
}

// Give gives blocks back, or unpins them: the lease holds each once less. An id may occur as often
// as the lease holds it. A block that no one holds any more stays cached if it is published, else
// it is free, and the step's own items may get it. ErrArg: the lease does not hold a block, or not
// that often; nothing changed.
func (l Lease) Give(step *Step, group int, ids []int32) error {
	handle, err := step.handleFor("Give")
	if err != nil {
		return err
	}
	var n counts
	inGroup, count := n.u32("group", group), n.u32("the length of ids", len(ids))
	if n.err != nil {
		return n.err
	}
	_, err = l.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_lease_give(cache, handle, l.handle, inGroup, idsOf(ids), count, e)
	})
	return err
}

// Pin makes the lease hold blocks once more: its own, or any published block of its namespace. No
// tokens are compared, and what was evicted since may hold other content of the namespace; Match
// compares. A shortage is one of the quota, and a result.
func (l Lease) Pin(step *Step, group int, ids []int32) (Shortage, error) {
	handle, err := step.handleFor("Pin")
	if err != nil {
		return Shortage{}, err
	}
	var n counts
	inGroup, count := n.u32("group", group), n.u32("the length of ids", len(ids))
	if n.err != nil {
		return Shortage{}, n.err
	}
	_, short, err := l.asked(func(cache *C.quire_cache, result *C.quire_lease_result,
		e *C.quire_error) C.quire_status {
		return C.q_lease_pin(cache, handle, l.handle, inGroup, idsOf(ids), count, result, e)
	})
	return short, err
}

// Match finds the longest cached run of whole spans at the front of tokens, all of it compared,
// and returns how many spans that is. ids is [len(tokens) / SpanTokens][SpanBlocks]; it receives
// the blocks, span by span, and 0 where a group holds none, and entries after the run are not
// written. A span has a block per group, or where groups have BlockTokens of their own, those of
// the first group that fill it, then the next one's, and so on. The step may be nil unless MatchPin
// is asked; with it, content of unfinished steps counts only on its queues. A shortage, only with
// MatchPin, is a result. ErrUnsupported: every group of the cache has a window.
func (l Lease) Match(step *Step, tokens []uint32, how MatchHow,
	ids []int32) (int, Shortage, error) {
	var handle C.quire_step
	if step != nil {
		handle = step.handle
	} else if how == MatchPin {
		return 0, Shortage{}, failed(ErrArg, "a Match that pins needs the open step")
	}
	count, entries, err := l.run(len(tokens))
	if err != nil {
		return 0, Shortage{}, err
	}
	if len(ids) < entries {
		return 0, Shortage{}, failed(ErrArg, "ids has %d entries: %d tokens need %d", len(ids),
			len(tokens), entries)
	}
	if entries == 0 {
		ids = make([]int32, 1) // not written, but no array at all is refused
	}
	return l.asked(func(cache *C.quire_cache, result *C.quire_lease_result,
		e *C.quire_error) C.quire_status {
		return C.q_lease_match(cache, handle, l.handle, numbers(tokens), count, C.uint32_t(how),
			idsOf(ids), result, e)
	})
}

// Publish makes blocks that the engine filled findable: ids, which is
// [len(tokens) / SpanTokens][SpanBlocks] as Match has it, names those of the lease that hold
// tokens, a number of whole spans. named, as long and possibly the same slice, receives the block
// that is found at each span from now on. Where that is another one, the tokens were there
// already: the lease now holds that block as well, and the caller's is for the caller to give back.
// It returns how many spans are new. The engine is trusted for the content of its blocks, and for
// nothing else.
//
// A shortage is one of the quota, and a result. ErrArg: an id is not one that the lease may
// publish. ErrBusy: a block of the run is being computed on another queue. ErrUnsupported: the
// cache has NoPrefix, or every group has a window.
func (l Lease) Publish(step *Step, tokens []uint32, ids, named []int32) (int, Shortage, error) {
	handle, err := step.handleFor("Publish")
	if err != nil {
		return 0, Shortage{}, err
	}
	count, entries, err := l.run(len(tokens))
	if err != nil {
		return 0, Shortage{}, err
	}
	if len(ids) != entries || len(named) < entries {
		return 0, Shortage{}, failed(ErrArg, "ids has %d entries and named %d: %d tokens need %d",
			len(ids), len(named), len(tokens), entries)
	}
	if overlap(ids, named[:entries]) {
		return 0, Shortage{}, failed(ErrArg, "ids and named overlap, and are not the same slice")
	}
	return l.asked(func(cache *C.quire_cache, result *C.quire_lease_result,
		e *C.quire_error) C.quire_status {
		return C.q_lease_publish(cache, handle, l.handle, numbers(tokens), count, idsOf(ids),
			idsOf(named), result, e)
	})
}

// Find is Match without a step, of tokens as engines keep them: each 0 to 2^32 - 2. It does not
// pin. ErrUnsupported: every group of the cache has a window.
func (l Lease) Find(tokens []int64, how MatchHow, ids []int32) (int, error) {
	if how == MatchPin {
		return 0, failed(ErrArg, "Find does not pin: Match does, in a step")
	}
	count, entries, err := l.run(len(tokens))
	if err != nil {
		return 0, err
	}
	if len(ids) < entries {
		return 0, failed(ErrArg, "ids has %d entries: %d tokens need %d", len(ids), len(tokens),
			entries)
	}
	if entries == 0 {
		ids = make([]int32, 1) // not written, but no array at all is refused
	}
	found, _, err := l.asked(func(cache *C.quire_cache, result *C.quire_lease_result,
		e *C.quire_error) C.quire_status {
		return C.q_lease_find(cache, l.handle, wide(tokens), count, C.uint32_t(how), idsOf(ids),
			result, e)
	})
	return found, err
}

// Insert publishes blocks that the engine filled and gives them back, final at once: what becomes
// of a request's blocks when it is over, where a lease holds all that is not cached. tokens is a
// number of whole blocks; slots[i] is the place of token i: block * BlockTokens + i % BlockTokens.
// named receives the block that is found at each span from now on; where the tokens were there
// before, that is not the caller's, which is left alone. It returns how many blocks are new.
//
// ErrArg: a token is out of range, or the slots are not those of whole blocks that the lease has
// taken and holds alone. ErrBusy: a step is open, or not done. ErrUnsupported: the cache has
// NoPrefix, or is not one of one group with full attention. Nothing changed then.
func (l Lease) Insert(tokens, slots []int64, named []int32) (int, error) {
	count, entries, err := l.run(len(tokens))
	if err != nil {
		return 0, err
	}
	if len(slots) != len(tokens) || len(named) < entries {
		return 0, failed(ErrArg, "slots has %d entries and named %d: %d tokens need %d and %d",
			len(slots), len(named), len(tokens), len(tokens), entries)
	}
	inserted, _, err := l.asked(func(cache *C.quire_cache, result *C.quire_lease_result,
		e *C.quire_error) C.quire_status {
		return C.q_lease_insert(cache, l.handle, wide(tokens), wide(slots), count, idsOf(named),
			result, e)
	})
	return inserted, err
}

func wide(slice []int64) *C.int64_t {
	if len(slice) == 0 {
		return nil
	}
	return (*C.int64_t)(unsafe.Pointer(&slice[0]))
}

// run returns how many tokens there are, and how many entries the ids of their blocks have.
func (l Lease) run(tokens int) (C.uint32_t, int, error) {
	if l.cache == nil {
		return 0, 0, failed(ErrStale, "the Lease is empty: make one with NewLease")
	}
	var n counts
	count := n.u32("the length of tokens", tokens)
	return count, tokens / l.cache.spanTokens * l.cache.spanBlocks, n.err
}

// overlap is true for slices that share memory without being the same: the library would read ids
// that it has already replaced.
func overlap(ids, named []int32) bool {
	if len(ids) == 0 || &ids[0] == &named[0] {
		return false
	}
	a, b := uintptr(unsafe.Pointer(&ids[0])), uintptr(unsafe.Pointer(&named[0]))
	size := uintptr(len(ids)) * unsafe.Sizeof(ids[0])
	return a < b+size && b < a+size
}

// Forget withdraws published blocks of the lease's namespace, of all groups at the same tokens,
// and returns how many: those that a sequence or another lease holds stay. None of them is found
// any more, nor anything after them. ErrBusy: a step is open.
func (l Lease) Forget(group int, ids []int32) (int, error) {
	var n counts
	inGroup, count := n.u32("group", group), n.u32("the length of ids", len(ids))
	if n.err != nil {
		return 0, n.err
	}
	var forgotten C.uint32_t
	_, err := l.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_lease_forget(cache, l.handle, inGroup, idsOf(ids), count, &forgotten, e)
	})
	return int(forgotten), err
}

// Evict evicts up to len(ids) cached blocks of a group, of whichever namespace, the least recently
// used first, and with each the cached blocks of its span in the other groups. It writes the ids
// of the group's blocks that are free now, and returns how many. With OnePool any group stands for
// the pool. A block that is held, or that unfinished work may touch, stays. ErrBusy: a step is
// open.
func (c *Cache) Evict(group int, ids []int32) (int, error) {
	var n counts
	inGroup, count := n.u32("group", group), n.u32("the length of ids", len(ids))
	if n.err != nil {
		return 0, n.err
	}
	var evicted C.uint32_t
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_evict(cache, inGroup, count, idsOf(ids), &evicted, e)
	})
	return int(evicted), err
}
