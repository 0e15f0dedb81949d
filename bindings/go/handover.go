// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"io"
	"sync/atomic"
	"time"
	"unsafe"
)

// SendOptions are quire_handover_send_desc of quire/handover.h.
type SendOptions struct {
	// Tokens are those to hand over: the prompt, of which the sequence need not have computed more
	// than a part yet. nil: the tokens that the sequence knows.
	Tokens []uint32
	// StagingBytes is host memory, on each shard, for K and V that wait to be read, and is raised
	// to one block's; 0: 32 MiB.
	StagingBytes uint64
}

// HandoverProgress is quire_handover_progress of quire/handover.h.
type HandoverProgress struct {
	Tokens           int    // to be handed over; 0: not known yet
	Whole            bool   // the last byte was read, or was taken and all is right
	Short            bool   // a Receiver's host tier is short of blocks now
	Cells, CellsDone uint64 // layers of blocks: to be handed over, and made into bytes or taken
	SizeBytes        uint64 // read or taken so far
}

// handover is one end of a hand-over.
type handover struct {
	cache  *Cache
	handle C.quire_handover
}

func (h *handover) with(
	run func(cache *C.quire_cache, e *C.quire_error) C.quire_status,
) (C.quire_status, error) {
	if h.cache == nil {
		return 0, failed(ErrStale, "this end of a hand-over is empty: make one with Send or Receive")
	}
	return h.cache.with(run)
}

// End ends this end of the hand-over, in whatever state it is; a Read or Write that waits in
// another goroutine returns ErrStale. The sender's sequence stays, and so does a received one that
// is whole; what came of another one is gone. ErrStale: it was ended before, or its cache is
// closed.
func (h *handover) End() error {
	_, err := h.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_handover_end(cache, h.handle, e)
	})
	return err
}

func readHandover(raw *C.quire_handover_progress, status C.quire_status) HandoverProgress {
	return HandoverProgress{int(raw.token_count), raw.is_whole != 0, status == statusNoBlocks,
		uint64(raw.cells), uint64(raw.cells_done), uint64(raw.size_bytes)}
}

func pointerTo(content []byte) unsafe.Pointer {
	if len(content) == 0 {
		return nil
	}
	return unsafe.Pointer(&content[0])
}

// patience is how long to sleep until the next try of a call that returns at once: shorter at first
// than a layer takes, and never longer than a step.
type patience time.Duration

func (p *patience) sleep() {
	const least, most = patience(20 * time.Microsecond), patience(time.Millisecond)
	*p *= 2
	if *p < least {
		*p = least
	} else if *p > most {
		*p = most
	}
	time.Sleep(time.Duration(*p))
}

// Sender is the end of a hand-over that computes the sequence: its bytes go to a Receiver, over a
// connection or however the engine likes, in whatever pieces. It is an io.Reader, so that one
// goroutine copies it to a connection while another one runs the steps:
//
//	sender, err := sequence.Send(as, quire.SendOptions{Tokens: prompt})
//	go io.Copy(connection, sender)
//
// Its methods may be called from any goroutine, but bytes that two goroutines read are torn apart.
// End it when all was read, or to cancel it: while it lives, its cache is neither closed nor
// migrated.
type Sender struct{ handover }

// Send begins to hand the sequence over, at any time between its creation and its end; the receiver
// must give the same identity. Several hand-overs may go on at a time, one per sequence.
//
// ErrArg: no token is to be handed over, one is Unknown, or they are not those that the sequence
// knows. ErrBusy: the sequence is being handed over, exported or imported already. ErrUnsupported:
// the cache has no memory, or leads or follows others.
func (s Sequence) Send(as SessionIdentity, options SendOptions) (*Sender, error) {
	if s.cache == nil {
		return nil, failed(ErrStale, "the Sequence is empty: make one with NewSequence")
	}
	if options.Tokens != nil && len(options.Tokens) == 0 {
		return nil, failed(ErrArg, "Tokens is empty: nil stands for those that the sequence knows")
	}
	var a arena
	defer a.free()
	var n counts
	desc := (*C.quire_handover_send_desc)(a.alloc(C.sizeof_quire_handover_send_desc))
	*desc = C.quire_handover_send_desc{
		struct_size:   C.sizeof_quire_handover_send_desc,
		tokens:        a.uint32s(options.Tokens),
		token_count:   n.u32("the length of Tokens", len(options.Tokens)),
		staging_bytes: C.uint64_t(options.StagingBytes),
	}
	as.write(&desc.fingerprint, &desc.name_space)
	if n.err != nil {
		return nil, n.err
	}
	sender := &Sender{handover{cache: s.cache}}
	err := s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_handover_send(cache, s.handle, desc, &sender.handle, e)
	})
	if err != nil {
		return nil, err
	}
	return sender, nil
}

func (i *SessionIdentity) write(fingerprint, nameSpace *[32]C.uint8_t) {
	for at := range i.Fingerprint {
		fingerprint[at] = C.uint8_t(i.Fingerprint[at])
		nameSpace[at] = C.uint8_t(i.NameSpace[at])
	}
}

// Layers says that K and V of layers [first, first + count) of the model, which a committed step
// computes of the sequence, are enqueued on the step's queues. They are then copied while the step
// goes on. Without such calls everything is copied after the sequence's last step.
//
// ErrArg: the sequence is not in the step, or there are no such layers. ErrBusy: the step is open
// or finished, or a later step has the sequence. ErrDeviceLost: the hand-over has failed; the step
// has not.
func (s *Sender) Layers(step *Step, first, count int) error {
	if step == nil {
		return failed(ErrArg, "Layers needs the committed step")
	}
	var n counts
	from, layers := n.u32("first", first), n.u32("count", count)
	if n.err != nil {
		return n.err
	}
	_, err := s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_handover_layers(cache, s.handle, step.handle, from, layers, e)
	})
	return err
}

// Poll copies the next bytes into buffer, as many as there are now, and returns how many: 0 while
// the device still computes, and after the last byte, which the progress tells apart. Any part of
// the stream fits into any buffer. It never waits for the device.
//
// ErrStale: the sequence was ended, or lost tokens that were sent. ErrArg: it has other tokens than
// those to be handed over, or went so far that a window has passed them. ErrDeviceLost: a copy
// failed. ErrUnsupported: it was computed before Cache.Reset. A hand-over that failed stays so: End
// it.
func (s *Sender) Poll(buffer []byte) (int, HandoverProgress, error) {
	var size C.uint64_t
	raw := C.quire_handover_progress{struct_size: C.sizeof_quire_handover_progress}
	status, err := s.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_handover_read(cache, s.handle, pointerTo(buffer), C.uint64_t(len(buffer)), &size,
			&raw, e)
	})
	if err != nil {
		return 0, HandoverProgress{}, err
	}
	return int(size), readHandover(&raw, status), nil
}

// Read is Poll for io.Copy: it waits until there are bytes, and returns io.EOF after the last one.
// It waits for as long as the sequence is not computed, or until End.
func (s *Sender) Read(buffer []byte) (int, error) {
	for wait := patience(0); ; wait.sleep() {
		size, progress, err := s.Poll(buffer)
		if err != nil || size != 0 || len(buffer) == 0 {
			return size, err
		}
		if progress.Whole {
			return 0, io.EOF
		}
	}
}

// Receiver is the end of a hand-over that goes on with the sequence. It is an io.Writer. Its
// methods may be called from any goroutine, but bytes that two goroutines give come in some order.
// End it when all has come, or to cancel it: while it lives, its cache is neither closed nor
// migrated.
type Receiver struct {
	handover
	sequence atomic.Uint64 // its handle; 0: not all has come
}

// Receive begins to receive a sequence, which counts as one from now on. The identity, and the
// options' Keys and CrossTokens, must be those of the sent one; so must the tokens, the prompt,
// unless they are nil. ErrLimit: 4,096 hand-overs go on, or as for NewSequence. ErrUnsupported: the
// cache has no memory, or leads or follows others.
func (c *Cache) Receive(as SessionIdentity, tokens []uint32,
	options SequenceOptions) (*Receiver, error) {
	var a arena
	defer a.free()
	var n counts
	seq, err := options.describe(c, &a)
	if err != nil {
		return nil, err
	}
	desc := (*C.quire_handover_receive_desc)(a.alloc(C.sizeof_quire_handover_receive_desc))
	*desc = C.quire_handover_receive_desc{
		struct_size: C.sizeof_quire_handover_receive_desc,
		seq:         seq,
		tokens:      a.uint32s(tokens),
		token_count: n.u32("the length of tokens", len(tokens)),
	}
	if n.err != nil {
		return nil, n.err
	}
	as.write(&desc.fingerprint, &desc.name_space)
	receiver := &Receiver{handover: handover{cache: c}}
	_, err = c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_handover_receive(cache, desc, &receiver.handle, e)
	})
	if err != nil {
		return nil, err
	}
	return receiver, nil
}

// Take takes the next bytes, cut anywhere, and returns how many. It takes fewer after the last byte
// of the hand-over, where the progress is Whole and the rest belongs to whatever comes next; and
// where the progress is Short, because the host tier lacks blocks now: give the rest again later,
// or end the hand-over. It never waits.
//
// ErrArg: the bytes are damaged, cut, or of another model, tenant, prompt or cache. The hand-over
// gave back all that it held, and stays failed: End it.
func (r *Receiver) Take(content []byte) (int, HandoverProgress, error) {
	var used C.uint64_t
	raw := C.quire_handover_progress{struct_size: C.sizeof_quire_handover_progress}
	status, err := r.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_handover_write(cache, r.handle, pointerTo(content), C.uint64_t(len(content)),
			&used, &raw, e)
	})
	if err != nil {
		return 0, HandoverProgress{}, err
	}
	if raw.seq != 0 {
		r.sequence.Store(uint64(raw.seq))
	}
	return int(used), readHandover(&raw, status), nil
}

// Write is Take for io.Copy: where the host tier is short of blocks it waits for some, or until
// End. io.ErrShortWrite: the hand-over ended before the bytes did.
func (r *Receiver) Write(content []byte) (int, error) {
	taken := 0
	for wait := patience(0); ; wait.sleep() {
		size, progress, err := r.Take(content[taken:])
		taken += size
		if err != nil || taken == len(content) {
			return taken, err
		}
		if progress.Whole {
			return taken, io.ErrShortWrite
		}
	}
}

// Sequence returns the received sequence once all of it has come, and false before. It is in the
// host tier, as after Import: the next step that runs it brings it to the device. An engine that
// wants the logits of the last token shortens it by one token and computes that one again.
func (r *Receiver) Sequence() (Sequence, bool) {
	handle := C.quire_seq(r.sequence.Load())
	if handle == 0 {
		return Sequence{}, false
	}
	return Sequence{r.cache, handle}, true
}
