// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"math"
	"runtime"
	"slices"
	"testing"
)

func (b *books) lease(options LeaseOptions) Lease {
	b.Helper()
	lease, err := b.cache.NewLease(options)
	must(b.T, err)
	return lease
}

// inStep runs changes in a step of their own.
func (b *books) inStep(change func(step *Step)) {
	b.Helper()
	step, err := b.cache.Begin(StepOptions{}, nil, nil, nil)
	must(b.T, err)
	change(step)
	must(b.T, step.Commit(nil))
	must(b.T, step.Finish())
}

func fits(t *testing.T, short Shortage, err error) {
	t.Helper()
	must(t, err)
	if short != (Shortage{}) {
		t.Fatalf("%+v", short)
	}
}

// filled takes blocks for tokens, publishes them, and gives those back that were there already.
func (b *books) filled(lease Lease, tokens []uint32) []int32 {
	b.Helper()
	ids, named := make([]int32, len(tokens)/4), make([]int32, len(tokens)/4)
	b.inStep(func(step *Step) {
		short, err := lease.Take(step, 0, ids)
		fits(b.T, short, err)
		_, short, err = lease.Publish(step, tokens, ids, named)
		fits(b.T, short, err)
		for i := range ids {
			if ids[i] != named[i] {
				must(b.T, lease.Give(step, 0, ids[i:i+1]))
			}
		}
	})
	return named
}

// looked returns the blocks that a lease finds.
func (b *books) looked(lease Lease, how MatchHow, tokens []uint32) []int32 {
	b.Helper()
	ids := make([]int32, len(tokens)/4)
	places, short, err := lease.Match(nil, tokens, how, ids)
	fits(b.T, short, err)
	return ids[:places]
}

func (b *books) info(lease Lease) LeaseInfo {
	b.Helper()
	info, err := lease.Info()
	must(b.T, err)
	return info
}

func same(t *testing.T, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%v, not %v", got, want)
	}
}

func TestLeasedBlocksAreFoundAndPinned(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease := b.lease(LeaseOptions{})
	ids := b.filled(lease, count(12))
	if hits, err := b.sequence().Probe(count(13)); hits != 12 || err != nil {
		t.Fatal(hits, err)
	}
	same(t, b.looked(lease, MatchLook, count(11)), ids[:2])
	same(t, b.looked(lease, MatchLook, []uint32{5}), nil)
	same(t, b.looked(lease, MatchLook, nil), nil)
	other := b.lease(LeaseOptions{})
	b.inStep(func(step *Step) {
		found := make([]int32, 2)
		places, short, err := other.Match(step, count(8), MatchPin, found)
		fits(t, short, err)
		same(t, found[:places], ids[:2])
		short, err = other.Pin(step, 0, ids[:1])
		fits(t, short, err)
	})
	if info := b.info(other); info != (LeaseInfo{BlocksHeld: 2, Holds: 3}) {
		t.Fatalf("%+v", info)
	}
	blocks, err := other.Blocks(0)
	must(t, err)
	if !slices.Equal(blocks, []LeaseBlock{{Block: ids[0], Holds: 2, Flags: LeasePublished},
		{Block: ids[1], Holds: 1, Flags: LeasePublished}}) {
		t.Fatalf("%+v", blocks)
	}
	blocks, err = lease.Blocks(0)
	must(t, err)
	for i, block := range blocks {
		if block != (LeaseBlock{Block: ids[i], Holds: 1, Flags: LeasePublished | LeaseOwned}) {
			t.Fatalf("%+v", blocks)
		}
	}
	stats, err := b.cache.Stats()
	must(t, err)
	if stats.Leases != 2 || stats.BlocksLeased != 5 {
		t.Fatalf("%+v", stats)
	}
	must(t, other.End())
	must(t, lease.End())
	stats, err = b.cache.Stats()
	must(t, err)
	if stats.Leases != 0 || stats.BlocksHeld != 0 || stats.BlocksCached != 3 {
		t.Fatalf("%+v", stats)
	}
}

func TestPublishingAgainNamesWhatWasThere(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease := b.lease(LeaseOptions{})
	first := b.filled(lease, count(8))
	same(t, b.filled(lease, count(12))[:2], first)
	if info := b.info(lease); info.BlocksHeld != 3 || info.Holds != 3 {
		t.Fatalf("%+v", info)
	}
	// named may be ids.
	ids := make([]int32, 3)
	b.inStep(func(step *Step) {
		short, err := lease.Take(step, 0, ids)
		fits(t, short, err)
		own := slices.Clone(ids)
		fresh, short, err := lease.Publish(step, count(12), ids, ids)
		fits(t, short, err)
		if fresh != 0 {
			t.Fatal(fresh)
		}
		must(t, lease.Give(step, 0, own))
	})
	same(t, ids[:2], first)
}

func TestTouchedBlocksAreEvictedLast(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease := b.lease(LeaseOptions{})
	older, newer := b.filled(lease, count(8)), b.filled(lease, []uint32{50, 51, 52, 53})
	evicted := make([]int32, 16)
	if n, err := b.cache.Evict(0, evicted); n != 0 || err != nil {
		t.Fatal("a block that is held was evicted", n, err)
	}
	b.inStep(func(step *Step) {
		must(t, lease.Give(step, 0, []int32{older[1], older[0]}))
		must(t, lease.Give(step, 0, newer))
	})
	same(t, b.looked(lease, MatchTouch, count(8)), older)
	n, err := b.cache.Evict(0, evicted[:1])
	must(t, err)
	same(t, evicted[:n], newer)
	n, err = b.cache.Evict(0, evicted)
	must(t, err)
	same(t, evicted[:n], []int32{older[1], older[0]})
	same(t, b.looked(lease, MatchLook, count(8)), nil)
	n, err = b.cache.Evict(0, nil)
	if n != 0 || err != nil {
		t.Fatal(n, err)
	}
}

func TestForgottenBlocksAreNotFound(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease, other := b.lease(LeaseOptions{}), b.lease(LeaseOptions{})
	ids := b.filled(lease, count(12))
	b.inStep(func(step *Step) {
		short, err := other.Pin(step, 0, ids[1:2])
		fits(t, short, err)
	})
	n, err := lease.Forget(0, ids)
	must(t, err)
	if n != 2 { // all but the one that another holds
		t.Fatal(n)
	}
	same(t, b.looked(lease, MatchLook, count(12)), nil)
	must(t, b.cache.Check())
}

func TestShortageOfALeaseIsAResult(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	tenant, err := b.cache.NewNamespace(nil, 3)
	must(t, err)
	lease, plain := b.lease(LeaseOptions{Namespace: tenant}), b.lease(LeaseOptions{})
	ids := make([]int32, 20)
	b.inStep(func(step *Step) {
		short, err := lease.Take(step, 0, ids[:5])
		must(t, err)
		if short != (Shortage{2, WaitQuota}) {
			t.Fatalf("%+v", short)
		}
		short, err = plain.Take(step, 0, ids)
		must(t, err)
		if short != (Shortage{5, WaitPool}) {
			t.Fatalf("%+v", short)
		}
	})
	if b.info(lease).BlocksHeld != 0 || b.info(plain).BlocksHeld != 0 || ids[0] != 0 {
		t.Fatal("a lease that was short got blocks")
	}
	if b.info(lease).Namespace != tenant.Handle() {
		t.Fatalf("%+v", b.info(lease))
	}
	refused(t, tenant.Close(), ErrBusy)
	must(t, lease.End())
	must(t, tenant.Close())
	_, err = b.cache.NewLease(LeaseOptions{Namespace: tenant})
	refused(t, err, ErrStale)
}

// Every id that the lease may not name is refused in every call that takes ids.
func TestForeignBlocksAreRefused(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	tenant, err := b.cache.NewNamespace(nil, 0)
	must(t, err)
	lease, theirs := b.lease(LeaseOptions{}), b.lease(LeaseOptions{Namespace: tenant})
	own, foreign := b.filled(lease, count(4)), b.filled(theirs, count(4))
	sequence := b.sequence()
	b.grow(sequence, []uint32{90, 91})
	unpublished, err := sequence.Blocks(0, nil)
	must(t, err)
	free := own[0]
	for free == own[0] || free == foreign[0] || free == unpublished[0] {
		free++
	}
	before := b.info(lease)
	for _, id := range []int32{0, -1, 16, math.MinInt32, math.MaxInt32, free, foreign[0],
		unpublished[0]} {
		with := []int32{own[0], id}
		b.inStep(func(step *Step) {
			refused(t, lease.Give(step, 0, with), ErrArg)
			_, err := lease.Pin(step, 0, with)
			refused(t, err, ErrArg)
			_, _, err = lease.Publish(step, count(8), with, make([]int32, 2))
			refused(t, err, ErrArg)
		})
		_, err = lease.Forget(0, with)
		refused(t, err, ErrArg)
	}
	b.inStep(func(step *Step) {
		refused(t, lease.Give(step, 0, []int32{own[0], own[0]}), ErrArg)
		_, _, err := lease.Publish(step, []uint32{7, 8, 9, 10}, own, make([]int32, 1))
		refused(t, err, ErrArg) // it is published elsewhere
	})
	if b.info(lease) != before {
		t.Fatalf("%+v became %+v", before, b.info(lease))
	}
	same(t, b.looked(lease, MatchLook, count(8)), own)
}

func TestLeasesOfKeysAreApart(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	plain := b.lease(LeaseOptions{})
	keyed := b.lease(LeaseOptions{Keys: []Key{{Type: SaltKey, Content: []byte("salt")}}})
	b.filled(plain, count(8))
	same(t, b.looked(keyed, MatchLook, count(8)), nil)
	_, err := b.cache.NewLease(LeaseOptions{Keys: []Key{{Type: MediaKey, Content: []byte("an image"),
		End: 4}}})
	refused(t, err, ErrArg)
	_, err = b.cache.NewLease(LeaseOptions{Keys: make([]Key, 65)})
	refused(t, err, ErrLimit)
	foreign, err := keepBooks(t, CacheOptions{}).cache.NewNamespace(nil, 0)
	must(t, err)
	_, err = b.cache.NewLease(LeaseOptions{Namespace: foreign})
	refused(t, err, ErrStale)
}

func TestStepsThatFailTakeBackWhatALeaseGotInThem(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease := b.lease(LeaseOptions{})
	ids := make([]int32, 1)
	take := func() *Step {
		step, err := b.cache.Begin(StepOptions{}, nil, nil, nil)
		must(t, err)
		short, err := lease.Take(step, 0, ids)
		fits(t, short, err)
		_, short, err = lease.Publish(step, count(4), ids, ids)
		fits(t, short, err)
		return step
	}
	step := take()
	refused(t, lease.End(), ErrBusy)
	_, err := lease.Forget(0, ids)
	refused(t, err, ErrBusy)
	_, err = b.cache.Evict(0, ids)
	refused(t, err, ErrBusy)
	must(t, step.Abort())
	if b.info(lease) != (LeaseInfo{}) {
		t.Fatalf("%+v", b.info(lease))
	}
	step = take()
	must(t, step.Commit(nil))
	refused(t, lease.Give(step, 0, ids), ErrBusy)
	must(t, step.Fail())
	if info := b.info(lease); info.BlocksHeld != 1 || info.BlocksLost != 1 {
		t.Fatalf("%+v", info)
	}
	same(t, b.looked(lease, MatchLook, count(4)), nil)
	refused(t, lease.Give(step, 0, ids), ErrStale)
}

func TestGroupsHaveAColumnEach(t *testing.T) {
	instance, err := NewInstance(InstanceOptions{})
	must(t, err)
	layers := Group{Layers: 1, KVHeads: 1, HeadDim: 8}
	for _, flags := range []CacheFlags{0, OnePool} {
		cache, err := instance.NewCache(CacheOptions{Groups: []Group{layers, layers}, BlockTokens: 4,
			Blocks: 16, Flags: flags})
		must(t, err)
		b := &books{t, instance, cache}
		lease := b.lease(LeaseOptions{})
		ids, found := make([]int32, 4), make([]int32, 4)
		b.inStep(func(step *Step) {
			for group := 0; group < 2; group++ {
				column := make([]int32, 2)
				short, err := lease.Take(step, group, column)
				fits(t, short, err)
				ids[group], ids[2+group] = column[0], column[1]
			}
			fresh, short, err := lease.Publish(step, count(8), ids, found)
			fits(t, short, err)
			if fresh != 2 {
				t.Fatal(fresh)
			}
			_, err = lease.Take(step, 2, found)
			refused(t, err, ErrArg)
		})
		same(t, found, ids)
		places, _, err := lease.Match(nil, count(11), MatchLook, found)
		if places != 2 || err != nil {
			t.Fatal(places, err)
		}
		_, _, err = lease.Match(nil, count(8), MatchLook, found[:3])
		refused(t, err, ErrArg)
		must(t, cache.Check())
		must(t, cache.Close())
	}
	layers.Kind, layers.Window = Window, 8
	cache, err := instance.NewCache(CacheOptions{Groups: []Group{layers}, BlockTokens: 4, Blocks: 16})
	must(t, err)
	lease, err := cache.NewLease(LeaseOptions{})
	must(t, err)
	_, _, err = lease.Match(nil, count(8), MatchLook, make([]int32, 2))
	refused(t, err, ErrUnsupported)
	must(t, cache.Close())
	must(t, instance.Close())
}

func TestAPlaceHasBlocksOfEverySize(t *testing.T) {
	groups := []Group{
		{Layers: 1, KVHeads: 1, HeadDim: 8, BlockTokens: 4},
		{Layers: 1, KVHeads: 1, HeadDim: 8, BlockTokens: 6},
	}
	instance, err := NewInstance(InstanceOptions{})
	must(t, err)
	cache, err := instance.NewCache(CacheOptions{Groups: groups, BlockTokens: 2, Blocks: 16,
		Flags: Events})
	must(t, err)
	b := &books{t, instance, cache}
	if b.cache.SpanTokens() != 12 || b.cache.SpanBlocks() != 5 {
		t.Fatal(b.cache.SpanTokens(), b.cache.SpanBlocks())
	}
	lease := b.lease(LeaseOptions{})
	ids, named := make([]int32, 5), make([]int32, 5)
	b.inStep(func(step *Step) {
		short, err := lease.Take(step, 0, ids[:3])
		fits(t, short, err)
		short, err = lease.Take(step, 1, ids[3:])
		fits(t, short, err)
		places, short, err := lease.Publish(step, count(12), ids, named)
		fits(t, short, err)
		if places != 1 {
			t.Fatal(places)
		}
	})
	same(t, named, ids)
	found := make([]int32, 5)
	places, short, err := lease.Match(nil, count(23), MatchLook, found)
	fits(t, short, err)
	if places != 1 {
		t.Fatal(places)
	}
	same(t, found, ids)
	events, _, err := b.cache.Events(false, 16)
	must(t, err)
	if len(events) != 3 {
		t.Fatal(events)
	}
	must(t, cache.Check())
	must(t, cache.Close())
	must(t, instance.Close())
}

func TestMovedLeasesKeepTheirOrder(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease, short := b.lease(LeaseOptions{}), b.lease(LeaseOptions{})
	b.filled(short, count(20)) // so that the other's ids are high
	ids := b.filled(lease, []uint32{70, 71, 72, 73, 74, 75, 76, 77})
	must(t, short.End())
	n, err := b.cache.Evict(0, make([]int32, 5))
	must(t, err)
	moved, err := b.cache.Migrate(MigrateOptions{Blocks: 4})
	must(t, err)
	blocks, err := lease.Blocks(0)
	must(t, err)
	if n != 5 || !moved.Moved || len(blocks) != 2 || blocks[0].Block == ids[0] {
		t.Fatal(n, moved, blocks)
	}
	same(t, b.looked(lease, MatchLook, []uint32{70, 71, 72, 73, 74, 75, 76, 77}),
		[]int32{blocks[0].Block, blocks[1].Block})
}

func TestFollowersGetTheLeadersLeases(t *testing.T) {
	leader := keepBooks(t, CacheOptions{Flags: Log})
	follower := keepBooks(t, CacheOptions{Flags: Follower})
	lease, ids := leader.lease(LeaseOptions{}), make([]int32, 2)
	step, err := leader.cache.Begin(StepOptions{}, nil, nil, nil)
	must(t, err)
	short, err := lease.Take(step, 0, ids)
	fits(t, short, err)
	_, short, err = lease.Publish(step, count(8), ids, ids)
	fits(t, short, err)
	must(t, step.Commit(nil))
	log, err := step.Log()
	must(t, err)
	followed, err := follower.cache.ApplyLog(log, StepOptions{}, nil)
	must(t, err)
	must(t, followed.Finish())
	must(t, step.Finish())
	stats, err := follower.cache.Stats()
	must(t, err)
	if stats.BlocksHeld != 2 {
		t.Fatalf("%+v", stats)
	}
	_, err = follower.cache.NewLease(LeaseOptions{})
	refused(t, err, ErrUnsupported)
	_, err = follower.cache.Evict(0, ids)
	refused(t, err, ErrUnsupported)
}

// A lease that the program forgets keeps its blocks until the cache is closed, and no longer.
func TestLeasesThatAreForgottenHarmNothing(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	func() {
		for i := uint32(0); i < 3; i++ {
			b.filled(b.lease(LeaseOptions{}), []uint32{i, i, i, i})
		}
	}()
	for i := 0; i < 3; i++ {
		runtime.GC()
	}
	stats, err := b.cache.Stats()
	must(t, err)
	if stats.Leases != 3 || stats.BlocksLeased != 3 {
		t.Fatalf("%+v", stats)
	}
	must(t, b.cache.Check())
	must(t, b.cache.Close())
}

// A Lease keeps its cache reachable, so that a call on it finds the cache, whatever was forgotten.
func TestLeasesOutliveWhatTheProgramForgets(t *testing.T) {
	lease := func() Lease {
		instance, err := NewInstance(InstanceOptions{})
		must(t, err)
		cache, err := instance.NewCache(CacheOptions{
			Groups: []Group{{Layers: 1, KVHeads: 1, HeadDim: 8}}, Blocks: 16})
		must(t, err)
		lease, err := cache.NewLease(LeaseOptions{})
		must(t, err)
		return lease
	}()
	for i := 0; i < 3; i++ {
		runtime.GC()
	}
	_, err := lease.Info()
	must(t, err)
	cache := lease.cache
	must(t, lease.End())
	must(t, cache.Close())
	must(t, cache.instance.Close())
}

func TestARunIsInsertedAndFoundInOneCallEach(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease := b.lease(LeaseOptions{})
	own := make([]int32, 2)
	b.inStep(func(step *Step) {
		short, err := lease.Take(step, 0, own)
		fits(t, short, err)
	})
	tokens, slots := make([]int64, 8), make([]int64, 8)
	for i := range tokens {
		tokens[i], slots[i] = int64(50+i), int64(own[i/4])*4+int64(i%4)
	}
	named, ids := make([]int32, 2), make([]int32, 2)
	if fresh, err := lease.Insert(tokens, slots, named); fresh != 2 || err != nil {
		t.Fatal(fresh, err)
	}
	same(t, named, own)
	if found, err := lease.Find(tokens, MatchTouch, ids); found != 2 || err != nil {
		t.Fatal(found, err)
	}
	same(t, ids, own)
	if fresh, err := lease.Insert(tokens, slots, named); fresh != 0 || err != nil {
		t.Fatal(fresh, err)
	}
	tokens[7] = -1
	_, err := lease.Find(tokens, MatchLook, ids)
	refused(t, err, ErrArg)
	_, err = lease.Find(tokens, MatchPin, ids)
	refused(t, err, ErrArg)
	_, err = lease.Find(tokens, MatchLook, ids[:1])
	refused(t, err, ErrArg)
	_, err = lease.Insert(tokens, slots[:7], named)
	refused(t, err, ErrArg)
}
