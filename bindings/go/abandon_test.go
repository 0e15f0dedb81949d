// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"errors"
	"testing"
	"time"
)

// stuck is a cache on the cpu whose queue waits for a fence that has no signal yet.
func stuck(t *testing.T) (*Instance, *Device, *Queue, *Cache, *Fence) {
	t.Helper()
	instance, device, queue := openCPU(t)
	cache, err := instance.NewCache(CacheOptions{
		Groups: []Group{{Layers: 1, KVHeads: 1, HeadDim: 8, DType: F32}},
		Shards: []Shard{{Device: device}}, Blocks: 16, BlockTokens: 4})
	must(t, err)
	fence, err := device.NewFence(0)
	must(t, err)
	must(t, queue.After(fence, 1))
	return instance, device, queue, cache, fence
}

func refuses(t *testing.T, want Status, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, expected %v", err, want)
	}
}

func TestAbandonedObjectsAreStale(t *testing.T) {
	instance, device, queue, cache, fence := stuck(t)
	sequence, err := cache.NewSequence(SequenceOptions{})
	must(t, err)
	_, err = device.Abandon()
	refuses(t, ErrBusy, err) // the cache is on it
	left, err := cache.Abandon()
	must(t, err)
	if left.DeviceBytes == 0 {
		t.Fatalf("%+v", left)
	}
	_, err = cache.Stats()
	refuses(t, ErrStale, err)
	refuses(t, ErrStale, sequence.End(false))
	_, err = cache.Abandon()
	refuses(t, ErrStale, err)
	must(t, cache.Close())
	left, err = device.Abandon()
	must(t, err)
	if left.DeviceBytes == 0 {
		t.Fatalf("%+v", left)
	}
	refuses(t, ErrStale, queue.Sync())
	_, err = fence.Value()
	refuses(t, ErrStale, err)
	must(t, device.Close())
	must(t, instance.Close())
}

func TestAbandonEndsTheWaitOfAnotherGoroutine(t *testing.T) {
	instance, device, queue, cache, fence := stuck(t)
	inside, next := make(chan error, 1), make(chan error, 1)
	go func() { inside <- queue.Sync() }()
	time.Sleep(20 * time.Millisecond) // one is in the driver by now, or is refused later
	go func() { next <- queue.Signal(fence, 2) }()
	time.Sleep(20 * time.Millisecond)
	must(t, queue.Abandon())
	select {
	case err := <-next:
		if err != nil { // nil: the backend took the signal while the other waited
			refuses(t, ErrStale, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the queue is abandoned, and a call still waits for its turn on it")
	}
	refuses(t, ErrStale, queue.Sync())
	must(t, fence.Signal(1)) // the driver lets the other go
	<-inside
	must(t, queue.Close())
	_, err := cache.Abandon()
	must(t, err)
	_, err = device.Abandon()
	must(t, err)
	must(t, instance.Close())
}

func TestNativeStreamsAreRefusedWhereThereAreNone(t *testing.T) {
	s := serve(t)
	_, err := s.device.BindQueue(Native{Kind: CUDAStream, Value: 1})
	refuses(t, ErrUnsupported, err)
	refuses(t, ErrUnsupported, s.queue.SignalNative(Native{Kind: CUDAEvent, Value: 1}))
	refuses(t, ErrUnsupported, s.queue.AfterNative(Native{Kind: VulkanSemaphore, Value: 1, Aux0: 1}))
	queue, err := s.device.BindQueue(Native{})
	must(t, err)
	must(t, queue.Close())
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(t, err)
	items := []Item{{Sequence: sequence.Handle(), TokenCount: 3}}
	step, err := s.cache.Begin(StepOptions{Queues: []*Queue{s.queue}}, items, count(3),
		make([]Result, 1))
	must(t, err)
	must(t, step.Commit(nil))
	refuses(t, ErrUnsupported, step.FinishAfter(Native{Kind: HIPEvent, Value: 7}))
	must(t, step.Finish()) // the refusal changed nothing
	must(t, sequence.End(false))
}
