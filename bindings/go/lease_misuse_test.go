// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// callsOn makes every call on a lease, and returns their errors by their names.
func callsOn(lease Lease, step *Step) map[string]error {
	ids := []int32{1, 2}
	calls := map[string]error{
		"End": lease.End(), "Give": lease.Give(step, 0, ids),
		"Info": second(lease.Info()), "Blocks": second(lease.Blocks(0)),
		"Take": second(lease.Take(step, 0, ids)), "Pin": second(lease.Pin(step, 0, ids)),
		"Forget": second(lease.Forget(0, ids)),
	}
	_, _, calls["Match"] = lease.Match(step, count(8), MatchPin, ids)
	_, _, calls["Publish"] = lease.Publish(step, count(8), ids, ids)
	return calls
}

func TestLeasesThatAreGoneAreStale(t *testing.T) {
	b, other := keepBooks(t, CacheOptions{}), keepBooks(t, CacheOptions{})
	ended, live := b.lease(LeaseOptions{}), b.lease(LeaseOptions{})
	must(t, ended.End())
	step, err := b.cache.Begin(StepOptions{}, nil, nil, nil)
	must(t, err)
	foreign, err := other.cache.Begin(StepOptions{}, nil, nil, nil)
	must(t, err)
	stale := func(what string, lease Lease, step *Step) {
		t.Helper()
		for name, err := range callsOn(lease, step) {
			if !errors.Is(err, ErrStale) || err.Error() == "" {
				t.Errorf("%s of %s: %v", name, what, err)
			}
		}
	}
	stale("a lease that was ended", ended, step)
	stale("no lease", Lease{}, step)
	stale("a lease of another cache", Lease{other.cache, live.handle}, foreign)
	for _, err := range []error{second(live.Take(foreign, 0, make([]int32, 1))),
		live.Give(foreign, 0, nil)} {
		refused(t, err, ErrStale)
	}
	must(t, foreign.Abort())
	must(t, step.Abort())
	refused(t, second(live.Take(step, 0, make([]int32, 1))), ErrStale)
	must(t, b.cache.Close())
	stale("a closed cache", live, step)
	_, err = b.cache.NewLease(LeaseOptions{})
	refused(t, err, ErrStale)
	_, err = b.cache.Evict(0, make([]int32, 1))
	refused(t, err, ErrStale)
}

func TestLeasesRefuseSlicesAndStepsThatDoNotFit(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	lease := b.lease(LeaseOptions{})
	ids := make([]int32, 2)
	for name, err := range callsOn(b.lease(LeaseOptions{}), nil) {
		if name == "End" || name == "Info" || name == "Blocks" || name == "Forget" {
			continue
		}
		if !errors.Is(err, ErrArg) {
			t.Errorf("%s without a step: %v", name, err)
		}
	}
	_, _, err := lease.Match(nil, count(8), MatchLook, ids[:1])
	refused(t, err, ErrArg)
	_, _, err = lease.Match(nil, count(8), MatchLook, nil)
	refused(t, err, ErrArg)
	_, _, err = lease.Match(nil, count(8), 3, ids)
	refused(t, err, ErrArg)
	_, _, err = lease.Match(nil, []uint32{1, 2, 3, Unknown}, MatchLook, ids)
	refused(t, err, ErrArg)
	b.inStep(func(step *Step) {
		short, err := lease.Take(step, 0, ids)
		fits(t, short, err)
		fits(t, short, lease.Give(step, 0, nil))
		short, err = lease.Take(step, 0, nil)
		fits(t, short, err)
		for _, bad := range []struct {
			tokens     []uint32
			ids, named []int32
		}{
			{count(8), ids[:1], make([]int32, 2)},
			{count(8), ids, make([]int32, 1)},
			{count(8), ids, nil},
			{count(8), nil, nil},
			{count(4), ids, make([]int32, 2)},
			{count(10), ids, make([]int32, 2)},
			{[]uint32{1, 2, 3, Unknown}, ids[:1], ids[:1]},
		} {
			_, _, err := lease.Publish(step, bad.tokens, bad.ids, bad.named)
			refused(t, err, ErrArg)
		}
		// The second id would be read after it was replaced.
		three := []int32{ids[0], ids[1], 0}
		_, _, err = lease.Publish(step, count(8), three[:2], three[1:])
		refused(t, err, ErrArg)
		_, _, err = lease.Publish(step, count(8), three[1:], three[:2])
		refused(t, err, ErrArg)
		fresh, short, err := lease.Publish(step, nil, nil, nil)
		fits(t, short, err)
		if fresh != 0 {
			t.Fatal(fresh)
		}
	})
	none := keepBooks(t, CacheOptions{Flags: NoPrefix})
	unfound := none.lease(LeaseOptions{})
	none.inStep(func(step *Step) {
		short, err := unfound.Take(step, 0, ids)
		fits(t, short, err)
		_, _, err = unfound.Publish(step, count(8), ids, ids)
		refused(t, err, ErrUnsupported)
	})
}

// shared is a step and a lease that goroutines use while others end them.
type shared struct {
	*books
	step  atomic.Pointer[Step]
	lease atomic.Pointer[Lease]
}

// expected accepts what a call may return whose step or lease another goroutine may have ended.
func (s *shared) expected(err error) {
	for _, kind := range []Status{ErrBusy, ErrStale, ErrArg, ErrLimit} {
		if err == nil || errors.Is(err, kind) {
			return
		}
	}
	s.Error(err)
}

// use makes calls on the lease, some of them wrong.
func (s *shared) use(g, i uint32) {
	lease, step := *s.lease.Load(), s.step.Load()
	ids, tokens := make([]int32, 2), []uint32{g % 2, 1, 2, 3, i % 3, 5, 6, 7}
	switch i % 5 {
	case 0, 1:
		_, err := lease.Take(step, 0, ids)
		s.expected(err)
		_, _, err = lease.Publish(step, tokens, ids, ids)
		s.expected(err)
		s.expected(lease.Give(step, 0, ids))
	case 2:
		_, _, err := lease.Match(step, tokens, MatchPin, ids)
		s.expected(err)
		s.expected(lease.Give(step, 0, ids))
	case 3:
		s.expected(second(lease.Forget(0, ids)))
		s.expected(second(s.cache.Evict(0, ids)))
		s.expected(second(lease.Blocks(0)))
		s.expected(second(lease.Info()))
	default:
		if s.expected(lease.End()); i%4 == 0 {
			s.expected(lease.End())
		}
		made, err := s.cache.NewLease(LeaseOptions{})
		if s.expected(err); err == nil {
			s.lease.Store(&made)
		}
	}
}

// Goroutines that do everything to the same leases get errors of the named kinds, and leave the
// books right.
func TestGoroutinesShareLeases(t *testing.T) {
	s := &shared{books: keepBooks(t, CacheOptions{Blocks: 64, MaxSequences: 64})}
	lease := s.books.lease(LeaseOptions{})
	s.lease.Store(&lease)
	var users sync.WaitGroup
	var isDone atomic.Bool
	for g := uint32(0); g < 4; g++ {
		users.Add(1)
		go func(g uint32) {
			defer users.Done()
			for i := uint32(0); !isDone.Load(); i++ {
				s.use(g, i)
				runtime.Gosched()
			}
		}(g)
	}
	defer users.Wait()
	defer isDone.Store(true)
	ends := []func(*Step) error{(*Step).Finish, (*Step).Finish, (*Step).Fail}
	hasHappened := false // something was published, found and evicted
	for i := 0; i < 200 || !hasHappened; i++ {
		step, err := s.cache.Begin(StepOptions{}, nil, nil, nil)
		must(t, err)
		s.step.Store(step)
		runtime.Gosched()
		if i%4 == 3 {
			must(t, step.Abort())
			continue
		}
		must(t, step.Commit(nil))
		must(t, ends[i%3](step))
		stats, err := s.cache.Stats()
		must(t, err)
		hasHappened = stats.BytesCompared != 0 && stats.Evictions != 0
	}
	must(t, s.cache.Check())
}
