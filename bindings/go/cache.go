// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// DType is an element type; its value is DLPack's: code << 16 | bits << 8 | lanes.
type DType uint32

const (
	I4     DType = 0<<16 | 4<<8 | 1
	I8     DType = 0<<16 | 8<<8 | 1
	F16    DType = 2<<16 | 16<<8 | 1
	F32    DType = 2<<16 | 32<<8 | 1
	BF16   DType = 4<<16 | 16<<8 | 1
	F8E4M3 DType = 10<<16 | 8<<8 | 1
	F8E5M2 DType = 12<<16 | 8<<8 | 1
)

func (d DType) bits() uint64 { return uint64(d >> 8 & 0xFF) }

// GroupKind says which tokens a token sees.
type GroupKind uint32

const (
	Full      GroupKind = 0 // all before it
	Window    GroupKind = 1 // the newest Window tokens, and the first SinkTokens
	Chunked   GroupKind = 2 // those before it in its own chunk of Window tokens
	Latent    GroupKind = 3 // all, over one latent row per token (MLA)
	Cross     GroupKind = 4 // another input, written once
	Recurrent GroupKind = 5 // one state per block (Mamba, linear attention); only without memory
)

// Scale says where the scales of a pool's codes come from.
type Scale uint32

const (
	NoScale        Scale = 0
	TensorScale    Scale = 1 // from a calibration, one per layer
	HeadScale      Scale = 2 // from a calibration, one per KV head
	TokenHeadScale Scale = 3 // made at each write, one per token and KV head
)

// Group is layers that share attention kind and geometry; see quire_group_desc in quire/cache.h.
// 0 in VHeadDim, in VDType, and then in VScale, means the same as for K; a DType of 0 is F16.
type Group struct {
	Kind                               GroupKind
	Layers, KVHeads, HeadDim, VHeadDim int
	DType, VDType                      DType
	Window, SinkTokens                 int
	Scale, VScale                      Scale
	Blocks                             int // in its pool; 0: from CacheOptions
	BlockTokens                        int // of its blocks; 0: the cache's
	StateInterval, DraftStates         int // only for GroupRecurrent
	// OpaqueBytes is 0, or bytes of a token in a layer, in a format that the library does not
	// know. Then there are no heads, dims and types, and the cache has no memory.
	OpaqueBytes int
}

// Shard is one device's part of a cache; a count of 0 means all that follow.
type Shard struct {
	Device                                       *Device
	LayerBegin, LayerCount, HeadBegin, HeadCount int
}

// CacheFlags are QUIRE_CACHE_* of quire/cache.h.
type CacheFlags uint32

const (
	NoPrefix   CacheFlags = 1 << 0
	FixedHash  CacheFlags = 1 << 1
	Log        CacheFlags = 1 << 2
	Follower   CacheFlags = 1 << 3
	Calibrate  CacheFlags = 1 << 4
	ZeroOnFree CacheFlags = 1 << 5
	Audit      CacheFlags = 1 << 6
	// Events lets the cache note which published blocks change: Cache.Events. EventTokens puts the
	// default namespace's tokens into them.
	Events      CacheFlags = 1 << 7
	EventTokens CacheFlags = 1 << 8
	// HostPrefixes lets evicted prefixes live on in the host tier.
	HostPrefixes CacheFlags = 1 << 9
	// OnePool lets all groups take their blocks from one pool; only without memory.
	OnePool CacheFlags = 1 << 10
	// LeasesOnly makes a cache without sequences, whose leases insert and find blocks of few tokens
	// in less time.
	LeasesOnly CacheFlags = 1 << 11
	// PartialHits lets a hit end within a block, which is copied.
	PartialHits CacheFlags = 1 << 12
)

// CacheOptions are quire_cache_desc of quire/cache.h; 0 is a field's default. Without shards the
// cache is bookkeeping-only. Set exactly one of Blocks, PoolBytes and PoolFraction, unless every
// group states its own Blocks.
type CacheOptions struct {
	Groups                          []Group
	Shards                          []Shard
	LayerGroups                     []uint32 // group of each layer; nil: in the order of the groups
	BlockTokens                     int
	Blocks                          int
	PoolBytes, ReserveBytes         uint64
	PoolFraction                    float32
	HostBytes                       uint64
	HostBlocks                      int
	MaxSequences, MaxSequenceTokens int
	WatermarkBlocks                 int
	Flags                           CacheFlags
	VictimByPriority                bool
	HashSeed                        uint64
	SwapBytesPerSecond              float32
	PrefillTokensPerSecond          float32
	Calibration                     []byte
	CalibrationMargin               float32
}

// Cache is a paged KV cache.
type Cache struct {
	object
	instance    *Instance
	groups      []Group
	layers      []uint32     // group of each layer
	shards      atomic.Value // []Shard: where it is now
	blockTokens int
	spanTokens  int
	spanBlocks  int
}

func describeGroups(a *arena, n *counts, groups []Group) *C.quire_group_desc {
	array := (*C.quire_group_desc)(a.alloc(uintptr(len(groups)) * C.sizeof_quire_group_desc))
	for i, desc := range unsafe.Slice(array, len(groups)) {
		group := groups[i]
		v := group.VHeadDim
		if v == 0 {
			v = group.HeadDim
		}
		desc = C.quire_group_desc{
			struct_size:  C.sizeof_quire_group_desc,
			kind:         C.uint32_t(group.Kind),
			window:       n.u32(of("Groups", i, "Window"), group.Window),
			layer_count:  n.u32(of("Groups", i, "Layers"), group.Layers),
			kv_heads:     n.u32(of("Groups", i, "KVHeads"), group.KVHeads),
			k_head_dim:   n.u32(of("Groups", i, "HeadDim"), group.HeadDim),
			v_head_dim:   n.u32(of("Groups", i, "VHeadDim"), v),
			k_dtype:      C.uint32_t(group.DType),
			v_dtype:      C.uint32_t(group.VDType),
			blocks:       n.u32(of("Groups", i, "Blocks"), group.Blocks),
			sink_tokens:  n.u32(of("Groups", i, "SinkTokens"), group.SinkTokens),
			k_scale:      C.uint32_t(group.Scale),
			v_scale:      C.uint32_t(group.VScale),
			block_tokens: n.u32(of("Groups", i, "BlockTokens"), group.BlockTokens),

			state_interval: n.u32(of("Groups", i, "StateInterval"), group.StateInterval),
			draft_states:   n.u32(of("Groups", i, "DraftStates"), group.DraftStates),
			opaque_bytes:   n.u32(of("Groups", i, "OpaqueBytes"), group.OpaqueBytes),
		}
		unsafe.Slice(array, len(groups))[i] = desc
	}
	return array
}

// describeShards also holds the shards' devices for the call, until release is called.
func describeShards(a *arena, n *counts, shards []Shard) (*C.quire_shard_desc, func(), error) {
	objects := make([]*object, 0, len(shards))
	for i, shard := range shards {
		if shard.Device == nil {
			return nil, func() {}, failed(ErrArg, "shard %d has no device", i)
		}
		objects = append(objects, &shard.Device.object)
	}
	pointers, release, err := useAll(objects...)
	if err != nil || len(shards) == 0 {
		return nil, release, err
	}
	array := (*C.quire_shard_desc)(a.alloc(uintptr(len(shards)) * C.sizeof_quire_shard_desc))
	for i, shard := range shards {
		unsafe.Slice(array, len(shards))[i] = C.quire_shard_desc{
			struct_size: C.sizeof_quire_shard_desc,
			device:      (*C.quire_device)(pointers[i]),
			layer_begin: n.u32(of("Shards", i, "LayerBegin"), shard.LayerBegin),
			layer_count: n.u32(of("Shards", i, "LayerCount"), shard.LayerCount),
			head_begin:  n.u32(of("Shards", i, "HeadBegin"), shard.HeadBegin),
			head_count:  n.u32(of("Shards", i, "HeadCount"), shard.HeadCount),
		}
	}
	return array, release, nil
}

func (a *arena) uint32s(numbers []uint32) *C.uint32_t {
	if numbers == nil {
		return nil
	}
	block := a.alloc(uintptr(len(numbers)) * 4)
	copy(unsafe.Slice((*uint32)(block), len(numbers)), numbers)
	return (*C.uint32_t)(block)
}

// maxLayers is the most layers that a cache can have.
const maxLayers = 4096

func layersOf(options *CacheOptions) ([]uint32, error) {
	var counted []uint32
	total := 0
	for g, group := range options.Groups {
		if group.Layers < 0 || group.Layers > maxLayers-total {
			return nil, failed(ErrArg, "%s is %d: it must be at least 0, and a cache has at most "+
				"%d layers", of("Groups", g, "Layers"), group.Layers, maxLayers)
		}
		total += group.Layers
		for i := 0; i < group.Layers; i++ {
			counted = append(counted, uint32(g))
		}
	}
	if options.LayerGroups == nil {
		return counted, nil
	}
	if len(options.LayerGroups) != len(counted) {
		return nil, failed(ErrArg, "LayerGroups names %d layers; the groups have %d",
			len(options.LayerGroups), len(counted))
	}
	return append([]uint32(nil), options.LayerGroups...), nil
}

// NewCache creates a cache.
func (i *Instance) NewCache(options CacheOptions) (*Cache, error) {
	instance, err := i.use()
	if err != nil {
		return nil, err
	}
	defer i.done()
	layers, err := layersOf(&options)
	if err != nil {
		return nil, err
	}
	var a arena
	defer a.free()
	var n counts
	shards, release, err := describeShards(&a, &n, options.Shards)
	defer release()
	if err != nil {
		return nil, err
	}
	desc := (*C.quire_cache_desc)(a.alloc(C.sizeof_quire_cache_desc))
	*desc = C.quire_cache_desc{
		struct_size:               C.sizeof_quire_cache_desc,
		flags:                     C.uint32_t(options.Flags),
		shards:                    shards,
		groups:                    describeGroups(&a, &n, options.Groups),
		layer_groups:              a.uint32s(options.LayerGroups),
		shard_count:               n.u32("the number of Shards", len(options.Shards)),
		shard_stride:              C.sizeof_quire_shard_desc,
		group_count:               n.u32("the number of Groups", len(options.Groups)),
		group_stride:              C.sizeof_quire_group_desc,
		block_tokens:              n.u32("BlockTokens", options.BlockTokens),
		max_sequences:             n.u32("MaxSequences", options.MaxSequences),
		max_sequence_tokens:       n.u32("MaxSequenceTokens", options.MaxSequenceTokens),
		blocks:                    n.u32("Blocks", options.Blocks),
		pool_bytes:                C.uint64_t(options.PoolBytes),
		reserve_bytes:             C.uint64_t(options.ReserveBytes),
		pool_fraction:             C.float(options.PoolFraction),
		watermark_blocks:          n.u32("WatermarkBlocks", options.WatermarkBlocks),
		host_bytes:                C.uint64_t(options.HostBytes),
		host_blocks:               n.u32("HostBlocks", options.HostBlocks),
		victim:                    flag(options.VictimByPriority, 1),
		calibration_margin:        C.float(options.CalibrationMargin),
		hash_seed:                 C.uint64_t(options.HashSeed),
		swap_bytes_per_second:     C.float(options.SwapBytesPerSecond),
		prefill_tokens_per_second: C.float(options.PrefillTokensPerSecond),
		calibration:               a.bytes(options.Calibration),
		calibration_bytes:         C.uint64_t(len(options.Calibration)),
	}
	if n.err != nil {
		return nil, n.err
	}
	var out *C.quire_cache
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_cache_create((*C.quire_instance)(instance), desc, &out, e)
	})
	if err != nil {
		return nil, err
	}
	cache := &Cache{
		object:   object{kind: "cache", pointer: unsafe.Pointer(out)},
		instance: i,
		groups:   append([]Group(nil), options.Groups...),
		layers:   layers,
	}
	cache.shards.Store(append([]Shard(nil), options.Shards...))
	var info C.quire_cache_info
	info.struct_size = C.sizeof_quire_cache_info
	_, err = cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_get_info(cache, &info, e)
	})
	if err != nil {
		cache.Close()
		return nil, err
	}
	cache.blockTokens = int(info.block_tokens)
	cache.spanTokens = int(info.span_tokens)
	cache.spanBlocks = int(info.span_blocks)
	return cache, nil
}

// Groups returns the groups that the cache was created with.
func (c *Cache) Groups() []Group { return append([]Group(nil), c.groups...) }

// BlockTokens returns how many tokens a block holds.
func (c *Cache) BlockTokens() int { return c.blockTokens }

// SpanTokens returns in spans of how many tokens a prefix is published and found: BlockTokens, or
// a span of it where groups have BlockTokens of their own.
func (c *Cache) SpanTokens() int { return c.spanTokens }

// SpanBlocks returns how many blocks a span has in all groups.
func (c *Cache) SpanBlocks() int { return c.spanBlocks }

// with runs a call on the cache.
func (c *Cache) with(
	run func(cache *C.quire_cache, e *C.quire_error) C.quire_status,
) (C.quire_status, error) {
	pointer, err := c.use()
	if err != nil {
		return 0, err
	}
	defer c.done()
	return call(func(e *C.quire_error) C.quire_status { return run((*C.quire_cache)(pointer), e) })
}

// Close destroys the cache and all its sequences. ErrBusy: a batch is alive, or a step is open or
// not done.
func (c *Cache) Close() error {
	return c.close(func(pointer unsafe.Pointer) error {
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_cache_destroy((*C.quire_cache)(pointer), e)
		})
		return err
	})
}

// Reset forgets every published prefix, after a change of weights.
func (c *Cache) Reset() error {
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_reset(cache, e)
	})
	return err
}

// Check verifies every invariant of the cache; O(everything).
func (c *Cache) Check() error {
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_check(cache, e)
	})
	return err
}

// Dump returns everything that decides what the cache does next, as text (docs/dump.md). It works
// on a stopped cache too. withTokens includes prompts and answers, not only their hashes.
func (c *Cache) Dump(withTokens bool) ([]byte, error) {
	content := make([]byte, 1<<16)
	for {
		var size C.uint64_t
		status, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_cache_dump(cache, flag(withTokens, 1), unsafe.Pointer(&content[0]),
				C.uint64_t(len(content)), &size, e)
		})
		if err != nil {
			return nil, err
		}
		if status != statusIncomplete {
			return content[:size], nil
		}
		content = make([]byte, size)
	}
}

// Stats are quire_cache_stats of quire/cache.h.
type Stats struct {
	PrefixCacheQueries, PrefixCacheHits                   uint64
	Preemptions, PreemptionsSwap, PreemptionsRecompute    uint64
	TokensPreempted, Evictions, CopiesOnWrite             uint64
	BlocksSwappedOut, BlocksSwappedIn, Forks, Steps       uint64
	BytesHashed, BytesCompared, Sequences, SequencesLost  uint64
	HostBlocksUsed, BlocksTotal, BlocksFree, BlocksCached uint64
	BlocksHeld, Nodes                                     uint64
	Usage                                                 float64
	Migrations, BytesMigrated                             uint64
	BlocksDemoted, BlocksPromoted, HostBlocksCached       uint64
	Leases, BlocksLeased                                  uint64
}

// Stats returns the current counts.
func (c *Cache) Stats() (Stats, error) {
	var s C.quire_cache_stats
	s.struct_size = C.sizeof_quire_cache_stats
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_get_stats(cache, &s, e)
	})
	return Stats{
		PrefixCacheQueries: uint64(s.prefix_cache_queries), PrefixCacheHits: uint64(s.prefix_cache_hits),
		Preemptions: uint64(s.num_preemptions), PreemptionsSwap: uint64(s.preemptions_swap),
		PreemptionsRecompute: uint64(s.preemptions_recompute),
		TokensPreempted:      uint64(s.tokens_preempted), Evictions: uint64(s.evictions),
		CopiesOnWrite: uint64(s.copies_on_write), BlocksSwappedOut: uint64(s.blocks_swapped_out),
		BlocksSwappedIn: uint64(s.blocks_swapped_in), Forks: uint64(s.forks), Steps: uint64(s.steps),
		BytesHashed: uint64(s.bytes_hashed), BytesCompared: uint64(s.bytes_compared),
		Sequences: uint64(s.sequences), SequencesLost: uint64(s.sequences_lost),
		HostBlocksUsed: uint64(s.host_blocks_used), BlocksTotal: uint64(s.blocks_total),
		BlocksFree: uint64(s.blocks_free), BlocksCached: uint64(s.blocks_cached),
		BlocksHeld: uint64(s.blocks_held), Nodes: uint64(s.nodes),
		Usage: float64(s.kv_cache_usage_perc), Migrations: uint64(s.migrations),
		BytesMigrated: uint64(s.bytes_migrated),
		BlocksDemoted: uint64(s.blocks_demoted), BlocksPromoted: uint64(s.blocks_promoted),
		HostBlocksCached: uint64(s.host_blocks_cached),
		Leases:           uint64(s.leases), BlocksLeased: uint64(s.blocks_leased),
	}, err
}

// Pool says where a group's K and V are on a shard: quire_pool_info of quire/cache.h, in bytes.
type Pool struct {
	Address, SizeBytes                                   uint64
	BlockStride, LayerStride, VOffset                    int64
	KHeadStride, KTokenStride, VHeadStride, VTokenStride int64
	Blocks, BlockTokens, HostBlocks                      int
	LayerBegin, LayerCount, HeadBegin, HeadCount         int
}

// Pool describes the pool of a group on a shard.
func (c *Cache) Pool(group, shard int) (Pool, error) {
	var p C.quire_pool_info
	p.struct_size = C.sizeof_quire_pool_info
	var n counts
	inGroup, onShard := n.u32("group", group), n.u32("shard", shard)
	if n.err != nil {
		return Pool{}, n.err
	}
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_get_pool(cache, inGroup, onShard, &p, e)
	})
	return Pool{
		Address: uint64(p.address), SizeBytes: uint64(p.size_bytes),
		BlockStride: int64(p.block_stride), LayerStride: int64(p.layer_stride),
		VOffset: int64(p.v_offset), KHeadStride: int64(p.k_head_stride),
		KTokenStride: int64(p.k_token_stride), VHeadStride: int64(p.v_head_stride),
		VTokenStride: int64(p.v_token_stride), Blocks: int(p.blocks),
		BlockTokens: int(p.block_tokens), HostBlocks: int(p.host_blocks),
		LayerBegin: int(p.layer_begin), LayerCount: int(p.layer_count),
		HeadBegin: int(p.head_begin), HeadCount: int(p.head_count),
	}, err
}

// SaveCalibration returns what Calibrate has measured since the cache was created.
func (c *Cache) SaveCalibration(timeout time.Duration) ([]byte, error) {
	var size C.uint64_t
	save := func(content []byte) error {
		status, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			var to unsafe.Pointer
			if len(content) != 0 {
				to = unsafe.Pointer(&content[0])
			}
			return C.q_cache_save_calibration_wait(cache, to, C.uint64_t(len(content)), &size,
				nanoseconds(timeout), e)
		})
		return timedOut(status, err)
	}
	if err := save(nil); err != nil {
		return nil, err
	}
	content := make([]byte, size)
	return content, save(content)
}

// MigrateOptions say where a cache moves to: quire_migrate_desc of quire/migrate.h.
type MigrateOptions struct {
	Shards       []Shard
	Blocks       int
	PoolBytes    uint64
	PoolFraction float32
	HostBytes    uint64
	HostBlocks   int
	CopyHostTier bool
	Timeout      time.Duration // to wait for running steps; 0: no wait, negative: for ever
}

// Migration says what a migration did.
type Migration struct {
	Moved                                   bool // false: live blocks do not fit; nothing changed
	BlocksMoved, BlocksDropped, BlocksShort int
	BytesMoved, LiveBytes, HostBytesCopied  uint64
	HostBlocksKept, HostBlocksCopied        int
}

// Migrate moves the cache, all of it or nothing. The batches and queues from before the move can no
// longer be used.
func (c *Cache) Migrate(options MigrateOptions) (Migration, error) {
	var a arena
	defer a.free()
	var n counts
	shards, release, err := describeShards(&a, &n, options.Shards)
	defer release()
	if err != nil {
		return Migration{}, err
	}
	desc := (*C.quire_migrate_desc)(a.alloc(C.sizeof_quire_migrate_desc))
	*desc = C.quire_migrate_desc{
		struct_size:   C.sizeof_quire_migrate_desc,
		flags:         flag(options.CopyHostTier, 1),
		shards:        shards,
		shard_count:   n.u32("the number of Shards", len(options.Shards)),
		shard_stride:  C.sizeof_quire_shard_desc,
		blocks:        n.u32("Blocks", options.Blocks),
		pool_bytes:    C.uint64_t(options.PoolBytes),
		pool_fraction: C.float(options.PoolFraction),
		host_bytes:    C.uint64_t(options.HostBytes),
		host_blocks:   n.u32("HostBlocks", options.HostBlocks),
	}
	if n.err != nil {
		return Migration{}, n.err
	}
	var info C.quire_migrate_info
	info.struct_size = C.sizeof_quire_migrate_info
	status, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_migrate_wait(cache, desc, &info, nanoseconds(options.Timeout), e)
	})
	if err = timedOut(status, err); err != nil {
		return Migration{}, err
	}
	moved := status != statusNoBlocks
	if moved {
		c.shards.Store(append([]Shard(nil), options.Shards...))
	}
	return Migration{
		Moved: moved, BlocksMoved: int(info.blocks_moved), BlocksDropped: int(info.blocks_dropped),
		BlocksShort: int(info.blocks_short), BytesMoved: uint64(info.bytes_moved),
		LiveBytes: uint64(info.live_bytes), HostBytesCopied: uint64(info.host_bytes_copied),
		HostBlocksKept:   int(info.host_blocks_kept),
		HostBlocksCopied: int(info.host_blocks_copied),
	}, nil
}
