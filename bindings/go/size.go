// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

// SizeModel describes a model, its use and one device in numbers; 0 is a field's default or
// unknown: quire_size_desc of quire/size.h.
type SizeModel struct {
	Parameters                                  uint64
	Layers, KVHeads, QHeads, KHeadDim, VHeadDim int
	KVBits, WeightBits, ScaleBytes              int
	Latent                                      bool
	BlockTokens, Batch, Devices                 int
	ContextTokens, MemoryBytes, ReserveBytes    uint64
	Utilization                                 float64
	BytesPerSecond, OperationsPerSecond         float64
}

// Bound says what takes longer in a decode step.
type Bound uint32

const (
	UnknownBound   Bound = 0
	BandwidthBound Bound = 1
	ComputeBound   Bound = 2
)

// Size is what a deployment holds, over all devices: quire_size_info of quire/size.h.
type Size struct {
	KVBytesPerToken, PoolBytes, Blocks, Tokens, MaxSequences uint64
	Batch                                                    int
	Bound                                                    Bound
	StepSeconds, TokensPerSecond                             float64
}

// EstimateSize estimates how much a deployment holds and how fast it decodes, from numbers alone.
func EstimateSize(model SizeModel) (Size, error) {
	if err := Open(""); err != nil {
		return Size{}, err
	}
	var n counts
	desc := C.quire_size_desc{
		struct_size:           C.sizeof_quire_size_desc,
		flags:                 flag(model.Latent, 1),
		parameters:            C.uint64_t(model.Parameters),
		layer_count:           n.u32("Layers", model.Layers),
		kv_heads:              n.u32("KVHeads", model.KVHeads),
		q_heads:               n.u32("QHeads", model.QHeads),
		k_head_dim:            n.u32("KHeadDim", model.KHeadDim),
		v_head_dim:            n.u32("VHeadDim", model.VHeadDim),
		kv_bits:               n.u32("KVBits", model.KVBits),
		weight_bits:           n.u32("WeightBits", model.WeightBits),
		block_tokens:          n.u32("BlockTokens", model.BlockTokens),
		batch:                 n.u32("Batch", model.Batch),
		device_count:          n.u32("Devices", model.Devices),
		context_tokens:        C.uint64_t(model.ContextTokens),
		memory_bytes:          C.uint64_t(model.MemoryBytes),
		reserve_bytes:         C.uint64_t(model.ReserveBytes),
		utilization:           C.double(model.Utilization),
		bytes_per_second:      C.double(model.BytesPerSecond),
		operations_per_second: C.double(model.OperationsPerSecond),
		scale_bytes:           n.u32("ScaleBytes", model.ScaleBytes),
	}
	if n.err != nil {
		return Size{}, n.err
	}
	var info C.quire_size_info
	info.struct_size = C.sizeof_quire_size_info
	_, err := call(func(e *C.quire_error) C.quire_status {
		return C.q_size_estimate(&desc, &info, e)
	})
	return Size{
		KVBytesPerToken: uint64(info.kv_bytes_per_token), PoolBytes: uint64(info.pool_bytes),
		Blocks: uint64(info.blocks), Tokens: uint64(info.tokens),
		MaxSequences: uint64(info.max_sequences), Batch: int(info.batch),
		Bound: Bound(info.bound), StepSeconds: float64(info.step_seconds),
		TokensPerSecond: float64(info.tokens_per_second),
	}, err
}
