// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, kind Status) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("want %v, got %v", kind, err)
	}
}

// books is a cache without memory: 15 usable blocks of 4 tokens.
type books struct {
	*testing.T
	instance *Instance
	cache    *Cache
}

func keepBooks(t *testing.T, options CacheOptions) *books {
	t.Helper()
	instance, err := NewInstance(InstanceOptions{})
	must(t, err)
	options.Groups = []Group{{Layers: 1, KVHeads: 1, HeadDim: 8}}
	options.BlockTokens = 4
	if options.Blocks == 0 {
		options.Blocks = 16
	}
	cache, err := instance.NewCache(options)
	must(t, err)
	b := &books{t, instance, cache}
	t.Cleanup(func() {
		if err := cache.Check(); err != nil && !errors.Is(err, ErrStale) {
			t.Error(err)
		}
		must(t, cache.Close())
		must(t, instance.Close())
	})
	return b
}

func (b *books) sequence() Sequence {
	b.Helper()
	sequence, err := b.cache.NewSequence(SequenceOptions{})
	must(b.T, err)
	return sequence
}

func count(n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	return tokens
}

// grow computes tokens of a sequence.
func (b *books) grow(sequence Sequence, tokens []uint32) Result {
	b.Helper()
	results := make([]Result, 1)
	step, err := b.cache.BeginCommit(StepOptions{}, nil,
		[]Item{{Sequence: sequence.Handle(), TokenCount: uint32(len(tokens))}}, tokens, results)
	must(b.T, err)
	must(b.T, step.Finish())
	return results[0]
}

func TestPrefixOfAnotherSequenceIsFound(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	b.grow(b.sequence(), count(12))
	result := b.grow(b.sequence(), count(12))
	if result.Outcome != Run || result.HitTokens != 8 || result.ComputeCount != 4 {
		t.Fatalf("%+v", result)
	}
}

func TestShortOfBlocksIsAResult(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	result := b.grow(b.sequence(), count(80))
	if result.Outcome != Wait || result.BlocksShort != 5 {
		t.Fatalf("%+v", result)
	}
}

func TestSequencesForkShortenAndEnd(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	sequence := b.sequence()
	b.grow(sequence, count(6))
	fork, err := sequence.Fork(6)
	must(t, err)
	step, err := b.cache.Begin(StepOptions{}, []Item{{Sequence: fork.Handle(), TokenCount: 1}},
		[]uint32{9}, make([]Result, 1))
	must(t, err)
	must(t, step.Commit(nil))
	copies, err := step.Copies()
	must(t, err)
	must(t, step.Finish())
	own, _ := sequence.Blocks(0, nil)
	forked, _ := fork.Blocks(0, nil)
	if len(copies) != 1 || own[0] != forked[0] || own[1] == forked[1] || copies[0].Src != own[1] {
		t.Fatal(copies, own, forked)
	}
	must(t, fork.Truncate(3))
	info, err := fork.Info()
	must(t, err)
	if info.KnownTokens != 3 || info.BlocksHeld != 1 {
		t.Fatalf("%+v", info)
	}
	must(t, fork.End(false))
	refused(t, fork.End(false), ErrStale)
}

func TestPreemptedSequencesComeBack(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	sequence := b.sequence()
	b.grow(sequence, count(9))
	step, err := b.cache.Begin(StepOptions{}, nil, nil, nil)
	must(t, err)
	if _, done, err := step.Preempt(sequence, PreemptSwap); done || err != nil {
		t.Fatal("a swap without a host tier", done, err)
	}
	freed, done, err := step.Preempt(sequence, PreemptRecompute)
	must(t, err)
	who, err := step.Preempted()
	must(t, err)
	if freed != 3 || !done || len(who) != 1 || who[0].Blocks != 3 {
		t.Fatal(freed, done, who)
	}
	must(t, step.Commit(nil))
	must(t, step.Finish())
	if result := b.grow(sequence, nil); result.HitTokens != 8 {
		t.Fatalf("%+v", result)
	}
}

func TestDraftsAndUnknownTokens(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	sequence := b.sequence()
	b.grow(sequence, []uint32{1, 2, 3, Unknown})
	must(t, sequence.SetTokens(3, []uint32{4}))
	refused(t, sequence.SetTokens(3, []uint32{5}), ErrArg)
	if hits, err := b.sequence().Probe([]uint32{1, 2, 3, 4, 5}); hits != 4 || err != nil {
		t.Fatal(hits, err)
	}
	step, err := b.cache.BeginCommit(StepOptions{}, nil,
		[]Item{{Sequence: sequence.Handle(), TokenCount: 3, DraftCount: 2}}, []uint32{5, 6, 7},
		make([]Result, 1))
	must(t, err)
	must(t, step.Finish())
	must(t, sequence.Accept(1))
	if info, _ := sequence.Info(); info.KnownTokens != 6 {
		t.Fatalf("%+v", info)
	}
}

func TestTenantsDoNotShare(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	tenant, err := b.cache.NewNamespace([]byte("key"), 2)
	must(t, err)
	b.grow(b.sequence(), count(8))
	own, err := b.cache.NewSequence(SequenceOptions{Namespace: tenant,
		Keys: []Key{{Type: SaltKey, Content: []byte("salt")}}})
	must(t, err)
	if result := b.grow(own, count(8)); result.HitTokens != 0 || result.Outcome != Run {
		t.Fatalf("%+v", result)
	}
	refused(t, tenant.Close(), ErrBusy)
	must(t, own.End(false))
	must(t, tenant.Close())
}

func TestDumpIsWholeAndHasTokensOnlyWhenAsked(t *testing.T) {
	b := keepBooks(t, CacheOptions{Flags: Audit})
	b.grow(b.sequence(), count(10))
	without, err := b.cache.Dump(false)
	must(t, err)
	with, err := b.cache.Dump(true)
	must(t, err)
	if !strings.HasPrefix(string(without), `{"record":"quire dump","version":1,"tokens":false}`) ||
		!strings.Contains(string(without), `{"record":"end",`) {
		t.Errorf("not a dump: %.100s", without)
	}
	tokens := `"tokens":[0,1,2,3]`
	if strings.Contains(string(without), tokens) || !strings.Contains(string(with), tokens) {
		t.Error("a dump must hold tokens exactly when they are asked for")
	}
}

func TestFollowerAppliesTheLog(t *testing.T) {
	leader := keepBooks(t, CacheOptions{Flags: Log})
	follower := keepBooks(t, CacheOptions{Flags: Follower})
	sequence := leader.sequence()
	step, err := leader.cache.BeginCommit(StepOptions{}, nil,
		[]Item{{Sequence: sequence.Handle(), TokenCount: 6}}, count(6), make([]Result, 1))
	must(t, err)
	log, err := step.Log()
	must(t, err)
	followed, err := follower.cache.ApplyLog(log, StepOptions{}, nil)
	must(t, err)
	must(t, followed.Finish())
	must(t, step.Finish())
	if _, err := follower.cache.ApplyLog(log[:len(log)-1], StepOptions{}, nil); err == nil {
		t.Fatal("a truncated log was applied")
	}
}

func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	other := keepBooks(t, CacheOptions{})
	sequence := b.sequence()
	for i := 0; i < 3; i++ {
		other.sequence()
	}
	foreign := other.sequence()
	before, err := b.cache.Stats()
	must(t, err)
	one := []Item{{Sequence: sequence.Handle(), TokenCount: 1}}
	begin := func(items []Item, tokens []uint32, results []Result) error {
		_, err := b.cache.Begin(StepOptions{}, items, tokens, results)
		return err
	}
	refused(t, begin(one, nil, make([]Result, 1)), ErrArg)
	refused(t, begin(one, []uint32{1}, nil), ErrArg)
	refused(t, begin([]Item{{Sequence: foreign.Handle(), TokenCount: 1}}, []uint32{1},
		make([]Result, 1)), ErrStale)
	forged := []Item{{Sequence: 12345, TokenCount: 1}}
	refused(t, begin(forged, []uint32{1}, make([]Result, 1)), ErrStale)
	_, err = b.instance.NewCache(CacheOptions{Blocks: 4}) // no group
	refused(t, err, ErrArg)
	tenant, err := other.cache.NewNamespace(nil, 0)
	must(t, err)
	_, err = b.cache.NewSequence(SequenceOptions{Namespace: tenant})
	refused(t, err, ErrStale)
	refused(t, Sequence{}.End(false), ErrStale)
	_, err = sequence.Fork(1)
	refused(t, err, ErrArg)
	_, err = b.cache.NewBatch(BatchOptions{})
	refused(t, err, ErrArg)
	_, err = b.instance.NewCache(CacheOptions{Shards: []Shard{{}}, Blocks: 4})
	refused(t, err, ErrArg)
	after, err := b.cache.Stats()
	must(t, err)
	if before != after {
		t.Fatalf("%+v became %+v", before, after)
	}
}

func TestClosedObjectsAreStale(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	sequence := b.sequence()
	refused(t, b.instance.Close(), ErrBusy)
	step, err := b.cache.Begin(StepOptions{}, nil, nil, nil)
	must(t, err)
	refused(t, b.cache.Close(), ErrBusy)
	must(t, step.Abort())
	refused(t, step.Abort(), ErrStale)
	must(t, b.cache.Close())
	must(t, b.cache.Close())
	_, err = b.cache.Stats()
	refused(t, err, ErrStale)
	_, err = sequence.Info()
	refused(t, err, ErrStale)
	refused(t, step.Finish(), ErrStale)
	var failure *Error
	if !errors.As(err, &failure) || failure.Status.Error() != "QUIRE_E_STALE" {
		t.Fatal(err)
	}
}

func TestGoroutinesShareACache(t *testing.T) {
	b := keepBooks(t, CacheOptions{Blocks: 64})
	var group sync.WaitGroup
	for g := uint64(0); g < 8; g++ {
		group.Add(1)
		go func(tag uint64) {
			defer group.Done()
			for i := 0; i < 50; i++ {
				sequence, err := b.cache.NewSequence(SequenceOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				step, err := b.cache.BeginCommit(StepOptions{Tag: tag}, nil,
					[]Item{{Sequence: sequence.Handle(), TokenCount: 2}}, []uint32{uint32(tag), 1},
					make([]Result, 1))
				if err == nil {
					err = step.Finish()
				}
				if err != nil && !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
				if err := sequence.End(false); err != nil && !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
			}
		}(g)
	}
	group.Wait()
}

func TestReasonsAreShown(t *testing.T) {
	folder := t.TempDir()
	broken := filepath.Join(folder, "quire_backend_broken.so")
	must(t, os.WriteFile(broken, []byte("no backend"), 0o600))
	instance, err := NewInstance(InstanceOptions{PluginPath: folder})
	must(t, err)
	backends, err := instance.Backends()
	must(t, err)
	found := false
	for _, backend := range backends {
		if backend.Path == broken {
			found = !backend.Loaded && backend.Message != ""
		}
	}
	if !found {
		t.Fatal(backends)
	}
	_, err = instance.LoadBackend(broken)
	refused(t, err, ErrBackend)
	_, err = instance.LoadBackend(filepath.Join(folder, "none.so"))
	refused(t, err, ErrBackend)
	_, err = instance.OpenDevice(DeviceOptions{Backend: "none"})
	if err == nil {
		t.Fatal("opened a backend that does not exist")
	}
	if path := os.Getenv("QUIRE_TEST_LOADED"); path != "" {
		loaded, err := instance.LoadBackend(path)
		must(t, err)
		if loaded.Name != "toy" || !loaded.Loaded {
			t.Fatal(loaded)
		}
	}
	must(t, instance.Close())
}

// Each file is opened in its own process, because a process has only one library.
func TestLibrariesThatAreNone(t *testing.T) {
	if path := os.Getenv("QUIRE_TEST_OPEN"); path != "" {
		err := Open(path)
		os.Stdout.WriteString(err.Error())
		os.Exit(0)
	}
	paths := map[string]string{"/no/libquire.so.0": "/no/libquire.so.0", "libm.so.6": "quire_get_api"}
	if short := os.Getenv("QUIRE_TEST_SHORT_TABLE"); short != "" {
		paths[short] = "older"
	}
	for path, says := range paths {
		command := exec.Command(os.Args[0], "-test.run=TestLibrariesThatAreNone")
		command.Env = append(os.Environ(), "QUIRE_TEST_OPEN="+path)
		out, err := command.Output()
		if err != nil || !strings.Contains(string(out), says) {
			t.Fatalf("%s: %v: %s", path, err, out)
		}
	}
	must(t, Open(""))
	refused(t, Open("/another/libquire.so.0"), ErrArg)
}

func TestTablesOfBooksAreRead(t *testing.T) {
	b := keepBooks(t, CacheOptions{})
	batch, err := b.cache.NewBatch(BatchOptions{MaxRows: 4, MaxBlocksPerRow: 8, MaxQueryTokens: 32,
		MaxContextTokens: 64, Views: BlockTable | CSR | Slots | Lengths | Positions | CuQ})
	must(t, err)
	sequence := b.sequence()
	step, err := b.cache.BeginCommit(StepOptions{}, batch,
		[]Item{{Sequence: sequence.Handle(), TokenCount: 6}}, count(6), make([]Result, 1))
	must(t, err)
	must(t, step.Finish())
	views, err := batch.Views(0, 0)
	must(t, err)
	blocks, err := sequence.Blocks(0, nil)
	must(t, err)
	if views.RowCount != 1 || views.Lengths[0] != 6 || views.BlockTable[1] != blocks[1] ||
		len(views.CSRIndices) != 2 || views.CSRLastPageLen[0] != 2 || views.CuQ[1] != 6 ||
		views.Slots[5] != int64(blocks[1])*4+1 || views.Positions[5] != 5 {
		t.Fatalf("%+v", views)
	}
	must(t, batch.Close())
}

func BenchmarkStepOf256(b *testing.B) {
	instance, err := NewInstance(InstanceOptions{})
	if err != nil {
		b.Skip(err)
	}
	cache, _ := instance.NewCache(CacheOptions{Groups: []Group{{Layers: 32, KVHeads: 8, HeadDim: 128}},
		Blocks: 1 << 20, Flags: NoPrefix})
	items, tokens, results := make([]Item, 256), make([]uint32, 256), make([]Result, 256)
	for i := range items {
		sequence, _ := cache.NewSequence(SequenceOptions{})
		items[i] = Item{Sequence: sequence.Handle(), TokenOffset: uint32(i), TokenCount: 1}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		step, err := cache.BeginCommit(StepOptions{}, nil, items, tokens, results)
		if err != nil {
			b.Fatal(err)
		}
		if err := step.Finish(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestDeploymentIsSized(t *testing.T) {
	size, err := EstimateSize(SizeModel{Layers: 32, KVHeads: 8, KHeadDim: 128, MemoryBytes: 8 << 30,
		ContextTokens: 4096})
	must(t, err)
	if size.KVBytesPerToken != 131072 || size.MaxSequences != size.Tokens/4096 {
		t.Fatalf("%+v", size)
	}
	_, err = EstimateSize(SizeModel{})
	refused(t, err, ErrArg)
}

// A published block is told with its tokens, and its removal after it.
func TestEventsTellWhatIsFound(t *testing.T) {
	b := keepBooks(t, CacheOptions{Flags: Events | EventTokens})
	sequence, err := b.cache.NewSequence(SequenceOptions{})
	must(t, err)
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	step, err := b.cache.BeginCommit(StepOptions{}, nil,
		[]Item{{Sequence: sequence.Handle(), TokenCount: 9}}, tokens, make([]Result, 1))
	must(t, err)
	must(t, step.Finish())
	var all []Event
	for more := true; more; {
		var some []Event
		some, more, err = b.cache.Events(false, 2)
		must(t, err)
		all = append(all, some...)
	}
	if len(all) != 3 || all[0].Kind != EventCleared || all[1].Kind != EventStored ||
		all[2].Parent != all[1].Block || all[2].Position != 4 ||
		!slices.Equal(all[2].Tokens, tokens[4:8]) {
		t.Fatalf("%+v", all)
	}
	must(t, b.cache.Reset())
	some, _, err := b.cache.Events(false, 8)
	must(t, err)
	if len(some) != 1 || some[0].Kind != EventCleared {
		t.Fatalf("%+v", some)
	}
	_, _, err = b.cache.Events(false, 0)
	refused(t, err, ErrArg)
	must(t, sequence.End(false))
}
