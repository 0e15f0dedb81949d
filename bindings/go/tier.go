// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"strings"
	"time"
	"unsafe"
)

// TierOptions say which store to open, and how.
type TierOptions struct {
	Store    string            // the plugin's name, such as "disk"
	Settings map[string]string // such as "directory"; the plugin's documentation names them
	Existing bool              // ErrArg where there is no store yet
	ReadOnly bool              // change nothing that outlives the process
}

// TierStats are counts since a tier was opened, except for Records, ValueBytes and UsedBytes, which
// are as of now: quire_store_stats of quire/tier.h.
type TierStats struct {
	Records, ValueBytes, UsedBytes uint64
	Puts, PutsKnown, PutsRefused   uint64
	Hits, Misses, Foreign, Damaged uint64
	FailedReads, Removed, Evicted  uint64
	WrittenBytes, ReadBytes        uint64
	RecoveredRecords, SkippedBytes uint64
}

// Tier is a store below the device, on disk for example, for Cache.AttachTier.
type Tier struct {
	object
	instance *Instance
}

// OpenTier opens a store. ErrBackend: there is no such plugin. ErrArg: a setting is unknown or
// wrong. ErrBusy: another owner has it open.
func (i *Instance) OpenTier(options TierOptions) (*Tier, error) {
	pointer, err := i.use()
	if err != nil {
		return nil, err
	}
	defer i.done()
	var a arena
	defer a.free()
	var n counts
	settings := (*C.quire_store_option)(
		a.alloc(uintptr(len(options.Settings)) * C.sizeof_quire_store_option))
	list := unsafe.Slice(settings, len(options.Settings))
	filled := 0
	for name, value := range options.Settings {
		if name == "" || value == "" || strings.ContainsRune(name+value, 0) {
			return nil, failed(ErrArg, "the setting %q=%q is empty or holds a NUL", name, value)
		}
		list[filled] = C.quire_store_option{name: a.text(name), value: a.text(value)}
		filled++
	}
	desc := (*C.quire_tier_desc)(a.alloc(C.sizeof_quire_tier_desc))
	*desc = C.quire_tier_desc{
		struct_size:   C.sizeof_quire_tier_desc,
		flags:         flag(options.Existing, 1) | flag(options.ReadOnly, 2),
		store:         a.text(options.Store),
		options:       settings,
		option_count:  n.u32("the number of Settings", len(options.Settings)),
		option_stride: C.sizeof_quire_store_option,
	}
	if n.err != nil {
		return nil, n.err
	}
	var out *C.quire_tier
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_tier_open((*C.quire_instance)(pointer), desc, &out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Tier{object: object{kind: "tier", pointer: unsafe.Pointer(out)}, instance: i}, nil
}

// Close ends the tier once the store's requests have ended; a negative timeout is for ever.
// ErrTimeout: not in time; the tier still exists, and takes no more requests. ErrBusy: it serves a
// cache.
func (t *Tier) Close(timeout time.Duration) error {
	return t.close(func(pointer unsafe.Pointer) error {
		status, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_tier_close_wait((*C.quire_tier)(pointer), nanoseconds(timeout), e)
		})
		if err == nil && status == statusTimeout {
			return failed(ErrTimeout, "the store's requests did not end in time: close it again")
		}
		return err
	})
}

// Stats returns the store's counts.
func (t *Tier) Stats() (TierStats, error) {
	pointer, err := t.use()
	if err != nil {
		return TierStats{}, err
	}
	defer t.done()
	var raw C.quire_store_stats
	raw.struct_size = C.sizeof_quire_store_stats
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_tier_get_stats((*C.quire_tier)(pointer), &raw, e)
	})
	return TierStats{
		Records: uint64(raw.records), ValueBytes: uint64(raw.value_bytes),
		UsedBytes: uint64(raw.used_bytes), Puts: uint64(raw.puts),
		PutsKnown: uint64(raw.puts_known), PutsRefused: uint64(raw.puts_refused),
		Hits: uint64(raw.hits), Misses: uint64(raw.misses), Foreign: uint64(raw.foreign),
		Damaged: uint64(raw.damaged), FailedReads: uint64(raw.failed_reads),
		Removed: uint64(raw.removed), Evicted: uint64(raw.evicted),
		WrittenBytes: uint64(raw.written_bytes), ReadBytes: uint64(raw.read_bytes),
		RecoveredRecords: uint64(raw.recovered), SkippedBytes: uint64(raw.skipped_bytes),
	}, err
}
