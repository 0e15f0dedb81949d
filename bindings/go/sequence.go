// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import "unsafe"

// Unknown stands for a token that is still being sampled.
const Unknown = 0xFFFFFFFF

// Key is something besides the tokens that decides K and V: of tokens [Begin, End), or of all.
type Key struct {
	Type       KeyType
	Content    []byte
	Begin, End int
}

// KeyType is QUIRE_KEY_* of quire/sequence.h.
type KeyType uint32

const (
	AdapterKey KeyType = 1
	SaltKey    KeyType = 2
	MediaKey   KeyType = 3
	OtherKey   KeyType = 4
)

// Namespace is a tenant: its sequences share blocks only with one another.
type Namespace struct {
	cache  *Cache
	handle C.quire_namespace
}

// NewNamespace creates a namespace. The key comes from the server, never from a request. A quota of
// 0 blocks means no limit.
func (c *Cache) NewNamespace(key []byte, quotaBlocks int) (*Namespace, error) {
	return c.NewNamespaceWith(NamespaceOptions{Key: key, QuotaBlocks: quotaBlocks})
}

// NamespaceOptions are quire_namespace_desc of quire/cache.h.
type NamespaceOptions struct {
	Key         []byte // from the server, never from a request
	QuotaBlocks int    // 0: no limit
	EventTokens bool   // events carry the namespace's tokens
}

// NewNamespaceWith creates a namespace.
func (c *Cache) NewNamespaceWith(options NamespaceOptions) (*Namespace, error) {
	var a arena
	defer a.free()
	var n counts
	desc := (*C.quire_namespace_desc)(a.alloc(C.sizeof_quire_namespace_desc))
	desc.struct_size = C.sizeof_quire_namespace_desc
	desc.flags = flag(options.EventTokens, C.QUIRE_NAMESPACE_EVENT_TOKENS)
	desc.key, desc.key_size_bytes = a.bytes(options.Key), n.u32("the size of Key", len(options.Key))
	desc.quota_blocks = n.u32("QuotaBlocks", options.QuotaBlocks)
	if n.err != nil {
		return nil, n.err
	}
	var out C.quire_namespace
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_namespace_create(cache, desc, &out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Namespace{c, out}, nil
}

// Handle returns the number by which an Event names the namespace.
func (n *Namespace) Handle() uint64 { return uint64(n.handle) }

// handleFor returns the handle for a call on the cache; a nil namespace is the default one.
func (n *Namespace) handleFor(c *Cache) (C.quire_namespace, error) {
	if n == nil {
		return 0, nil
	}
	if n.cache != c {
		return 0, failed(ErrStale, "the namespace belongs to another cache")
	}
	return n.handle, nil
}

// Close ends the namespace. ErrBusy: sequences or leases live in it.
func (n *Namespace) Close() error {
	_, err := n.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_namespace_destroy(cache, n.handle, e)
	})
	return err
}

// SequenceOptions are quire_seq_desc of quire/sequence.h.
type SequenceOptions struct {
	Namespace   *Namespace
	Keys        []Key
	Priority    int
	CrossTokens int
}

// SequenceFlags are QUIRE_SEQ_* of quire/sequence.h.
type SequenceFlags uint32

const (
	Swapped     SequenceFlags = 1 << 0
	Lost        SequenceFlags = 1 << 1
	InStep      SequenceFlags = 1 << 2
	Preempted   SequenceFlags = 1 << 3
	Unpublished SequenceFlags = 1 << 4
)

// SequenceInfo is quire_seq_info of quire/sequence.h.
type SequenceInfo struct {
	Flags                             SequenceFlags
	KnownTokens, ComputedTokens       int
	DraftTokens, LookaheadTokens      int
	BlocksHeld, Preemptions, Priority int
}

// Sequence is one token stream. It lives until it is ended, or its cache is closed.
type Sequence struct {
	cache  *Cache
	handle C.quire_seq
}

// Handle returns the number by which an Item names the sequence.
func (s Sequence) Handle() uint64 { return uint64(s.handle) }

// describe returns the quire_seq_desc of a new sequence.
func (o *SequenceOptions) describe(c *Cache, a *arena) (*C.quire_seq_desc, error) {
	desc := (*C.quire_seq_desc)(a.alloc(C.sizeof_quire_seq_desc))
	desc.struct_size = C.sizeof_quire_seq_desc
	var n counts
	desc.priority = n.i32("Priority", o.Priority)
	desc.cross_tokens = n.u32("CrossTokens", o.CrossTokens)
	ns, err := o.Namespace.handleFor(c)
	if err != nil {
		return nil, err
	}
	desc.ns = ns
	desc.keys, desc.key_count = describeKeys(a, &n, o.Keys), n.u32("the number of Keys", len(o.Keys))
	desc.key_stride = C.sizeof_quire_key
	return desc, n.err
}

func describeKeys(a *arena, n *counts, keys []Key) *C.quire_key {
	if len(keys) == 0 {
		return nil
	}
	array := (*C.quire_key)(a.alloc(uintptr(len(keys)) * C.sizeof_quire_key))
	for i, key := range keys {
		unsafe.Slice(array, len(keys))[i] = C.quire_key{
			_type:      C.uint32_t(key.Type),
			size_bytes: n.u32("the size of "+of("Keys", i, "Content"), len(key.Content)),
			bytes:      a.bytes(key.Content),
			begin:      n.u32(of("Keys", i, "Begin"), key.Begin),
			end:        n.u32(of("Keys", i, "End"), key.End),
		}
	}
	return array
}

// NewSequence creates an empty sequence; it holds no blocks until a step runs it.
func (c *Cache) NewSequence(options SequenceOptions) (Sequence, error) {
	var a arena
	defer a.free()
	desc, err := options.describe(c, &a)
	if err != nil {
		return Sequence{}, err
	}
	var out C.quire_seq
	_, err = c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_create(cache, desc, &out, e)
	})
	return Sequence{c, out}, err
}

func (s Sequence) with(run func(cache *C.quire_cache, e *C.quire_error) C.quire_status) error {
	if s.cache == nil {
		return failed(ErrStale, "the Sequence is empty: make one with NewSequence")
	}
	_, err := s.cache.with(run)
	return err
}

// End gives the sequence's blocks back. Its published blocks stay cached, unless dropPrefix is set.
func (s Sequence) End(dropPrefix bool) error {
	return s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_end(cache, s.handle, flag(dropPrefix, 1), e)
	})
}

// Fork creates a sequence from the first tokenCount known tokens, which shares their blocks.
func (s Sequence) Fork(tokenCount int) (Sequence, error) {
	var n counts
	count := n.u32("tokenCount", tokenCount)
	if n.err != nil {
		return Sequence{}, n.err
	}
	var out C.quire_seq
	err := s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_fork(cache, s.handle, count, &out, e)
	})
	return Sequence{s.cache, out}, err
}

// Truncate shortens the sequence to its first tokenCount known tokens.
func (s Sequence) Truncate(tokenCount int) error {
	var n counts
	count := n.u32("tokenCount", tokenCount)
	if n.err != nil {
		return n.err
	}
	return s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_truncate(cache, s.handle, count, e)
	})
}

// Accept keeps the first count drafts of the sequence's last item, and forgets the others.
func (s Sequence) Accept(count int) error {
	var n counts
	drafts := n.u32("count", count)
	if n.err != nil {
		return n.err
	}
	return s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_accept(cache, s.handle, drafts, e)
	})
}

// AcceptPath keeps the drafts on a path through the tree, given by their indices.
func (s Sequence) AcceptPath(path []uint32) error {
	var n counts
	count := n.u32("the length of path", len(path))
	if n.err != nil {
		return n.err
	}
	return s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_accept_path(cache, s.handle, numbers(path), count, e)
	})
}

// SetTokens names tokens that were added as Unknown, from position on.
func (s Sequence) SetTokens(position int, tokens []uint32) error {
	if s.cache == nil {
		return failed(ErrStale, "the Sequence is empty: make one with NewSequence")
	}
	var n counts
	span := Span{Sequence: s.Handle(), Position: uint32(n.u32("position", position)),
		TokenCount: uint32(n.u32("the length of tokens", len(tokens)))}
	if n.err != nil {
		return n.err
	}
	return s.cache.SetTokens([]Span{span}, tokens)
}

// Probe returns how many of the sequence's tokens, followed by tokens, the cache would find now.
func (s Sequence) Probe(tokens []uint32) (int, error) {
	var n counts
	count := n.u32("the length of tokens", len(tokens))
	if n.err != nil {
		return 0, n.err
	}
	var hits C.uint32_t
	err := s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_prefix_probe(cache, s.handle, numbers(tokens), count, &hits, e)
	})
	return int(hits), err
}

// Blocks returns the block table in a group; 0 is the null block. Given the open step, the table is
// as planned.
func (s Sequence) Blocks(group int, step *Step) ([]int32, error) {
	var handle C.quire_step
	if step != nil {
		handle = step.handle
	}
	var n counts
	inGroup := n.u32("group", group)
	if n.err != nil {
		return nil, n.err
	}
	ids := make([]int32, 64)
	for {
		var count C.uint32_t
		err := s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_step_blocks(cache, handle, s.handle, inGroup, 0,
				(*C.int32_t)(unsafe.Pointer(&ids[0])), C.uint32_t(len(ids)), &count, e)
		})
		if err != nil {
			return nil, err
		}
		if int(count) <= len(ids) {
			return ids[:count], nil
		}
		ids = make([]int32, count)
	}
}

// Info describes the sequence.
func (s Sequence) Info() (SequenceInfo, error) {
	var info C.quire_seq_info
	info.struct_size = C.sizeof_quire_seq_info
	err := s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_get_info(cache, s.handle, &info, e)
	})
	return SequenceInfo{
		Flags: SequenceFlags(info.flags), KnownTokens: int(info.known_tokens),
		ComputedTokens: int(info.computed_tokens), DraftTokens: int(info.draft_tokens),
		LookaheadTokens: int(info.lookahead_tokens), BlocksHeld: int(info.blocks_held),
		Preemptions: int(info.preemptions), Priority: int(info.priority),
	}, err
}
