// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"syscall"
	"time"
	"unsafe"
)

// Label names a value of a store: quire_store_label of quire/tier.h.
type Label struct {
	Key         [32]byte // digest of all that decides the content
	Fingerprint [32]byte // of the model, and of the types and layout of its blocks
	NameSpace   [32]byte // digest of the tenant; zeros: the default one
}

// Record is a value that a store has.
type Record struct {
	Label      Label
	ValueBytes uint64
	Sequence   uint64 // grows from put to put over the life of the store; 0: not known
}

// TierInfo says what a store is: quire_store_info of quire/tier.h.
type TierInfo struct {
	Indexed       bool   // it always knows what it has
	Persistent    bool   // what was flushed is there after the next open
	Remote        bool   // other processes put and remove too
	Compacts      bool   // knows Compact
	MaxValueBytes uint64 // a larger Put is refused
	CapacityBytes uint64 // 0: not known
	MaxRequests   int
	Place         string // for people
}

type storeRequest uint32

const (
	putValue storeRequest = 1 + iota
	getValue
	findValue
	removeValue
	flushValues
	compactValues
)

func (r storeRequest) String() string {
	return [...]string{"", "put", "get", "find", "remove", "flush", "compact"}[r]
}

const (
	storeDone      = 0
	storeMiss      = 1
	storeForeign   = 2
	storeDamaged   = 3
	storeSize      = 4
	storeFull      = 5
	storeFailed    = 6
	storeCancelled = 7
)

// How many records one call of the library lists.
const listedAtOnce = 64

// Info describes the store.
func (t *Tier) Info() (TierInfo, error) {
	pointer, err := t.use()
	if err != nil {
		return TierInfo{}, err
	}
	defer t.done()
	var raw C.quire_store_info
	raw.struct_size = C.sizeof_quire_store_info
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_tier_get_info((*C.quire_tier)(pointer), &raw, e)
	})
	return TierInfo{
		Indexed: raw.flags&1 != 0, Persistent: raw.flags&2 != 0, Remote: raw.flags&4 != 0,
		Compacts: raw.flags&8 != 0, MaxValueBytes: uint64(raw.max_value_bytes),
		CapacityBytes: uint64(raw.capacity_bytes), MaxRequests: int(raw.max_requests),
		Place: C.GoString(&raw.place[0]),
	}, err
}

// Records lists what the store has, in an order of its own, until visit returns false.
// ErrUnsupported: it cannot tell.
func (t *Tier) Records(visit func(Record) bool) error {
	var cursor C.uint64_t
	records := make([]C.quire_store_record, listedAtOnce)
	for {
		count, err := t.list(&cursor, records)
		if err != nil || count == 0 {
			return err
		}
		for _, record := range records[:count] {
			listed := Record{Label: labelOf(&record.label), ValueBytes: uint64(record.value_bytes),
				Sequence: uint64(record.sequence)}
			if !visit(listed) {
				return nil
			}
		}
	}
}

func (t *Tier) list(cursor *C.uint64_t, records []C.quire_store_record) (int, error) {
	pointer, err := t.use()
	if err != nil {
		return 0, err
	}
	defer t.done()
	var count C.uint32_t
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_tier_list((*C.quire_tier)(pointer), cursor, &records[0],
			C.uint32_t(len(records)), &count, e)
	})
	return int(count), err
}

// Put stores a value; one that is there is kept. False: there was no room. As for all requests, a
// negative timeout is for ever; after ErrTimeout the request may still have its effect; ErrOS: the
// disk or network failed.
func (t *Tier) Put(label Label, value []byte, timeout time.Duration) (bool, error) {
	var a arena
	defer a.free()
	answer, err := t.request(putValue, label, a.bytes(value), len(value), timeout)
	return answer.outcome == storeDone, answered(putValue, answer, err, storeFull)
}

// Get fills value, which must have the value's size. False: it is not there, or failed its check;
// then value is unchanged. ErrArg: it has another size; the message says which.
func (t *Tier) Get(label Label, value []byte, timeout time.Duration) (bool, error) {
	var a arena
	defer a.free()
	content := a.alloc(uintptr(len(value)))
	answer, err := t.request(getValue, label, content, len(value), timeout)
	err = answered(getValue, answer, err, storeMiss, storeForeign, storeDamaged, storeSize)
	if err == nil && answer.outcome == storeSize {
		err = failed(ErrArg, "the value has %d bytes, not %d", uint64(answer.size_bytes),
			len(value))
	}
	if err != nil || answer.outcome != storeDone {
		return false, err
	}
	copy(value, unsafe.Slice((*byte)(content), len(value)))
	return true, nil
}

// Find says whether there is a value.
func (t *Tier) Find(label Label, timeout time.Duration) (bool, error) {
	answer, err := t.request(findValue, label, nil, 0, timeout)
	err = answered(findValue, answer, err, storeMiss, storeForeign, storeDamaged)
	return err == nil && answer.outcome == storeDone, err
}

// Remove removes the value, if there is one.
func (t *Tier) Remove(label Label, timeout time.Duration) error {
	answer, err := t.request(removeValue, label, nil, 0, timeout)
	return answered(removeValue, answer, err)
}

// Flush returns when what was done before survives a crash of the machine, if the store is
// persistent.
func (t *Tier) Flush(timeout time.Duration) error {
	answer, err := t.request(flushValues, Label{}, nil, 0, timeout)
	return answered(flushValues, answer, err)
}

// Compact gives back the room of removed values, and says how many bytes.
func (t *Tier) Compact(timeout time.Duration) (uint64, error) {
	answer, err := t.request(compactValues, Label{}, nil, 0, timeout)
	return uint64(answer.size_bytes), answered(compactValues, answer, err)
}

func (t *Tier) request(kind storeRequest, label Label, content unsafe.Pointer, size int,
	timeout time.Duration) (C.quire_store_answer, error) {
	answer := C.quire_store_answer{outcome: storeCancelled}
	pointer, err := t.use()
	if err != nil {
		return answer, err
	}
	defer t.done()
	var a arena
	defer a.free()
	request := (*C.quire_store_request)(a.alloc(C.sizeof_quire_store_request))
	request.kind, request.label = C.uint32_t(kind), label.raw()
	if size != 0 {
		piece := (*C.quire_store_piece)(a.alloc(C.sizeof_quire_store_piece))
		*piece = C.quire_store_piece{address: content, size_bytes: C.uint64_t(size)}
		request.pieces, request.piece_count = piece, 1
	}
	status, err := call(func(e *C.quire_error) C.quire_status {
		return C.q_tier_request_wait((*C.quire_tier)(pointer), request, &answer,
			nanoseconds(timeout), e)
	})
	if err == nil && status == statusTimeout {
		err = failed(ErrTimeout, "the store did not answer the %s in time", kind)
	}
	return answer, err
}

// answered turns an outcome that is neither done nor one of the others into an error.
func answered(kind storeRequest, answer C.quire_store_answer, err error, others ...int) error {
	if err != nil || answer.outcome == storeDone {
		return err
	}
	for _, other := range others {
		if int(answer.outcome) == other {
			return nil
		}
	}
	if answer.outcome == storeFailed {
		code := int64(answer.native_code)
		return &Error{Status: ErrOS, NativeCode: code,
			Message: "the " + kind.String() + " failed: " + syscall.Errno(code).Error()}
	}
	return failed(ErrBackend, "the store answered the %s with outcome %d", kind,
		uint32(answer.outcome))
}

func (l *Label) raw() C.quire_store_label {
	var raw C.quire_store_label
	for i := range l.Key {
		raw.key[i] = C.uint8_t(l.Key[i])
		raw.fingerprint[i] = C.uint8_t(l.Fingerprint[i])
		raw.name_space[i] = C.uint8_t(l.NameSpace[i])
	}
	return raw
}

func labelOf(raw *C.quire_store_label) Label {
	var label Label
	for i := range label.Key {
		label.Key[i] = byte(raw.key[i])
		label.Fingerprint[i] = byte(raw.fingerprint[i])
		label.NameSpace[i] = byte(raw.name_space[i])
	}
	return label
}
