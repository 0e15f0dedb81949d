// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import "math/bits"

// Merge describes attention states over parts of a context, to be merged into one: Parts
// [parts][tokens][heads][head_dim], LSEs f32 [parts][tokens][heads], Out [tokens][heads][head_dim],
// and LSE f32 [tokens][heads], written if it is given.
type Merge struct {
	Parts, LSEs, Out, LSE                 Operand
	PartCount, TokenCount, Heads, HeadDim int
	DType                                 DType // of parts and out; 0: F32
}

// sizeOf returns the product; false: a number is negative, or the product overflows.
func sizeOf(numbers ...int) (uint64, bool) {
	size := uint64(1)
	for _, number := range numbers {
		over, low := bits.Mul64(size, uint64(number))
		if number < 0 || over != 0 {
			return 0, false
		}
		size = low
	}
	return size, true
}

// Merge enqueues a merge of attention states.
func (q *Queue) Merge(m Merge) error {
	width := 4
	if m.DType != 0 {
		width = int(m.DType.bits() / 8)
	}
	parts, fits := sizeOf(m.PartCount, m.TokenCount, m.Heads, m.HeadDim, width)
	lses, alsoFits := sizeOf(m.PartCount, m.TokenCount, m.Heads, 4)
	out, outFits := sizeOf(m.TokenCount, m.Heads, m.HeadDim, width)
	if !fits || !alsoFits || !outFits {
		return failed(ErrArg, "%d parts of %d tokens, %d heads of %d: not a valid size", m.PartCount,
			m.TokenCount, m.Heads, m.HeadDim)
	}
	lse, _ := sizeOf(m.TokenCount, m.Heads, 4)
	var args C.quire_merge_args
	args.struct_size, args.dtype = C.sizeof_quire_merge_args, C.uint32_t(m.DType)
	var n counts
	args.part_count = n.u32("PartCount", m.PartCount)
	args.token_count = n.u32("TokenCount", m.TokenCount)
	args.heads, args.head_dim = n.u32("Heads", m.Heads), n.u32("HeadDim", m.HeadDim)
	err := n.err
	if err != nil {
		return err
	}
	for _, operand := range []struct {
		name string
		from Operand
		size uint64
		to   *C.uint64_t
	}{{"Parts", m.Parts, parts, &args.parts}, {"LSEs", m.LSEs, lses, &args.lses},
		{"Out", m.Out, out, &args.out}, {"LSE", m.LSE, lse, &args.lse}} {
		if operand.from == (Operand{}) && operand.name == "LSE" {
			continue
		}
		if *operand.to, err = operand.from.resolve(operand.name, q.device, operand.size); err != nil {
			return err
		}
	}
	objects := []*object{&q.object}
	for _, operand := range []Operand{m.Parts, m.LSEs, m.Out, m.LSE} {
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
		return C.q_attention_merge((*C.quire_queue)(pointers[0]), &args, e)
	})
	return err
}
