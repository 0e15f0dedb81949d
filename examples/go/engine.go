// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"quire"
)

var (
	errStopped = errors.New("the server is stopping")
	errTooMany = errors.New("too many requests are waiting: try again later")
)

// request is a text in progress. Only the engine touches it, except for its channel.
type request struct {
	ctx         context.Context
	tokens      []uint32 // the prompt, then what was sampled
	promptCount int
	limit       int        // most tokens, prompt included
	events      chan event // has room for every event, so that the engine never waits for a client
	told        int        // tokens that Quire knows
	sequence    quire.Sequence
	hits        int
}

// event is a token, or the end of a text with its reason.
type event struct {
	token  uint32
	reason string // "stop" or "length" at the end
	err    error
}

// engine decides which requests run, step by step; Quire keeps their K and V. It runs in one
// goroutine.
type engine struct {
	model       *checkpoint
	instance    *quire.Instance
	cache       *quire.Cache
	blockTokens int
	at          *place
	arrivals    chan *request
	moves       chan move
	stop        chan struct{}
	done        chan struct{}
	running     []*request // oldest first

	lock   sync.Mutex // guards the fields below, which others read
	counts counts
	broken error // why the engine has stopped
}

type counts struct {
	Running, Waiting, Tokens, Finished, Cancelled int
	Device                                        string
}

// move is a request to move the live cache to another device.
type move struct {
	backend string
	blocks  int
	result  chan moved
}

type moved struct {
	quire.Migration
	err error
}

func newEngine(model *checkpoint, backend string, blocks, blockTokens int) (*engine, error) {
	instance, err := quire.NewInstance(quire.InstanceOptions{})
	if err != nil {
		return nil, err
	}
	e := &engine{model: model, instance: instance, blockTokens: blockTokens,
		arrivals: make(chan *request, 1024), moves: make(chan move), stop: make(chan struct{}),
		done: make(chan struct{})}
	s := model.shape
	if e.at, err = openPlace(instance, backend, s); err == nil {
		e.cache, err = instance.NewCache(quire.CacheOptions{
			Groups: []quire.Group{{Layers: s.layers, KVHeads: s.kvHeads, HeadDim: s.headDim(),
				DType: quire.F32}},
			Shards: e.at.shard(), Blocks: blocks, BlockTokens: blockTokens})
	}
	if err == nil {
		err = e.at.makeBatch(e.cache, s, blockTokens)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	e.counts.Device = backend
	go e.run()
	return e, nil
}

func (e *engine) close() {
	if e.at != nil {
		e.at.leave()
	}
	if e.cache != nil {
		e.cache.Close()
	}
	if e.at != nil {
		e.at.device.Close()
	}
	e.instance.Close()
}

// room returns how many tokens the pool holds for a text that runs alone.
func (e *engine) room() (int, error) {
	stats, err := e.cache.Stats()
	return int(stats.BlocksTotal) * e.blockTokens, err
}

// submit starts a text. Its events arrive until one has a reason or an error, or until ctx or the
// engine ends.
func (e *engine) submit(ctx context.Context, prompt []uint32, limit int) (<-chan event, error) {
	if err := e.health(); err != nil {
		return nil, err
	}
	r := &request{ctx: ctx, tokens: append([]uint32(nil), prompt...), promptCount: len(prompt),
		limit: limit, events: make(chan event, limit-len(prompt)+1)}
	select {
	case <-e.stop:
		return nil, errStopped
	default:
	}
	select {
	case e.arrivals <- r:
		return r.events, nil
	default:
		return nil, errTooMany
	}
}

// health returns nil while the engine serves.
func (e *engine) health() error {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.broken
}

func (e *engine) breaks(err error) {
	e.lock.Lock()
	e.broken = fmt.Errorf("the engine has stopped: %w", err)
	e.lock.Unlock()
}

func (e *engine) shutdown() {
	close(e.stop)
	<-e.done
	e.close()
}

// migrate changes the device between two steps; no request notices.
func (e *engine) migrate(backend string, blocks int) (quire.Migration, error) {
	m := move{backend, blocks, make(chan moved, 1)}
	select {
	case e.moves <- m:
		done := <-m.result
		return done.Migration, done.err
	case <-e.done:
		return quire.Migration{}, errStopped
	}
}

func (e *engine) run() {
	defer close(e.done)
	for {
		if len(e.running) == 0 {
			select {
			case <-e.stop:
				e.quit()
				return
			case m := <-e.moves:
				e.move(m)
			case r := <-e.arrivals:
				e.admit(r)
			}
		}
		select {
		case <-e.stop:
			e.quit()
			return
		case m := <-e.moves:
			e.move(m)
		default:
		}
		e.welcome()
		if len(e.running) != 0 {
			if err := e.step(); err != nil {
				for _, r := range e.running {
					e.end(r, event{err: err})
				}
				e.running = nil
				if errors.Is(err, quire.ErrDeviceLost) {
					e.breaks(err)
				}
			}
		}
		if e.health() != nil {
			e.quit()
			return
		}
		e.count(func(c *counts) { c.Running, c.Waiting = len(e.running), len(e.arrivals) })
	}
}

// quit sends the end to every request that still waits for events.
func (e *engine) quit() {
	for _, r := range e.running {
		e.end(r, event{err: errStopped})
	}
	for {
		select {
		case r := <-e.arrivals:
			r.events <- event{err: errStopped}
		default:
			return
		}
	}
}

// welcome admits waiting requests, and ends those whose client has gone.
func (e *engine) welcome() {
	for len(e.running) < maxRows {
		select {
		case r := <-e.arrivals:
			e.admit(r)
			continue
		default:
		}
		break
	}
	e.keep(func(r *request) bool {
		if r.ctx.Err() == nil {
			return true
		}
		e.count(func(c *counts) { c.Cancelled++ })
		e.end(r, event{err: r.ctx.Err()})
		return false
	})
}

func (e *engine) admit(r *request) {
	sequence, err := e.cache.NewSequence(quire.SequenceOptions{})
	if err != nil {
		r.events <- event{err: err}
		return
	}
	r.sequence = sequence
	e.running = append(e.running, r)
}

// end gives the request's blocks back; its published blocks can still be found.
func (e *engine) end(r *request, last event) {
	r.sequence.End(false)
	r.events <- last
}

func (e *engine) keep(stays func(r *request) bool) {
	kept := e.running[:0]
	for _, r := range e.running {
		if stays(r) {
			kept = append(kept, r)
		}
	}
	e.running = kept
}

// step computes for every request that has room; the newest are preempted for older ones.
func (e *engine) step() error {
	items, given := make([]quire.Item, len(e.running)), []uint32(nil)
	for i, r := range e.running {
		items[i] = quire.Item{Sequence: r.sequence.Handle(), TokenOffset: uint32(len(given)),
			TokenCount: uint32(len(r.tokens) - r.told),
			MaxCompute: uint32(maxTokens / len(e.running))}
		given = append(given, r.tokens[r.told:]...)
	}
	results := make([]quire.Result, len(items))
	step, err := e.cache.BeginCommit(quire.StepOptions{Queues: []*quire.Queue{e.at.queue},
		MayPreempt: true, Preempt: quire.PreemptRecompute}, e.at.batch, items, given, results)
	if err != nil {
		return err
	}
	var tokens []uint32
	var positions, last []int
	var sampled []*request
	for i, r := range e.running {
		result := results[i]
		if result.Outcome != quire.Run {
			continue
		}
		r.told = len(r.tokens)
		r.hits += int(result.HitTokens)
		end := int(result.FirstPosition + result.ComputeCount)
		for p := int(result.FirstPosition); p < end; p++ {
			tokens, positions = append(tokens, r.tokens[p]), append(positions, p)
		}
		if end == len(r.tokens) { // else a later step computes the rest of the prompt
			last, sampled = append(last, len(tokens)-1), append(sampled, r)
		}
	}
	if len(tokens) == 0 {
		err = step.Finish()
		e.giveUp()
		return err
	}
	next, err := e.model.next(tokens, positions, last, e.at.attend)
	if err != nil {
		step.Fail()
		return err
	}
	if err := step.Finish(); err != nil {
		return err
	}
	e.tell(sampled, next)
	return nil
}

// giveUp ends one text when none can go on: the newest that holds blocks, else the oldest.
func (e *engine) giveUp() {
	at := 0
	for i, r := range e.running {
		if info, err := r.sequence.Info(); err == nil && info.BlocksHeld > 0 {
			at = i
		}
	}
	r := e.running[at]
	e.end(r, event{err: fmt.Errorf("the pool is too small to continue after %d tokens",
		len(r.tokens))})
	e.running = append(e.running[:at], e.running[at+1:]...)
}

// tell sends the sampled tokens to their clients, and ends the texts that are complete.
func (e *engine) tell(sampled []*request, next []uint32) {
	reasons := map[*request]string{}
	for i, r := range sampled {
		token := next[i]
		if e.model.trained && (token == bos || token == eos) {
			reasons[r] = "stop"
			continue
		}
		r.tokens = append(r.tokens, token)
		r.events <- event{token: token}
		if len(r.tokens) == r.limit {
			reasons[r] = "length"
		}
	}
	e.count(func(c *counts) { c.Tokens += len(next); c.Finished += len(reasons) })
	e.keep(func(r *request) bool {
		if reason := reasons[r]; reason != "" {
			e.end(r, event{reason: reason})
			return false
		}
		return true
	})
}

func (e *engine) move(m move) {
	target, err := openPlace(e.instance, m.backend, e.model.shape)
	if err != nil {
		m.result <- moved{err: err}
		return
	}
	done, err := e.cache.Migrate(quire.MigrateOptions{Shards: target.shard(), Blocks: m.blocks,
		CopyHostTier: true, Timeout: -1})
	if err == nil && !done.Moved {
		err = fmt.Errorf("%d blocks are too few for the live blocks: %d more are needed", m.blocks,
			done.BlocksShort)
	}
	if err != nil {
		target.close()
		m.result <- moved{err: err}
		return
	}
	e.at.close()
	e.at = target
	e.count(func(c *counts) { c.Device = m.backend })
	if err = e.at.makeBatch(e.cache, e.model.shape, e.blockTokens); err != nil {
		e.breaks(err)
	}
	m.result <- moved{done, err}
}

func (e *engine) count(change func(c *counts)) {
	e.lock.Lock()
	change(&e.counts)
	e.lock.Unlock()
}

func (e *engine) read() counts {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.counts
}
