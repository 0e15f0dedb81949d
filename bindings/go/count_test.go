// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// Every number of a call that its field does not hold is refused with the number itself. Cut to 32
// bits, 2^32 + 64 would be 64, and -5 would be 4294967291.
func TestNumbersThatDoNotFitAreRefusedAsGiven(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	sequence := b.sequence()
	b.grow(sequence, count(9))
	for _, number := range []int{1<<32 + 64, -5, math.MinInt64, math.MaxInt64} {
		for name, err := range callsWith(b, sequence, number) {
			if name == "NewSequence Priority" && number == -5 {
				must(t, err) // the only field with a sign
				continue
			}
			if err == nil {
				t.Errorf("%s: %d is accepted", name, number)
				continue
			}
			refused(t, err, ErrArg)
			field := name[strings.LastIndex(name, " ")+1:]
			if wanted := fmt.Sprintf("%s is %d", field, number); !strings.Contains(err.Error(), wanted) {
				t.Errorf("%s: %q does not say %q", name, err, wanted)
			}
		}
	}
	b.grow(sequence, []uint32{1})
}

// callsWith makes every call that takes a number, with this one, and returns their errors by the
// call and the name of the number.
func callsWith(b *books, sequence Sequence, number int) map[string]error {
	errs := map[string]error{
		"Truncate tokenCount":  sequence.Truncate(number),
		"Accept count":         sequence.Accept(number),
		"SetTokens position":   sequence.SetTokens(number, []uint32{1}),
		"NewSequence Priority": second(b.cache.NewSequence(SequenceOptions{Priority: number})),
		"NewSequence CrossTokens": second(
			b.cache.NewSequence(SequenceOptions{CrossTokens: number})),
		"NewSequence Keys[0].Begin": second(
			b.cache.NewSequence(SequenceOptions{Keys: []Key{{Begin: number}}})),
		"NewSequence Keys[0].End": second(
			b.cache.NewSequence(SequenceOptions{Keys: []Key{{End: number}}})),
		"NewNamespace QuotaBlocks": second(b.cache.NewNamespace(nil, number)),
		"Fork tokenCount":          second(sequence.Fork(number)),
		"Blocks group":             second(sequence.Blocks(number, nil)),
		"Lease.Blocks group":       second(Lease{cache: b.cache}.Blocks(number)),
		"Lease.Take group":         second(Lease{cache: b.cache}.Take(&Step{}, number, nil)),
		"Lease.Give group":         Lease{cache: b.cache}.Give(&Step{}, number, nil),
		"Lease.Pin group":          second(Lease{cache: b.cache}.Pin(&Step{}, number, nil)),
		"Lease.Forget group":       second(Lease{cache: b.cache}.Forget(number, nil)),
		"Evict group":              second(b.cache.Evict(number, nil)),
		"Layers first":             (&Sender{}).Layers(&Step{}, number, 1),
		"Layers count":             (&Sender{}).Layers(&Step{}, 0, number),
		"NewLease Keys[0].Begin": second(
			b.cache.NewLease(LeaseOptions{Keys: []Key{{Begin: number}}})),
		"Pool group":     second(b.cache.Pool(number, 0)),
		"Pool shard":     second(b.cache.Pool(0, number)),
		"Migrate Blocks": second(b.cache.Migrate(MigrateOptions{Blocks: number})),
		"Migrate HostBlocks": second(
			b.cache.Migrate(MigrateOptions{Blocks: 16, HostBlocks: number})),
		"OpenDevice Index": second(
			b.instance.OpenDevice(DeviceOptions{Backend: "cpu", Index: number})),
		"OpenDevice Threads": second(
			b.instance.OpenDevice(DeviceOptions{Backend: "cpu", Threads: number})),
	}
	for name, set := range cacheNumbers {
		options := CacheOptions{Groups: []Group{{Layers: 1, KVHeads: 1, HeadDim: 8}}, Blocks: 16}
		set(&options, number)
		errs["NewCache "+name] = second(b.instance.NewCache(options))
	}
	for name, set := range batchNumbers {
		options := BatchOptions{MaxRows: 1, MaxBlocksPerRow: 1, MaxQueryTokens: 1,
			Attention: []Attention{{QHeads: 1, Rope: &Rope{}}}}
		set(&options, number)
		errs["NewBatch "+name] = second(b.cache.NewBatch(options))
	}
	for name, set := range sizeNumbers {
		var model SizeModel
		set(&model, number)
		errs["EstimateSize "+name] = second(EstimateSize(model))
	}
	return errs
}

func second[T any](_ T, err error) error { return err }

var cacheNumbers = map[string]func(*CacheOptions, int){
	"BlockTokens":          func(o *CacheOptions, n int) { o.BlockTokens = n },
	"Blocks":               func(o *CacheOptions, n int) { o.Blocks = n },
	"HostBlocks":           func(o *CacheOptions, n int) { o.HostBlocks = n },
	"MaxSequences":         func(o *CacheOptions, n int) { o.MaxSequences = n },
	"MaxSequenceTokens":    func(o *CacheOptions, n int) { o.MaxSequenceTokens = n },
	"WatermarkBlocks":      func(o *CacheOptions, n int) { o.WatermarkBlocks = n },
	"Groups[0].Layers":     func(o *CacheOptions, n int) { o.Groups[0].Layers = n },
	"Groups[0].KVHeads":    func(o *CacheOptions, n int) { o.Groups[0].KVHeads = n },
	"Groups[0].HeadDim":    func(o *CacheOptions, n int) { o.Groups[0].HeadDim = n },
	"Groups[0].VHeadDim":   func(o *CacheOptions, n int) { o.Groups[0].VHeadDim = n },
	"Groups[0].Window":     func(o *CacheOptions, n int) { o.Groups[0].Window = n },
	"Groups[0].SinkTokens": func(o *CacheOptions, n int) { o.Groups[0].SinkTokens = n },
	"Groups[0].Blocks":     func(o *CacheOptions, n int) { o.Groups[0].Blocks = n },
	"with 2 Groups[1].Layers": func(o *CacheOptions, n int) {
		o.Groups = append(o.Groups, Group{Layers: n, KVHeads: 1, HeadDim: 8})
	},
}

var batchNumbers = map[string]func(*BatchOptions, int){
	"MaxRows":             func(o *BatchOptions, n int) { o.MaxRows = n },
	"MaxBlocksPerRow":     func(o *BatchOptions, n int) { o.MaxBlocksPerRow = n },
	"MaxQueryTokens":      func(o *BatchOptions, n int) { o.MaxQueryTokens = n },
	"MaxContextTokens":    func(o *BatchOptions, n int) { o.MaxContextTokens = n },
	"MaxMaskWords":        func(o *BatchOptions, n int) { o.MaxMaskWords = n },
	"MaxCrossTokens":      func(o *BatchOptions, n int) { o.MaxCrossTokens = n },
	"Attention[0].QHeads": func(o *BatchOptions, n int) { o.Attention[0].QHeads = n },
	"Attention[0].Rope.RotatedDim": func(o *BatchOptions, n int) {
		o.Attention[0].Rope.RotatedDim = n
	},
	"Attention[0].Rope.OriginalContext": func(o *BatchOptions, n int) {
		o.Attention[0].Rope.OriginalContext = n
	},
}

var sizeNumbers = map[string]func(*SizeModel, int){
	"Layers":      func(m *SizeModel, n int) { m.Layers = n },
	"KVHeads":     func(m *SizeModel, n int) { m.KVHeads = n },
	"QHeads":      func(m *SizeModel, n int) { m.QHeads = n },
	"KHeadDim":    func(m *SizeModel, n int) { m.KHeadDim = n },
	"VHeadDim":    func(m *SizeModel, n int) { m.VHeadDim = n },
	"KVBits":      func(m *SizeModel, n int) { m.KVBits = n },
	"WeightBits":  func(m *SizeModel, n int) { m.WeightBits = n },
	"ScaleBytes":  func(m *SizeModel, n int) { m.ScaleBytes = n },
	"BlockTokens": func(m *SizeModel, n int) { m.BlockTokens = n },
	"Batch":       func(m *SizeModel, n int) { m.Batch = n },
	"Devices":     func(m *SizeModel, n int) { m.Devices = n },
}

// A negative number is refused by its name also where no C field would cut it.
func TestMergeRefusesNumbersThatDoNotFit(t *testing.T) {
	var queue Queue
	for _, number := range []int{1<<32 + 1, -1} {
		err := queue.Merge(Merge{PartCount: number, TokenCount: 1, Heads: 1, HeadDim: 1})
		refused(t, err, ErrArg)
		if !strings.Contains(err.Error(), fmt.Sprint(number)) {
			t.Errorf("%q does not say %d", err, number)
		}
	}
}
