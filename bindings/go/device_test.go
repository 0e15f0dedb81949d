// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

// served is a cache on the cpu: 2 query heads on 1 KV head of 8 elements, f32.
type served struct {
	*testing.T
	instance *Instance
	device   *Device
	queue    *Queue
	cache    *Cache
	batch    *Batch
}

func serve(t *testing.T) *served { return serveWith(t, 0) }

func serveWith(t *testing.T, hostBytes uint64) *served {
	t.Helper()
	return serveLayers(t, 1, hostBytes)
}

func openCPU(t *testing.T) (*Instance, *Device, *Queue) {
	t.Helper()
	instance, err := NewInstance(InstanceOptions{})
	must(t, err)
	device, err := instance.OpenDevice(DeviceOptions{Backend: "cpu", Threads: 1})
	must(t, err)
	queue, err := device.NewQueue()
	must(t, err)
	return instance, device, queue
}

func serveLayers(t *testing.T, layers int, hostBytes uint64) *served {
	t.Helper()
	instance, device, queue := openCPU(t)
	cache, err := instance.NewCache(CacheOptions{
		Groups: []Group{{Layers: layers, KVHeads: 1, HeadDim: 8, DType: F32}},
		Shards: []Shard{{Device: device}}, Blocks: 16, BlockTokens: 4,
		HostBytes: hostBytes})
	must(t, err)
	s := &served{t, instance, device, queue, cache, nil}
	s.makeBatch()
	t.Cleanup(func() {
		must(t, s.queue.Sync())
		things := []interface{ Close() error }{s.batch, s.cache, s.queue, s.device, s.instance}
		for _, thing := range things {
			must(t, thing.Close())
		}
	})
	return s
}

func (s *served) makeBatch() {
	batch, err := s.cache.NewBatch(BatchOptions{MaxRows: 4, MaxBlocksPerRow: 8, MaxQueryTokens: 32,
		Attention: []Attention{{QHeads: 2}}})
	must(s.T, err)
	s.batch = batch
}

func (s *served) memory(numbers int) *Memory {
	memory, err := s.device.NewMemory(uint64(numbers)*4, true)
	must(s.T, err)
	s.Cleanup(func() {
		if err := memory.Close(); err != nil && !errors.Is(err, ErrStale) {
			s.Error(err)
		}
	})
	return memory
}

// means computes tokens of a sequence whose values are `first` and up. The queries are zero, so the
// outputs are the means of all values so far.
func (s *served) means(sequence Sequence, tokens []uint32, first int) []float32 {
	s.Helper()
	items := []Item{{Sequence: sequence.Handle(), TokenCount: uint32(len(tokens))}}
	return s.meansOf(items, tokens, first, len(tokens))
}

// meansOf is means for an item of which n tokens are left to compute.
func (s *served) meansOf(items []Item, tokens []uint32, first, n int) []float32 {
	s.Helper()
	kv, q, out := s.memory(n*8), s.memory(n*16), s.memory(n*16)
	defer func() {
		for _, memory := range []*Memory{kv, q, out} {
			must(s.T, memory.Close())
		}
	}()
	for i, numbers := 0, kv.Float32s(); i < n*8; i++ {
		numbers[i] = float32(first + i/8)
	}
	step, err := s.cache.BeginCommit(StepOptions{Queues: []*Queue{s.queue}}, s.batch, items, tokens,
		make([]Result, 1))
	must(s.T, err)
	must(s.T, s.batch.KVWrite(KV{K: Operand{Memory: kv}, V: Operand{Memory: kv}}))
	must(s.T, s.batch.Attend(Attend{Q: Operand{Memory: q}, Out: Operand{Memory: out}}))
	must(s.T, step.Finish())
	must(s.T, s.queue.Sync())
	results := make([]float32, n)
	for i := range results {
		results[i] = out.Float32s()[i*16]
	}
	return results
}

func checkMeans(t *testing.T, got []float32, first int) {
	t.Helper()
	for i, mean := range got {
		if want := float32(first+i) / 2; math.Abs(float64(mean-want)) > 1e-6 {
			t.Fatal(got)
		}
	}
}

func TestAttentionIsTheMean(t *testing.T) {
	s := serve(t)
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(t, err)
	checkMeans(t, s.means(sequence, count(6), 0), 0)
	checkMeans(t, s.means(sequence, []uint32{6, 7}, 6), 6)
}

func TestLiveCacheChangesItsDevice(t *testing.T) {
	s := serve(t)
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(t, err)
	checkMeans(t, s.means(sequence, count(6), 0), 0)
	device, err := s.instance.OpenDevice(DeviceOptions{Backend: "cpu"})
	must(t, err)
	moved, err := s.cache.Migrate(MigrateOptions{Shards: []Shard{{Device: device}}, Blocks: 24,
		Timeout: -1})
	must(t, err)
	if !moved.Moved || moved.BlocksMoved != 2 {
		t.Fatalf("%+v", moved)
	}
	_, err = s.batch.Views(0, 0)
	refused(t, err, ErrStale)
	for _, old := range []interface{ Close() error }{s.batch, s.queue, s.device} {
		must(t, old.Close())
	}
	s.device = device
	s.queue, err = device.NewQueue()
	must(t, err)
	s.makeBatch()
	checkMeans(t, s.means(sequence, []uint32{6}, 6), 6)
	small, err := s.cache.Migrate(MigrateOptions{Shards: []Shard{{Device: device}}, Blocks: 2})
	must(t, err)
	if small.Moved || small.BlocksShort != 1 {
		t.Fatalf("%+v", small)
	}
	_, err = s.cache.Migrate(MigrateOptions{})
	refused(t, err, ErrArg)
}

func TestOperandsAreChecked(t *testing.T) {
	s := serve(t)
	refused(t, s.batch.Attend(Attend{}), ErrArg)
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(t, err)
	step, err := s.cache.BeginCommit(StepOptions{Queues: []*Queue{s.queue}}, s.batch,
		[]Item{{Sequence: sequence.Handle(), TokenCount: 3}}, count(3), make([]Result, 1))
	must(t, err)
	small, fits := s.memory(3*16-1), s.memory(3*16)
	for _, bad := range []Attend{
		{Q: Operand{Memory: small}, Out: Operand{Memory: fits}},
		{Q: Operand{Memory: fits}, Out: Operand{Memory: fits, Offset: 4}},
		{Q: Operand{Memory: fits, Offset: math.MaxUint64}, Out: Operand{Memory: fits}},
		{Q: Operand{Memory: fits}},
		{Layer: 1, Q: Operand{Memory: fits}, Out: Operand{Memory: fits}},
		{Layer: -1, Q: Operand{Memory: fits}, Out: Operand{Memory: fits}},
		{Q: Operand{Memory: fits}, Out: Operand{Memory: fits}, LSE: Operand{Memory: fits, Offset: 190}},
	} {
		refused(t, s.batch.Attend(bad), ErrArg)
	}
	closed := s.memory(64)
	must(t, closed.Close())
	gone := Attend{Q: Operand{Memory: closed}, Out: Operand{Memory: fits}}
	refused(t, s.batch.Attend(gone), ErrStale)
	other, err := s.instance.OpenDevice(DeviceOptions{Backend: "cpu", Threads: 1})
	must(t, err)
	foreign, err := other.NewQueue()
	must(t, err)
	refused(t, s.batch.Attend(Attend{Q: Operand{Memory: fits}, Out: Operand{Memory: fits},
		Queue: foreign}), ErrArg)
	fence, err := s.device.NewFence(0)
	must(t, err)
	if err := foreign.Signal(fence, 1); err == nil {
		t.Fatal("a fence of another device was accepted")
	}
	must(t, fence.Close())
	must(t, foreign.Close())
	must(t, other.Close())
	must(t, step.Fail())
}

func TestFencesAreWaitedFor(t *testing.T) {
	s := serve(t)
	fence, err := s.device.NewFence(3)
	must(t, err)
	refused(t, fence.Wait(5, time.Millisecond), ErrTimeout)
	refused(t, fence.Signal(2), ErrArg)
	must(t, s.queue.After(fence, 4))
	must(t, s.queue.Signal(fence, 5))
	waiting := make(chan error, 1)
	go func() { waiting <- fence.Wait(5, -1) }()
	for fence.lock.TryLock() { // until the other goroutine holds the lock
		fence.lock.Unlock()
		runtime.Gosched()
	}
	refused(t, fence.Close(), ErrBusy)
	must(t, fence.Signal(4))
	must(t, <-waiting)
	must(t, s.queue.Sync())
	must(t, fence.Close())
}

func TestMemoryIsCopied(t *testing.T) {
	s := serve(t)
	source, target := s.memory(16), s.memory(16)
	for i := range source.Bytes() {
		source.Bytes()[i] = byte(i)
	}
	must(t, s.queue.Copy(target, 4, source, 8, 16))
	must(t, s.queue.Sync())
	if !bytes.Equal(target.Bytes()[4:20], source.Bytes()[8:24]) || target.Bytes()[20] != 0 {
		t.Fatal(target.Bytes())
	}
	refused(t, s.queue.Copy(target, 0, source, 8, 64), ErrArg)
}

func TestKernelsRunInTheEnginesThreads(t *testing.T) {
	for _, panics := range []bool{false, true} {
		instance, err := NewInstance(InstanceOptions{Log: func(int, string, string) { panic("mine") }})
		must(t, err)
		device, err := instance.OpenDevice(DeviceOptions{Backend: "cpu", Threads: 2,
			RunTasks: func(count int, task func(int)) {
				if panics {
					panic("mine")
				}
				for i := 0; i < count; i++ {
					task(i)
				}
			}})
		must(t, err)
		queue, err := device.NewQueue()
		must(t, err)
		source, err := device.NewMemory(8<<20, true)
		must(t, err)
		target, err := device.NewMemory(8<<20, true)
		must(t, err)
		must(t, queue.Copy(target, 0, source, 0, 8<<20))
		err = queue.Sync()
		if panics {
			refused(t, err, ErrDeviceLost)
			if device.TaskError() == nil || !strings.Contains(device.TaskError().Error(), "mine") {
				t.Fatal(device.TaskError())
			}
		} else {
			must(t, err)
		}
		for _, thing := range []interface{ Close() error }{source, target, queue, device, instance} {
			must(t, thing.Close())
		}
	}
}

func TestStatesAreMerged(t *testing.T) {
	s := serve(t)
	parts, lses, out := s.memory(8), s.memory(2), s.memory(4)
	copy(parts.Float32s(), []float32{1, 1, 1, 1, 3, 3, 3, 3})
	copy(lses.Float32s(), []float32{0.5, 0.5})
	merge := Merge{Parts: Operand{Memory: parts}, LSEs: Operand{Memory: lses},
		Out: Operand{Memory: out}, PartCount: 2, TokenCount: 1, Heads: 1, HeadDim: 4}
	must(t, s.queue.Merge(merge))
	must(t, s.queue.Sync())
	for _, number := range out.Float32s() {
		if number != 2 {
			t.Fatal(out.Float32s())
		}
	}
	for _, bad := range []func(m *Merge){
		func(m *Merge) { m.PartCount = 3 },
		func(m *Merge) { m.HeadDim = -1 },
		func(m *Merge) { m.HeadDim = math.MaxInt64 },
		func(m *Merge) { m.Out = Operand{} },
	} {
		wrong := merge
		bad(&wrong)
		refused(t, s.queue.Merge(wrong), ErrArg)
	}
}

func TestCalibrationIsReadAndMerged(t *testing.T) {
	s := serve(t)
	must(t, s.batch.Close())
	measuring, err := s.instance.NewCache(CacheOptions{
		Groups: []Group{{Layers: 1, KVHeads: 1, HeadDim: 8, DType: F32}},
		Shards: []Shard{{Device: s.device}}, Blocks: 16, BlockTokens: 4, Flags: Calibrate})
	must(t, err)
	plain := s.cache
	s.cache = measuring
	s.makeBatch()
	sequence, err := measuring.NewSequence(SequenceOptions{})
	must(t, err)
	checkMeans(t, s.means(sequence, count(6), 0), 0)
	saved, err := measuring.SaveCalibration(-1)
	must(t, err)
	read, err := ReadCalibration(saved)
	must(t, err)
	if len(read.Layers) != 1 || read.Unwritten != 0 || read.Layers[0].K[0] != 5 {
		t.Fatalf("%+v", read)
	}
	merged, err := MergeCalibrations(saved, saved)
	must(t, err)
	if !bytes.Equal(merged, saved) {
		t.Fatal("merging it with itself changed it")
	}
	_, err = ReadCalibration(saved[1:])
	refused(t, err, ErrArg)
	_, err = MergeCalibrations(saved, nil)
	refused(t, err, ErrArg)
	must(t, s.batch.Close())
	must(t, measuring.Close())
	s.cache = plain
	s.makeBatch()
}
