// SPDX-License-Identifier: Apache-2.0

// Script runs the operations of a file on a cache and prints each result; ../README.md.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"quire"
)

type script struct {
	cache     *quire.Cache
	places    map[uint32]quire.Sequence
	leases    map[uint32]*leased
	step      *quire.Step
	committed []*quire.Step
}

func nameOf(err error) string {
	for _, known := range []struct {
		status quire.Status
		name   string
	}{{quire.ErrArg, "argument"}, {quire.ErrStale, "stale"}, {quire.ErrBusy, "busy"},
		{quire.ErrUnsupported, "unsupported"}, {quire.ErrLimit, "limit"}} {
		if errors.Is(err, known.status) {
			return known.name
		}
	}
	return "other"
}

// say returns a status, and an operation's values if the status is good.
func say(err error, values ...interface{}) string {
	if err != nil {
		return nameOf(err)
	}
	words := []string{"ok"}
	for _, value := range values {
		words = append(words, fmt.Sprint(value))
	}
	return strings.Join(words, " ")
}

func sayIds(err error, ids []int32) string {
	values := []interface{}{}
	for _, id := range ids {
		values = append(values, id)
	}
	return say(err, values...)
}

func numbers(first, count, unknown uint32) []uint32 {
	tokens := make([]uint32, count)
	for i := range tokens {
		tokens[i] = first + uint32(i)
		if uint32(i)+unknown >= count {
			tokens[i] = quire.Unknown
		}
	}
	return tokens
}

func (s *script) make(a []uint32) error {
	instance, err := quire.NewInstance(quire.InstanceOptions{})
	if err != nil {
		return err
	}
	s.places, s.leases = map[uint32]quire.Sequence{}, map[uint32]*leased{}
	s.cache, err = instance.NewCache(quire.CacheOptions{
		Groups: []quire.Group{{Layers: 1, KVHeads: 1, HeadDim: 8}}, BlockTokens: 4,
		Blocks: int(a[0]), HostBlocks: int(a[1])})
	return err
}

func (s *script) run(op string, a []uint32) string {
	switch op {
	case "add", "drop", "preempt", "abort", "commit":
		if s.step == nil {
			return "none"
		}
	case "lease":
		return s.lease(a)
	case "unlease", "take", "publish", "match", "give", "pin", "forget", "held":
		return s.ofLease(op, a)
	case "evict":
		ids := make([]int32, a[0])
		count, err := s.cache.Evict(0, ids)
		return sayIds(err, ids[:count])
	}
	sequence, is := s.places[a[0]]
	switch op {
	case "create":
		if is {
			return "taken"
		}
		made, err := s.cache.NewSequence(quire.SequenceOptions{Priority: int(a[1])})
		if err == nil {
			s.places[a[0]] = made
		}
		return say(err)
	case "begin":
		step, err := s.cache.Begin(quire.StepOptions{Tag: uint64(a[0]), MayPreempt: a[1] != 0,
			Preempt: quire.PreemptHow(a[2])}, nil, nil, nil)
		if err == nil {
			s.step = step
		}
		return say(err)
	case "commit":
		return s.commit()
	case "abort":
		err := s.step.Abort()
		s.step = nil
		return say(err)
	case "finish", "fail":
		return s.finish(op == "finish")
	case "migrate":
		m, err := s.cache.Migrate(quire.MigrateOptions{Blocks: int(a[0])})
		moved := 0
		if m.Moved {
			moved = 1
		}
		return say(err, moved, m.BlocksMoved, m.BlocksDropped, m.BlocksShort)
	case "reset":
		return say(s.cache.Reset())
	case "stats":
		n, err := s.cache.Stats()
		return say(err, n.PrefixCacheQueries, n.PrefixCacheHits, n.Preemptions, n.Evictions,
			n.CopiesOnWrite, n.BlocksSwappedOut, n.BlocksSwappedIn, n.Forks, n.Steps, n.Sequences,
			n.BlocksFree, n.BlocksCached, n.BlocksHeld, n.Leases, n.BlocksLeased)
	}
	if !is {
		return "none"
	}
	return s.ofSequence(op, sequence, a)
}

func (s *script) commit() string {
	if err := s.step.Commit(nil); err != nil {
		return nameOf(err)
	}
	copies, err := s.step.Copies()
	if err != nil {
		return nameOf(err)
	}
	gone, err := s.step.Preempted()
	had := uint32(0)
	for _, one := range gone {
		had += one.ComputedTokens
	}
	s.committed, s.step = append(s.committed, s.step), nil
	return say(err, len(copies), len(gone), had)
}

func (s *script) finish(isGood bool) string {
	if len(s.committed) == 0 {
		return "none"
	}
	step := s.committed[0]
	s.committed = s.committed[1:]
	if isGood {
		return say(step.Finish())
	}
	return say(step.Fail())
}

func (s *script) ofSequence(op string, sequence quire.Sequence, a []uint32) string {
	switch op {
	case "end":
		err := sequence.End(false)
		if err == nil {
			delete(s.places, a[0])
		}
		return say(err)
	case "fork":
		if _, is := s.places[a[1]]; is {
			return "taken"
		}
		child, err := sequence.Fork(int(a[2]))
		if err == nil {
			s.places[a[1]] = child
		}
		return say(err)
	case "truncate":
		return say(sequence.Truncate(int(a[1])))
	case "accept":
		return say(sequence.Accept(int(a[1])))
	case "pair":
		other, is := s.places[a[1]]
		if !is {
			return "none"
		}
		results := make([]quire.Result, 2)
		tokens := append(numbers(a[2], a[3], 0), numbers(a[2]+7, a[3], 0)...)
		step, err := s.cache.BeginCommit(quire.StepOptions{}, nil, []quire.Item{
			{Sequence: sequence.Handle(), TokenCount: a[3]},
			{Sequence: other.Handle(), TokenOffset: a[3], TokenCount: a[3]}}, tokens, results)
		if err == nil {
			err = step.Finish()
		}
		values := []interface{}{}
		for _, r := range results {
			values = append(values, r.Outcome, r.HitTokens, r.FirstPosition, r.ComputeCount, r.Row)
		}
		return say(err, values...)
	case "set":
		return say(sequence.SetTokens(int(a[1]), numbers(a[2], a[3], 0)))
	case "probe":
		hits, err := sequence.Probe(numbers(a[1], a[2], 0))
		return say(err, hits)
	case "info":
		i, err := sequence.Info()
		return say(err, i.KnownTokens, i.ComputedTokens, i.DraftTokens, i.BlocksHeld, i.Preemptions)
	case "blocks":
		ids, err := sequence.Blocks(0, nil)
		return sayIds(err, ids)
	case "add":
		results := make([]quire.Result, 1)
		err := s.step.Add([]quire.Item{{Sequence: sequence.Handle(), TokenCount: a[2],
			MaxCompute: a[3], DraftCount: a[4]}}, numbers(a[1], a[2], a[5]), results)
		r := results[0]
		return say(err, r.Outcome, r.Reason, r.HitTokens, r.FirstPosition, r.ComputeCount,
			r.BlocksShort, r.Row)
	case "drop":
		gone, err := s.step.Drop(sequence)
		return say(err, len(gone))
	default:
		freed, is, err := s.step.Preempt(sequence, quire.PreemptHow(a[1]))
		if err == nil && !is {
			return "short"
		}
		return say(err, freed)
	}
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var s script
	out := bufio.NewWriter(os.Stdout)
	for lines, number := bufio.NewScanner(file), 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		a := make([]uint32, 6)
		for i, word := range words[1:] {
			_, number, _ := strings.Cut(word, "=")
			value, err := strconv.ParseUint(number, 10, 32)
			if err != nil {
				log.Fatal(err)
			}
			a[i] = uint32(value)
		}
		said := ""
		if s.cache == nil {
			said = say(s.make(a))
		} else {
			said = s.run(words[0], a)
		}
		fmt.Fprintln(out, number, said)
	}
	out.Flush()
	if err := s.cache.Check(); err != nil {
		log.Fatal(err)
	}
}
