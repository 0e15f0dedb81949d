// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// TierWrite says which cached blocks are written to a store: QUIRE_TIER_WRITE_* of
// quire/cache_tier.h.
type TierWrite uint32

const (
	TierWriteNone      TierWrite = 0
	TierWriteThrough   TierWrite = 1 // each block, once the step that computes it has run
	TierWriteSelective TierWrite = 2 // each block that an item found on the device once
	TierWriteBack      TierWrite = 3 // each block that is soon to be evicted
)

// AttachOptions are quire_cache_tier_desc of quire/cache_tier.h; 0 is a field's default.
type AttachOptions struct {
	Fingerprint                 [32]byte // names the weights, and all else that decides K and V
	Write                       TierWrite
	MinLoadTokens               int
	LoadTimeout, LoadExpiry     time.Duration
	MaxLoadBytes, MaxWriteBytes uint64
	MaxToldBlocks               uint64 // of the store, of which a reader of events is told
	Followers                   int    // how many a leader has; 0 for all other caches
}

// TierProgress says how far a cache's tier is: quire_cache_tier_progress of quire/cache_tier.h.
type TierProgress struct {
	LoadsRunning, LoadsReady int
	LoadsEnded, BlocksQueued uint64
	Descriptor               int // for poll; -1: the store has no such thing
}

// CacheTierStats are counts since the tier was attached: quire_cache_tier_stats of
// quire/cache_tier.h.
type CacheTierStats struct {
	LoadsBegun, LoadsReady, LoadsUsed           uint64
	LoadsMissed, LoadsFailed, LoadsLate         uint64
	LoadsExpired, LoadsCancelled, LoadsShort    uint64
	TokensLoaded, BytesLoaded                   uint64
	ValuesDamaged, ValuesForeign                uint64
	BlocksWritten, BytesWritten, BlocksKnown    uint64
	BlocksRefused, BlocksDropped, BlocksEvicted uint64
}

// AttachTier puts a store below the cache. An item with MayLoad then waits for what the store has
// of its prompt: its outcome is Loading until it is sent again after the load. The tier serves this
// cache alone, and neither can be closed, until DetachTier.
func (c *Cache) AttachTier(tier *Tier, options AttachOptions) error {
	if tier == nil {
		return failed(ErrArg, "the tier is nil")
	}
	if options.LoadTimeout < 0 || options.LoadExpiry < 0 {
		return failed(ErrArg, "LoadTimeout and LoadExpiry must not be negative")
	}
	var n counts
	desc := C.quire_cache_tier_desc{
		struct_size:     C.sizeof_quire_cache_tier_desc,
		write:           C.uint32_t(options.Write),
		min_load_tokens: n.u32("MinLoadTokens", options.MinLoadTokens),
		load_timeout_ns: C.uint64_t(options.LoadTimeout),
		load_expiry_ns:  C.uint64_t(options.LoadExpiry),
		max_load_bytes:  C.uint64_t(options.MaxLoadBytes),
		max_write_bytes: C.uint64_t(options.MaxWriteBytes),
		max_told_blocks: C.uint64_t(options.MaxToldBlocks),
		followers:       n.u32("Followers", options.Followers),
	}
	for i, b := range options.Fingerprint {
		desc.fingerprint[i] = C.uint8_t(b)
	}
	if n.err != nil {
		return n.err
	}
	store, err := tier.use()
	if err != nil {
		return err
	}
	defer tier.done()
	_, err = c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_attach_tier(cache, (*C.quire_tier)(store), &desc, e)
	})
	return err
}

// DetachTier takes the tier away: loads are cancelled, and what waits to be written is written. A
// negative timeout is for ever. ErrTimeout: not in time; the tier is still attached and loads
// nothing. Call DetachTier again.
func (c *Cache) DetachTier(timeout time.Duration) error {
	status, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_detach_tier_wait(cache, nanoseconds(timeout), e)
	})
	if err == nil && status == statusTimeout {
		return failed(ErrTimeout, "the store did not end in time: the tier is still attached")
	}
	return err
}

// PollTier makes progress with loads and writes, and says how far they are.
func (c *Cache) PollTier() (TierProgress, error) {
	raw := emptyProgress()
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_poll_tier(cache, &raw, e)
	})
	return readProgress(&raw), err
}

// WaitLoad waits until a load ends; it returns at once if none is running. A negative timeout is
// for ever. ErrTimeout: none ended in time.
func (c *Cache) WaitLoad(timeout time.Duration) (TierProgress, error) {
	raw := emptyProgress()
	status, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_load_wait(cache, nanoseconds(timeout), &raw, e)
	})
	if err == nil && status == statusTimeout {
		err = failed(ErrTimeout, "no load ended in time")
	}
	return readProgress(&raw), err
}

func emptyProgress() C.quire_cache_tier_progress {
	return C.quire_cache_tier_progress{struct_size: C.sizeof_quire_cache_tier_progress}
}

func readProgress(raw *C.quire_cache_tier_progress) TierProgress {
	return TierProgress{int(raw.loads_running), int(raw.loads_ready), uint64(raw.loads_ended),
		uint64(raw.blocks_queued), int(raw.descriptor)}
}

// TierStats returns what was loaded and written since the tier was attached.
func (c *Cache) TierStats() (CacheTierStats, error) {
	raw := C.quire_cache_tier_stats{struct_size: C.sizeof_quire_cache_tier_stats}
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_get_tier_stats(cache, &raw, e)
	})
	return CacheTierStats{
		LoadsBegun: uint64(raw.loads_begun), LoadsReady: uint64(raw.loads_ready),
		LoadsUsed: uint64(raw.loads_used), LoadsMissed: uint64(raw.loads_missed),
		LoadsFailed: uint64(raw.loads_failed), LoadsLate: uint64(raw.loads_late),
		LoadsExpired: uint64(raw.loads_expired), LoadsCancelled: uint64(raw.loads_cancelled),
		LoadsShort: uint64(raw.loads_short), TokensLoaded: uint64(raw.tokens_loaded),
		BytesLoaded: uint64(raw.bytes_loaded), ValuesDamaged: uint64(raw.values_damaged),
		ValuesForeign: uint64(raw.values_foreign), BlocksWritten: uint64(raw.blocks_written),
		BytesWritten: uint64(raw.bytes_written), BlocksKnown: uint64(raw.blocks_known),
		BlocksRefused: uint64(raw.blocks_refused), BlocksDropped: uint64(raw.blocks_dropped),
		BlocksEvicted: uint64(raw.blocks_evicted),
	}, err
}

// CancelLoad drops the sequence's load, if it has one.
func (s Sequence) CancelLoad() error {
	return s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_cancel_load(cache, s.handle, e)
	})
}

// ReportLoads returns a follower's next report for its leader, which says how loads went; it is
// empty if there is nothing to report. Send it: each load is in one report.
func (c *Cache) ReportLoads() ([]byte, error) {
	content := make([]byte, 2048)
	for {
		var size C.uint64_t
		status, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_cache_report_loads(cache, unsafe.Pointer(&content[0]),
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

// TakeReport takes a report of a follower of this leader.
func (c *Cache) TakeReport(report []byte) error {
	var bytes unsafe.Pointer
	if len(report) != 0 {
		bytes = unsafe.Pointer(&report[0])
	}
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_cache_take_report(cache, bytes, C.uint64_t(len(report)), e)
	})
	return err
}
