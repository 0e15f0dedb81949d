// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"io"
	"runtime/cgo"
	"time"
)

// SessionIdentity says whose a session is. An import must give what the export gave.
type SessionIdentity struct {
	Fingerprint [32]byte // names the weights, and all else that decides K and V
	NameSpace   [32]byte // names the tenant; zeros: the default one
}

// SessionInfo is quire_session_info of quire/session.h.
type SessionInfo struct {
	KnownTokens, ComputedTokens int
	Blocks, SizeBytes           uint64
}

// Export writes the sequence's session: its tokens, K and V. Steps go on meanwhile, but none takes
// this sequence. A timeout is for the sequence's last step, and ErrTimeout says that nothing was
// written; negative: no limit. An error of the writer is returned as it is, and its panic as an
// error.
func (s Sequence) Export(to io.Writer, as SessionIdentity,
	timeout time.Duration) (SessionInfo, error) {
	if to == nil {
		return SessionInfo{}, failed(ErrArg, "the writer is nil")
	}
	return s.export("", &stream{to: to}, as, timeout)
}

// Save exports into a file of its own, which takes the place of path only when it is whole and on
// the disk. Others may not read it.
func (s Sequence) Save(path string, as SessionIdentity,
	timeout time.Duration) (SessionInfo, error) {
	if path == "" {
		return SessionInfo{}, failed(ErrArg, "the path is empty")
	}
	return s.export(path, &stream{}, as, timeout)
}

func (s Sequence) export(path string, through *stream, as SessionIdentity,
	timeout time.Duration) (SessionInfo, error) {
	if s.cache == nil {
		return SessionInfo{}, failed(ErrStale, "the Sequence is empty: make one with NewSequence")
	}
	var a arena
	defer a.free()
	name := a.text(path)
	handle := cgo.NewHandle(through)
	defer handle.Delete()
	var info C.quire_session_info
	info.struct_size = C.sizeof_quire_session_info
	status, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.quire_go_export(cache, s.handle, (*C.uint8_t)(&as.Fingerprint[0]),
			(*C.uint8_t)(&as.NameSpace[0]), name, C.uintptr_t(handle), &info,
			nanoseconds(timeout), e)
	})
	if through.err != nil {
		return SessionInfo{}, through.err
	}
	return SessionInfo{
		KnownTokens: int(info.known_tokens), ComputedTokens: int(info.computed_tokens),
		Blocks: uint64(info.blocks), SizeBytes: uint64(info.size_bytes),
	}, timedOut(status, err)
}

// Import creates a sequence from a session. It lies in the host tier, and the next step that runs
// it brings it to the device. Keys and CrossTokens of the options must be those of the exported
// one. It fits unless the host tier is short of blocks. A session that is damaged, or of another
// cache or identity, is refused; an error of the reader is returned as it is.
func (c *Cache) Import(from io.Reader, as SessionIdentity,
	options SequenceOptions) (sequence Sequence, fits bool, err error) {
	if from == nil {
		return Sequence{}, false, failed(ErrArg, "the reader is nil")
	}
	return c.imported("", &stream{from: from}, as, options)
}

// Restore imports a file that Save wrote.
func (c *Cache) Restore(path string, as SessionIdentity,
	options SequenceOptions) (sequence Sequence, fits bool, err error) {
	if path == "" {
		return Sequence{}, false, failed(ErrArg, "the path is empty")
	}
	return c.imported(path, &stream{}, as, options)
}

func (c *Cache) imported(path string, through *stream, as SessionIdentity,
	options SequenceOptions) (Sequence, bool, error) {
	var a arena
	defer a.free()
	desc, err := options.describe(c, &a)
	if err != nil {
		return Sequence{}, false, err
	}
	name := a.text(path)
	handle := cgo.NewHandle(through)
	defer handle.Delete()
	var out C.quire_seq
	status, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.quire_go_import(cache, desc, (*C.uint8_t)(&as.Fingerprint[0]),
			(*C.uint8_t)(&as.NameSpace[0]), name, C.uintptr_t(handle), &out, e)
	})
	if through.err != nil {
		return Sequence{}, false, through.err
	}
	if err != nil || status == statusNoBlocks {
		return Sequence{}, false, err
	}
	return Sequence{c, out}, true, nil
}
