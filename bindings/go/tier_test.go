// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"testing"
	"time"
)

func openTier(s *served, options TierOptions) *Tier {
	s.Helper()
	tier, err := s.instance.OpenTier(options)
	must(s.T, err)
	return tier
}

// nextToken computes the last of `tokens` in a new sequence, after the others were found or loaded.
// It returns how many were, how often the item had to wait for a load, and the mean of all values.
func (s *served) nextToken(tokens []uint32) (hits uint32, waits int, mean float32) {
	s.Helper()
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(s.T, err)
	items := []Item{{Sequence: sequence.Handle(), TokenCount: uint32(len(tokens)), Flags: MayLoad}}
	results := make([]Result, 1)
	for ; ; waits++ {
		step, err := s.cache.Begin(StepOptions{Queues: []*Queue{s.queue}}, items, tokens, results)
		must(s.T, err)
		must(s.T, step.Abort())
		if results[0].Outcome != Loading {
			break
		}
		_, err = s.cache.WaitLoad(-1)
		must(s.T, err)
	}
	hits = results[0].HitTokens
	means := s.meansOf(items, tokens, int(hits), len(tokens)-int(hits))
	must(s.T, sequence.End(false))
	return hits, waits, means[len(means)-1]
}

func (s *served) settle() {
	s.Helper()
	for {
		progress, err := s.cache.PollTier()
		must(s.T, err)
		if progress.BlocksQueued == 0 {
			return
		}
	}
}

func TestStoreGivesBackWhatTheCacheForgot(t *testing.T) {
	for store, settings := range map[string]map[string]string{
		"memory": nil, "disk": {"directory": t.TempDir(), "capacity": "1MiB"}} {
		s := serveWith(t, 4096)
		tier := openTier(s, TierOptions{Store: store, Settings: settings})
		options := AttachOptions{Fingerprint: [32]byte{7}, Write: TierWriteThrough}
		must(t, s.cache.AttachTier(tier, options))
		if hits, waits, mean := s.nextToken(count(9)); hits != 0 || waits != 0 || mean != 4 {
			t.Fatal(store, hits, waits, mean)
		}
		s.settle()
		stats, err := s.cache.TierStats()
		must(t, err)
		if stats.BlocksWritten != 2 || stats.LoadsBegun != 0 {
			t.Fatalf("%s: %+v", store, stats)
		}
		must(t, s.cache.DetachTier(-1))
		must(t, s.cache.Reset())
		must(t, s.cache.AttachTier(tier, options))
		if hits, waits, mean := s.nextToken(count(9)); hits != 8 || waits != 1 || mean != 4 {
			t.Fatal(store, hits, waits, mean)
		}
		stats, err = s.cache.TierStats()
		must(t, err)
		if stats.LoadsUsed != 1 || stats.TokensLoaded != 8 || stats.BlocksWritten != 0 {
			t.Fatalf("%s: %+v", store, stats)
		}
		held, err := tier.Stats()
		must(t, err)
		if held.Records != 2 || held.Hits != 2 || held.Puts != 2 {
			t.Fatalf("%s: %+v", store, held)
		}
		// Another model finds nothing of this one.
		must(t, s.cache.DetachTier(-1))
		must(t, s.cache.Reset())
		must(t, s.cache.AttachTier(tier, AttachOptions{Fingerprint: [32]byte{8}}))
		if hits, waits, _ := s.nextToken(count(9)); hits != 0 || waits != 0 {
			t.Fatal(store, hits, waits)
		}
		must(t, s.cache.DetachTier(time.Minute))
		must(t, s.cache.Check())
		must(t, tier.Close(-1))
	}
}

func TestLoadIsCancelled(t *testing.T) {
	s := serveWith(t, 4096)
	tier := openTier(s, TierOptions{Store: "memory"})
	must(t, s.cache.AttachTier(tier, AttachOptions{Write: TierWriteThrough}))
	s.nextToken(count(9))
	s.settle()
	must(t, s.cache.DetachTier(-1))
	must(t, s.cache.Reset())
	must(t, s.cache.AttachTier(tier, AttachOptions{}))
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(t, err)
	results := make([]Result, 1)
	step, err := s.cache.BeginCommit(StepOptions{Queues: []*Queue{s.queue}}, nil,
		[]Item{{Sequence: sequence.Handle(), TokenCount: 9, Flags: MayLoad}}, count(9), results)
	must(t, err)
	must(t, step.Finish())
	if results[0].Outcome != Loading {
		t.Fatalf("%+v", results[0])
	}
	must(t, sequence.CancelLoad())
	progress, err := s.cache.WaitLoad(0)
	must(t, err)
	if progress.LoadsRunning != 0 || progress.LoadsReady != 0 || progress.LoadsEnded != 1 {
		t.Fatalf("%+v", progress)
	}
	stats, err := s.cache.TierStats()
	must(t, err)
	if stats.LoadsCancelled != 1 || stats.LoadsUsed != 0 {
		t.Fatalf("%+v", stats)
	}
	must(t, s.cache.DetachTier(-1))
	must(t, tier.Close(-1))
	refused(t, Sequence{}.CancelLoad(), ErrStale)
	refused(t, sequence.CancelLoad(), ErrArg)
}

func TestTiersThatDoNotFitAreRefused(t *testing.T) {
	s := serveWith(t, 4096)
	for _, bad := range []TierOptions{
		{},
		{Store: "disk"},
		{Store: "memory", Settings: map[string]string{"colour": "blue"}},
		{Store: "memory", Settings: map[string]string{"capacity": ""}},
		{Store: "memory", Settings: map[string]string{"capacity": "1MiB\x00"}},
		{Store: "memory", Existing: true},
	} {
		_, err := s.instance.OpenTier(bad)
		refused(t, err, ErrArg)
	}
	_, err := s.instance.OpenTier(TierOptions{Store: "abacus"})
	refused(t, err, ErrBackend)

	_, err = s.cache.PollTier()
	refused(t, err, ErrArg)
	_, err = s.cache.WaitLoad(-1)
	refused(t, err, ErrArg)
	_, err = s.cache.TierStats()
	refused(t, err, ErrArg)
	refused(t, s.cache.DetachTier(-1), ErrArg)
	refused(t, s.cache.AttachTier(nil, AttachOptions{}), ErrArg)

	tier := openTier(s, TierOptions{Store: "memory"})
	refused(t, s.cache.AttachTier(tier, AttachOptions{Write: 4}), ErrArg)
	refused(t, s.cache.AttachTier(tier, AttachOptions{MinLoadTokens: -1}), ErrArg)
	refused(t, s.cache.AttachTier(tier, AttachOptions{LoadTimeout: -1}), ErrArg)
	groups := []Group{{Layers: 1, KVHeads: 1, HeadDim: 8}}
	for _, without := range []CacheOptions{ // without memory, and without a host tier
		{Groups: groups, Blocks: 16, HostBlocks: 16},
		{Groups: groups, Blocks: 16, Shards: []Shard{{Device: s.device}}},
	} {
		cache, err := s.instance.NewCache(without)
		must(t, err)
		refused(t, cache.AttachTier(tier, AttachOptions{}), ErrUnsupported)
		must(t, cache.Close())
	}
	refused(t, serveWith(t, 4096).cache.AttachTier(tier, AttachOptions{}), ErrArg)
	must(t, s.cache.AttachTier(tier, AttachOptions{}))
	refused(t, s.cache.AttachTier(tier, AttachOptions{}), ErrBusy)
	refused(t, tier.Close(-1), ErrBusy)
	refused(t, s.cache.Close(), ErrBusy)
	must(t, s.cache.DetachTier(-1))
	must(t, tier.Close(-1))
	must(t, tier.Close(-1))
	_, err = tier.Stats()
	refused(t, err, ErrStale)
	refused(t, s.cache.AttachTier(tier, AttachOptions{}), ErrStale)

	reader := openTier(s, TierOptions{Store: "memory", ReadOnly: true})
	refused(t, s.cache.AttachTier(reader, AttachOptions{Write: TierWriteBack}), ErrArg)
	must(t, reader.Close(-1))
}
