// SPDX-License-Identifier: Apache-2.0

package main

import "quire"

const (
	maxRows   = 16
	maxTokens = 1024 // new tokens of a step
)

// place is where the cache runs: a device, and what a step needs on it.
type place struct {
	device       *quire.Device
	queue        *quire.Queue
	batch        *quire.Batch // made once the cache is here
	q, k, v, out *quire.Memory
}

func openPlace(instance *quire.Instance, backend string, s shape) (*place, error) {
	device, err := instance.OpenDevice(quire.DeviceOptions{Backend: backend})
	if err != nil {
		return nil, err
	}
	p := &place{device: device}
	if p.queue, err = device.NewQueue(); err != nil {
		p.close()
		return nil, err
	}
	for _, memory := range []struct {
		at  **quire.Memory
		row int
	}{{&p.q, s.dim}, {&p.k, s.kvDim()}, {&p.v, s.kvDim()}, {&p.out, s.dim}} {
		if *memory.at, err = device.NewMemory(uint64(maxTokens*memory.row*4), true); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *place) shard() []quire.Shard { return []quire.Shard{{Device: p.device}} }

func (p *place) makeBatch(cache *quire.Cache, s shape, blockTokens int) (err error) {
	p.batch, err = cache.NewBatch(quire.BatchOptions{MaxRows: maxRows,
		MaxBlocksPerRow: (s.seqLen + blockTokens - 1) / blockTokens, MaxQueryTokens: maxTokens,
		Attention: []quire.Attention{{QHeads: s.heads}}})
	return err
}

// attend runs a layer of the step that was committed into the batch.
func (p *place) attend(layer int, q, k, v []float32) ([]float32, error) {
	copy(p.q.Float32s(), q)
	copy(p.k.Float32s(), k)
	copy(p.v.Float32s(), v)
	err := p.batch.KVWrite(quire.KV{Layer: layer, K: quire.Operand{Memory: p.k},
		V: quire.Operand{Memory: p.v}})
	if err == nil {
		err = p.batch.Attend(quire.Attend{Layer: layer, Q: quire.Operand{Memory: p.q},
			Out: quire.Operand{Memory: p.out}})
	}
	if err == nil {
		err = p.queue.Sync()
	}
	return append([]float32(nil), p.out.Float32s()[:len(q)]...), err
}

// leave frees everything that a step needs, as far as it was made.
func (p *place) leave() {
	if p.queue != nil {
		p.queue.Sync()
	}
	if p.batch != nil {
		p.batch.Close()
	}
	for _, memory := range []*quire.Memory{p.q, p.k, p.v, p.out} {
		if memory != nil {
			memory.Close()
		}
	}
	if p.queue != nil {
		p.queue.Close()
	}
}

// close also closes the device, on which no cache may be any more.
func (p *place) close() {
	p.leave()
	p.device.Close()
}
