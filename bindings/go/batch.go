// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// View says which tables a batch keeps: QUIRE_VIEW_* of quire/batch.h.
type View uint32

const (
	BlockTable   View = 1 << 0
	CSR          View = 1 << 1
	Slots        View = 1 << 2
	ContextSlots View = 1 << 3
	Lengths      View = 1 << 4
	Positions    View = 1 << 5
	CuQ          View = 1 << 6
	Mask         View = 1 << 7
	SharedPrefix View = 1 << 8
)

// Attention describes how attention is computed: quire_attention_desc of quire/attention.h.
type Attention struct {
	QHeads         int
	DType          DType   // of q and out; 0: F32
	Scale          float32 // 0: 1 / sqrt(k_head_dim)
	SoftCap        float32 // 0: none
	NotCausal      bool
	BatchInvariant bool
	Masks          bool
	SinkLogits     bool
	Rope           *Rope
}

// Rope is quire_rope_desc of quire/attention.h; 0 is a field's default.
type Rope struct {
	Pairs                         bool // elements 2 i and 2 i + 1; else i and i + n
	RotatedDim                    int
	Base                          float32
	Scaling                       uint32
	OriginalContext               int
	Factor                        float32
	LowFreqFactor, HighFreqFactor float32
	BetaFast, BetaSlow, Magnitude float32
}

// BatchOptions are quire_batch_desc of quire/batch.h. Attention holds one entry for all groups, one
// per group, or none.
type BatchOptions struct {
	MaxRows, MaxBlocksPerRow, MaxQueryTokens int
	MaxContextTokens, MaxMaskWords           int
	MaxCrossTokens                           int
	Views                                    View
	Attention                                []Attention
	PadNullSlot, SharedPrefix                bool
}

// Batch is memory that the tables of steps are written to.
type Batch struct {
	object
	cache     *Cache
	attention []Attention
	maxRows   int
	step      atomic.Value // *Step, the last one committed into it
}

// NewBatch creates a batch. ErrUnsupported: no kernel serves one of the options.
func (c *Cache) NewBatch(options BatchOptions) (*Batch, error) {
	var a arena
	defer a.free()
	var n counts
	desc := (*C.quire_batch_desc)(a.alloc(C.sizeof_quire_batch_desc))
	*desc = C.quire_batch_desc{
		struct_size:        C.sizeof_quire_batch_desc,
		flags:              flag(options.PadNullSlot, 1) | flag(options.SharedPrefix, 2),
		max_rows:           n.u32("MaxRows", options.MaxRows),
		max_blocks_per_row: n.u32("MaxBlocksPerRow", options.MaxBlocksPerRow),
		max_query_tokens:   n.u32("MaxQueryTokens", options.MaxQueryTokens),
		max_context_tokens: n.u32("MaxContextTokens", options.MaxContextTokens),
		views:              C.uint32_t(options.Views),
		attention_count:    n.u32("the number of Attention", len(options.Attention)),
		attention_stride:   C.sizeof_quire_attention_desc,
		max_mask_words:     n.u32("MaxMaskWords", options.MaxMaskWords),
		max_cross_tokens:   n.u32("MaxCrossTokens", options.MaxCrossTokens),
		attention:          describeAttention(&a, &n, options.Attention),
	}
	if n.err != nil {
		return nil, n.err
	}
	var out *C.quire_batch
	_, err := c.with(func(cache *C.quire_cache, e *C.quire_error) C.quire_status {
		return C.q_batch_create(cache, desc, &out, e)
	})
	if err != nil {
		return nil, err
	}
	return &Batch{
		object:    object{kind: "batch", pointer: unsafe.Pointer(out)},
		cache:     c,
		attention: append([]Attention(nil), options.Attention...),
		maxRows:   options.MaxRows,
	}, nil
}

func describeAttention(a *arena, n *counts, list []Attention) *C.quire_attention_desc {
	if len(list) == 0 {
		return nil
	}
	array := (*C.quire_attention_desc)(a.alloc(uintptr(len(list)) * C.sizeof_quire_attention_desc))
	for i, attention := range list {
		desc := &unsafe.Slice(array, len(list))[i]
		desc.struct_size = C.sizeof_quire_attention_desc
		desc.flags = flag(attention.NotCausal, 1) | flag(attention.BatchInvariant, 2) |
			flag(attention.Masks, 4) | flag(attention.SinkLogits, 8)
		desc.q_heads = n.u32(of("Attention", i, "QHeads"), attention.QHeads)
		desc.q_dtype = C.uint32_t(attention.DType)
		desc.scale, desc.soft_cap = C.float(attention.Scale), C.float(attention.SoftCap)
		if rope := attention.Rope; rope != nil {
			desc.rope = (*C.quire_rope_desc)(a.alloc(C.sizeof_quire_rope_desc))
			*desc.rope = C.quire_rope_desc{
				struct_size:      C.sizeof_quire_rope_desc,
				pairing:          flag(rope.Pairs, 1),
				rotated_dim:      n.u32(of("Attention", i, "Rope.RotatedDim"), rope.RotatedDim),
				scaling:          C.uint32_t(rope.Scaling),
				original_context: n.u32(of("Attention", i, "Rope.OriginalContext"), rope.OriginalContext),
				base:             C.float(rope.Base),
				factor:           C.float(rope.Factor),
				low_freq_factor:  C.float(rope.LowFreqFactor),
				high_freq_factor: C.float(rope.HighFreqFactor),
				beta_fast:        C.float(rope.BetaFast),
				beta_slow:        C.float(rope.BetaSlow),
				magnitude:        C.float(rope.Magnitude),
			}
		}
	}
	return array
}

// Close destroys the batch. ErrBusy: a step that was committed into it is not done.
func (b *Batch) Close() error {
	return b.close(func(pointer unsafe.Pointer) error {
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_batch_destroy((*C.quire_batch)(pointer), e)
		})
		return err
	})
}

func (b *Batch) bind(step *Step) { b.step.Store(step) }

// Views are a batch's tables for one group and shard, as of the last commit. In a bookkeeping-only
// cache the slices are tables in host memory, valid until the next commit; on a device they are
// nil, and Addresses returns where the tables are.
type Views struct {
	RowCount, QueryTokens, MaxLength, WriteTokens int
	BlockTable                                    []int32 // [rows][BlockTableStride]
	BlockTableStride                              int
	CSRIndptr, CSRLastPageLen                     []int32
	CSRIndices                                    []int32
	Slots                                         []int64
	Lengths, Positions, CuQ                       []int32
	address                                       C.quire_batch_views
}

// Addresses returns the addresses of the tables, for kernels; 0: the batch does not keep the table.
func (v *Views) Addresses() (blockTable, slots, lengths, positions, cuQ uint64) {
	return uint64(v.address.block_table), uint64(v.address.slots), uint64(v.address.lengths),
		uint64(v.address.positions), uint64(v.address.cu_q)
}

func table[T int32 | int64](address C.uint64_t, count int) []T {
	if address == 0 || count == 0 {
		return nil
	}
	// The memory is the library's, so Go's collector need not know of it.
	pointer := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	return unsafe.Slice((*T)(pointer), count)
}

// Views returns the batch's tables for one group and shard.
func (b *Batch) Views(group, shard int) (Views, error) {
	pointer, err := b.use()
	if err != nil {
		return Views{}, err
	}
	defer b.done()
	var n counts
	inGroup, onShard := n.u32("group", group), n.u32("shard", shard)
	if n.err != nil {
		return Views{}, n.err
	}
	var v C.quire_batch_views
	v.struct_size = C.sizeof_quire_batch_views
	_, err = call(func(e *C.quire_error) C.quire_status {
		return C.q_batch_get_views((*C.quire_batch)(pointer), inGroup, onShard, &v, e)
	})
	views := Views{
		RowCount: int(v.row_count), QueryTokens: int(v.query_tokens), MaxLength: int(v.max_length),
		WriteTokens: int(v.write_tokens), BlockTableStride: int(v.block_table_stride), address: v,
	}
	if err != nil || len(b.cache.shards.Load().([]Shard)) != 0 {
		return views, err
	}
	views.BlockTable = table[int32](v.block_table, b.maxRows*views.BlockTableStride)
	views.CSRIndptr = table[int32](v.csr_indptr, b.maxRows+1)
	views.CSRLastPageLen = table[int32](v.csr_last_page_len, b.maxRows)
	if views.CSRIndptr != nil {
		views.CSRIndices = table[int32](v.csr_indices, int(views.CSRIndptr[views.RowCount]))
	}
	views.Slots = table[int64](v.slots, views.WriteTokens)
	views.Lengths = table[int32](v.lengths, b.maxRows)
	views.Positions = table[int32](v.positions, views.QueryTokens)
	views.CuQ = table[int32](v.cu_q, b.maxRows+1)
	return views, nil
}

// Operand is an array that a call reads or writes: in a Memory from Offset on, which is checked
// for its size, or at an Address, which is not.
type Operand struct {
	Memory  *Memory
	Offset  uint64 // bytes
	Address uint64 // used if Memory is nil
}

// resolve returns the operand's address, after checking that a Memory holds sizeBytes from Offset.
func (o Operand) resolve(name string, device *Device, sizeBytes uint64) (C.uint64_t, error) {
	if o.Memory == nil {
		if o.Address == 0 {
			return 0, failed(ErrArg, "%s is not set: give a Memory or an address", name)
		}
		return C.uint64_t(o.Address), nil
	}
	if o.Memory.device != device {
		return 0, failed(ErrArg, "%s is memory of another device", name)
	}
	if o.Offset > o.Memory.size || o.Memory.size-o.Offset < sizeBytes {
		return 0, failed(ErrArg, "%s has %d bytes in total; from offset %d on, %d are needed", name,
			o.Memory.size, o.Offset, sizeBytes)
	}
	return C.uint64_t(o.Memory.address + o.Offset), nil
}

// place is where a call on a layer runs.
type place struct {
	group, shard int
	queue        *Queue
	step         *Step
}

func (b *Batch) place(layer int, queue *Queue) (place, error) {
	step, _ := b.step.Load().(*Step)
	if step == nil {
		return place{}, failed(ErrArg, "no step has been committed into the batch")
	}
	if layer < 0 || layer >= len(b.cache.layers) {
		return place{}, failed(ErrArg, "layer %d: the cache has %d", layer, len(b.cache.layers))
	}
	if queue == nil {
		if len(step.queues) != 1 {
			return place{}, failed(ErrArg, "the step has %d queues: name one", len(step.queues))
		}
		queue = step.queues[0]
	}
	for i, shard := range b.cache.shards.Load().([]Shard) {
		if shard.Device == queue.device {
			return place{int(b.cache.layers[layer]), i, queue, step}, nil
		}
	}
	return place{}, failed(ErrArg, "the queue's device holds no shard of this cache")
}

// KV is one layer's new K and V, dense: [tokens][kv_heads][head_dim]. If the batch has a rope, Q
// may hold the queries, which are rotated in place.
type KV struct {
	Layer   int
	K, V, Q Operand
	DType   DType  // of K and V; 0: F32
	Queue   *Queue // nil: the step's own
}

// KVWrite enqueues the write of a layer's new K and V into their slots. The operands are read when
// the queue runs it.
func (b *Batch) KVWrite(kv KV) error {
	p, err := b.place(kv.Layer, kv.Queue)
	if err != nil {
		return err
	}
	views, err := b.Views(p.group, p.shard)
	if err != nil {
		return err
	}
	pool, err := b.cache.Pool(p.group, p.shard)
	if err != nil {
		return err
	}
	group := b.cache.groups[p.group]
	kDim, vDim := uint64(group.HeadDim), uint64(group.HeadDim)
	if group.VHeadDim != 0 {
		vDim = uint64(group.VHeadDim)
	}
	if group.Kind == Latent {
		kDim, vDim = vDim, kDim-vDim
	}
	dtype := kv.DType
	if dtype == 0 {
		dtype = F32
	}
	row := uint64(views.WriteTokens) * uint64(pool.HeadCount) * dtype.bits() / 8
	var args C.quire_kv_args
	args.struct_size = C.sizeof_quire_kv_args
	args.layer, args.dtype = C.uint32_t(kv.Layer), C.uint32_t(kv.DType)
	if args.k, err = kv.K.resolve("K", p.queue.device, row*kDim); err != nil {
		return err
	}
	if args.v, err = kv.V.resolve("V", p.queue.device, row*vDim); err != nil {
		return err
	}
	if kv.Q != (Operand{}) {
		attention, err := b.attentionOf(p)
		if err != nil {
			return err
		}
		size := uint64(views.QueryTokens*attention.QHeads*group.HeadDim) * attention.bytes()
		if args.q, err = kv.Q.resolve("Q", p.queue.device, size); err != nil {
			return err
		}
	}
	return b.launch(p.queue, []Operand{kv.K, kv.V, kv.Q},
		func(batch *C.quire_batch, queue *C.quire_queue, e *C.quire_error) C.quire_status {
			return C.q_kv_write(batch, &args, queue, e)
		})
}

func (a Attention) bytes() uint64 {
	if a.DType == 0 {
		return 4
	}
	return a.DType.bits() / 8
}

func (b *Batch) attentionOf(p place) (Attention, error) {
	switch count := len(b.attention); {
	case count == 0:
		return Attention{}, failed(ErrArg, "the batch has no attention")
	case count == 1:
		return b.attention[0], nil
	case count == len(b.cache.groups):
		return b.attention[p.group], nil
	default:
		return b.attention[p.shard*len(b.cache.groups)+p.group], nil
	}
}

// launch runs a call while holding every object that it uses.
func (b *Batch) launch(queue *Queue, operands []Operand,
	run func(*C.quire_batch, *C.quire_queue, *C.quire_error) C.quire_status) error {
	objects := []*object{&b.object, &queue.object}
	for _, operand := range operands {
		if operand.Memory != nil {
			objects = append(objects, &operand.Memory.object)
		}
	}
	pointers, release, err := useAll(objects...)
	defer release()
	if err != nil {
		return err
	}
	_, err = call(func(e *C.quire_error) C.quire_status {
		return run((*C.quire_batch)(pointers[0]), (*C.quire_queue)(pointers[1]), e)
	})
	return err
}

// Attend is one layer's attention of the new tokens over their sequences, dense: Q
// [tokens][q_heads][k_head_dim], Out [tokens][q_heads][v_head_dim]. LSE, [tokens][q_heads] f32, is
// written if it is given; Sinks, [q_heads] f32, goes with SinkLogits.
type Attend struct {
	Layer      int
	Q, Out     Operand
	LSE, Sinks Operand
	Queue      *Queue // nil: the step's own
}

// Attend enqueues a layer's attention.
func (b *Batch) Attend(a Attend) error {
	p, err := b.place(a.Layer, a.Queue)
	if err != nil {
		return err
	}
	views, err := b.Views(p.group, p.shard)
	if err != nil {
		return err
	}
	attention, err := b.attentionOf(p)
	if err != nil {
		return err
	}
	group := b.cache.groups[p.group]
	vDim := group.VHeadDim
	if vDim == 0 {
		vDim = group.HeadDim
	}
	rows := uint64(views.QueryTokens * attention.QHeads)
	row := uint64(group.HeadDim) * attention.bytes()
	var args C.quire_attend_args
	args.struct_size, args.layer = C.sizeof_quire_attend_args, C.uint32_t(a.Layer)
	device := p.queue.device
	if args.q, err = a.Q.resolve("Q", device, rows*row); err != nil {
		return err
	}
	if args.out, err = a.Out.resolve("Out", device, rows*uint64(vDim)*attention.bytes()); err != nil {
		return err
	}
	if a.LSE != (Operand{}) {
		if args.lse, err = a.LSE.resolve("LSE", device, rows*4); err != nil {
			return err
		}
	}
	if a.Sinks != (Operand{}) {
		size := uint64(attention.QHeads) * 4
		if args.sinks, err = a.Sinks.resolve("Sinks", device, size); err != nil {
			return err
		}
	}
	return b.launch(p.queue, []Operand{a.Q, a.Out, a.LSE, a.Sinks},
		func(batch *C.quire_batch, queue *C.quire_queue, e *C.quire_error) C.quire_status {
			return C.q_attend(batch, &args, queue, e)
		})
}
