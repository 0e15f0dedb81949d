// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import "unsafe"

// The structs of a step have the library's layout, so that slices of them are passed without a
// copy.

// Item is what a sequence wants from a step: quire_step_item of quire/step.h.
type Item struct {
	Sequence    uint64 // its handle
	TokenOffset uint32 // into the tokens passed with the items
	TokenCount  uint32
	MaxCompute  uint32 // 0: all
	DraftCount  uint32
	Lookahead   uint32
	MaskKind    uint32
	MaskOffset  uint32
	MaskRows    uint32
	// MaxHitTokens limits what is found of a sequence with nothing computed; 0: no limit.
	MaxHitTokens uint32
	Flags        uint32 // MayLoad
}

// NoHits, as an item's MaxHitTokens, computes all of its tokens, even those that are cached.
const NoHits uint32 = 0xFFFFFFFF

// MayLoad, as an item's Flags, lets the item wait for its prefix to be loaded from the cache's
// tier: see quire/cache_tier.h.
const MayLoad uint32 = 1

// Result is what became of an item: quire_step_result of quire/step.h.
type Result struct {
	Outcome       uint32 // Wait, Run or Loading
	Reason        uint32 // why it waits: WaitPool and so on
	HitTokens     uint32
	FirstPosition uint32
	ComputeCount  uint32
	BlocksShort   uint32
	Row           uint32
	CrossTokens   uint32
}

// These lines compile only if the structs are as large as the library's.
var (
	_ [0]struct{} = [unsafe.Sizeof(Item{}) ^ C.sizeof_quire_step_item]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(Result{}) ^ C.sizeof_quire_step_result]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(Span{}) ^ C.sizeof_quire_token_span]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(Preemption{}) ^ C.sizeof_quire_preemption]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(Copy{}) ^ C.sizeof_quire_block_copy]struct{}{}
)

// Outcomes of an item.
const (
	Wait    uint32 = 0
	Run     uint32 = 1
	Loading uint32 = 2
)

// Reasons why an item waits, or why a lease gets no blocks.
const (
	WaitPool      uint32 = 1 // the pool is short of blocks
	WaitWatermark uint32 = 2 // the pool would go below the watermark
	WaitQuota     uint32 = 3 // the namespace's quota is used up
	WaitPreempted uint32 = 4 // an earlier item of the step took the item's blocks: send it again
)

// Span names unknown tokens: quire_token_span of quire/sequence.h.
type Span struct {
	Sequence    uint64
	Position    uint32
	TokenOffset uint32
	TokenCount  uint32
	_           uint32
}

// Preemption describes a sequence that gave up its blocks: quire_preemption of quire/step.h.
type Preemption struct {
	Sequence       uint64
	How            PreemptHow
	ChosenBy       uint32
	ComputedTokens uint32
	Blocks         uint32
	For            uint64
}

// Copy is a block to copy or to zero: quire_block_copy of quire/step.h.
type Copy struct {
	Kind, Group        uint32
	Src, Dst           int32
	SrcPlace, DstPlace uint32
}

// PreemptHow is QUIRE_PREEMPT_* of quire/step.h.
type PreemptHow uint32

const (
	PreemptAuto      PreemptHow = 0
	PreemptSwap      PreemptHow = 1
	PreemptRecompute PreemptHow = 2
)

// StepOptions say where a step runs.
type StepOptions struct {
	Queues     []*Queue // one per shard
	Tag        uint64   // names the engine's queue in a bookkeeping-only cache
	MayPreempt bool     // sequences without an item, for items that are short of blocks
	Preempt    PreemptHow
}

// Step is an open step, and a committed one after Commit.
type Step struct {
	cache  *Cache
	queues []*Queue
	handle C.quire_step
}

func numbers(slice []uint32) *C.uint32_t {
	if len(slice) == 0 {
		return nil
	}
	return (*C.uint32_t)(unsafe.Pointer(&slice[0]))
}

func itemsOf(items []Item) unsafe.Pointer {
	if len(items) == 0 {
		return nil
	}
	return unsafe.Pointer(&items[0])
}

func resultsOf(results []Result, count int) (unsafe.Pointer, error) {
	if len(results) < count {
		return nil, failed(ErrArg, "results has room for %d of %d items", len(results), count)
	}
	if count == 0 {
		return nil, nil
	}
	return unsafe.Pointer(&results[0]), nil
}

// maxShards is the most shards that a cache can have.
const maxShards = 64

func countQueues(queues []*Queue) (C.uint32_t, error) {
	if len(queues) > maxShards {
		return 0, failed(ErrArg, "%d queues: a cache has at most %d shards", len(queues), maxShards)
	}
	return C.uint32_t(len(queues)), nil
}

// begin opens a step, and commits it if commits is set. Either way it calls into C once and
// allocates only the step.
func (c *Cache) begin(options StepOptions, items []Item, tokens []uint32, results []Result,
	batch *Batch, commits bool) (*Step, error) {
	to, err := resultsOf(results, len(items))
	if err != nil {
		return nil, err
	}
	var n counts
	queueCount, err := countQueues(options.Queues)
	itemCount := n.u32("the number of items", len(items))
	tokenCount := n.u32("the number of tokens", len(tokens))
	if err == nil {
		err = n.err
	}
	if err != nil {
		return nil, err
	}
	cache, err := c.use()
	if err != nil {
		return nil, err
	}
	defer c.done()
	var queues [maxShards]*C.quire_queue
	for i, queue := range options.Queues {
		pointer, err := queue.use()
		if err != nil {
			return nil, err
		}
		defer queue.done()
		queues[i] = (*C.quire_queue)(pointer)
	}
	var committed *C.quire_batch
	if batch != nil {
		pointer, err := batch.use()
		if err != nil {
			return nil, err
		}
		defer batch.done()
		committed = (*C.quire_batch)(pointer)
	}
	var first **C.quire_queue
	if len(options.Queues) != 0 {
		first = &queues[0]
	}
	step := &Step{cache: c, queues: options.Queues}
	slot := slots.Get().(*C.quire_error)
	defer slots.Put(slot)
	var status C.quire_status
	if commits {
		status = C.quire_go_step_begin_commit((*C.quire_cache)(cache), first,
			queueCount, flag(options.MayPreempt, 1), C.uint32_t(options.Preempt),
			C.uint64_t(options.Tag), itemsOf(items), itemCount, numbers(tokens), tokenCount, to,
			committed, &step.handle, slot)
	} else {
		status = C.quire_go_step_begin((*C.quire_cache)(cache), first,
			queueCount, flag(options.MayPreempt, 1), C.uint32_t(options.Preempt),
			C.uint64_t(options.Tag), itemsOf(items), itemCount, numbers(tokens), tokenCount, to,
			&step.handle, slot)
	}
	if status < 0 {
		return nil, errorOf(status, slot)
	}
	if commits && batch != nil {
		batch.bind(step)
	}
	return step, nil
}

// Begin opens a step and adds items; results[i] says what became of items[i].
func (c *Cache) Begin(options StepOptions, items []Item, tokens []uint32,
	results []Result) (*Step, error) {
	return c.begin(options, items, tokens, results, nil, false)
}

// BeginCommit is Begin and Commit in one call. An error of the commit undoes the begin. The batch
// may be nil.
func (c *Cache) BeginCommit(options StepOptions, batch *Batch, items []Item, tokens []uint32,
	results []Result) (*Step, error) {
	return c.begin(options, items, tokens, results, batch, true)
}

// SetTokens names unknown tokens of several sequences.
func (c *Cache) SetTokens(spans []Span, tokens []uint32) error {
	var first unsafe.Pointer
	if len(spans) != 0 {
		first = unsafe.Pointer(&spans[0])
	}
	var n counts
	spanCount := n.u32("the number of spans", len(spans))
	tokenCount := n.u32("the number of tokens", len(tokens))
	if n.err != nil {
		return n.err
	}
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_seq_set_tokens(cache, first, spanCount, C.sizeof_quire_token_span,
			numbers(tokens), tokenCount, e)
	})
	return err
}

// ApplyLog applies the leader's next log to a follower and returns its step, already committed.
func (c *Cache) ApplyLog(log []byte, options StepOptions, batch *Batch) (*Step, error) {
	queueCount, err := countQueues(options.Queues)
	if err != nil {
		return nil, err
	}
	objects := []*object{&c.object}
	for _, queue := range options.Queues {
		objects = append(objects, &queue.object)
	}
	if batch != nil {
		objects = append(objects, &batch.object)
	}
	pointers, release, err := useAll(objects...)
	defer release()
	if err != nil {
		return nil, err
	}
	var queues [maxShards]*C.quire_queue
	for i := range options.Queues {
		queues[i] = (*C.quire_queue)(pointers[1+i])
	}
	var first **C.quire_queue
	if len(options.Queues) != 0 {
		first = &queues[0]
	}
	var committed *C.quire_batch
	if batch != nil {
		committed = (*C.quire_batch)(pointers[len(pointers)-1])
	}
	var bytes unsafe.Pointer
	if len(log) != 0 {
		bytes = unsafe.Pointer(&log[0])
	}
	step := &Step{cache: c, queues: options.Queues}
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.quire_go_log_apply((*C.quire_cache)(pointers[0]), bytes, C.uint64_t(len(log)), first,
			queueCount, C.uint64_t(options.Tag), committed, &step.handle, e)
	})
	if err != nil {
		return nil, err
	}
	if batch != nil {
		batch.bind(step)
	}
	return step, nil
}

// Add adds items to the open step. On an error none of them is added.
func (s *Step) Add(items []Item, tokens []uint32, results []Result) error {
	to, err := resultsOf(results, len(items))
	if err != nil {
		return err
	}
	var n counts
	itemCount := n.u32("the number of items", len(items))
	tokenCount := n.u32("the number of tokens", len(tokens))
	if n.err != nil {
		return n.err
	}
	_, err = s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_step_add(cache, s.handle, itemsOf(items), itemCount,
			C.sizeof_quire_step_item, numbers(tokens), tokenCount, to,
			C.sizeof_quire_step_result, e)
	})
	return err
}

// Drop takes an item back and returns the handles of all sequences whose items went with it.
func (s *Step) Drop(sequence Sequence) ([]uint64, error) {
	dropped := make([]uint64, 16)
	for {
		var count C.uint32_t
		status, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_step_drop(cache, s.handle, sequence.handle,
				(*C.quire_seq)(unsafe.Pointer(&dropped[0])), C.uint32_t(len(dropped)), &count, e)
		})
		if err != nil {
			return nil, err
		}
		if status != statusIncomplete {
			return dropped[:count], nil
		}
		dropped = make([]uint64, count)
	}
}

// Preempt gives up the blocks of a sequence that is not in the step and returns how many of them
// the step can use. False: it was to be swapped, and the host tier is short; nothing changed.
func (s *Step) Preempt(sequence Sequence, how PreemptHow) (int, bool, error) {
	var freed C.uint32_t
	status, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_step_preempt(cache, s.handle, sequence.handle, C.uint32_t(how), &freed, e)
	})
	return int(freed), err == nil && status != statusNoBlocks, err
}

// Preempted lists the sequences that were preempted in the step.
func (s *Step) Preempted() ([]Preemption, error) {
	list := make([]Preemption, 16)
	for {
		var count C.uint32_t
		_, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_step_preempted(cache, s.handle, unsafe.Pointer(&list[0]),
				C.uint32_t(len(list)), C.sizeof_quire_preemption, &count, e)
		})
		if err != nil {
			return nil, err
		}
		if int(count) <= len(list) {
			return list[:count], nil
		}
		list = make([]Preemption, count)
	}
}

// Copies lists the step's copies in the order in which they must run. In a bookkeeping-only cache
// the engine runs them.
func (s *Step) Copies() ([]Copy, error) {
	list := make([]Copy, 16)
	for {
		var count C.uint32_t
		_, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_step_copies(cache, s.handle, unsafe.Pointer(&list[0]), C.uint32_t(len(list)),
				C.sizeof_quire_block_copy, &count, e)
		})
		if err != nil {
			return nil, err
		}
		if int(count) <= len(list) {
			return list[:count], nil
		}
		list = make([]Copy, count)
	}
}

// Log returns the bytes that followers must apply, for a committed step of a leader.
func (s *Step) Log() ([]byte, error) {
	content := make([]byte, 4096)
	for {
		var size C.uint64_t
		status, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
			return C.q_step_log(cache, s.handle, unsafe.Pointer(&content[0]),
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

// Commit makes the step real: its copies and tables are enqueued. The batch may be nil.
func (s *Step) Commit(batch *Batch) error {
	var committed *C.quire_batch
	if batch != nil {
		pointer, err := batch.use()
		if err != nil {
			return err
		}
		defer batch.done()
		committed = (*C.quire_batch)(pointer)
	}
	_, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_step_commit(cache, s.handle, committed, e)
	})
	if err == nil && batch != nil {
		batch.bind(s)
	}
	return err
}

// Abort undoes everything since Begin.
func (s *Step) Abort() error {
	_, err := s.cache.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_step_abort(cache, s.handle, e)
	})
	return err
}

const (
	stepOK     C.uint32_t = 0
	stepFailed C.uint32_t = 1
)

// Finish says that all of the step's work has been enqueued.
func (s *Step) Finish() error { return s.finish(nil, stepOK) }

// Fail says that the step failed: what it computed is taken back.
func (s *Step) Fail() error { return s.finish(nil, stepFailed) }

func (s *Step) finish(signal *C.quire_native, outcome C.uint32_t) error {
	cache, err := s.cache.use()
	if err != nil {
		return err
	}
	defer s.cache.done()
	slot := slots.Get().(*C.quire_error)
	defer slots.Put(slot)
	if status := C.q_step_finish((*C.quire_cache)(cache), s.handle, signal, outcome,
		slot); status < 0 {
		return errorOf(status, slot)
	}
	return nil
}
