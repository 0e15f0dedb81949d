// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand"
	"os"
)

const (
	bos = 1
	eos = 2
)

// shape holds the dimensions of a Llama model.
type shape struct {
	dim, hidden, layers, heads, kvHeads, vocab, seqLen int
}

func (s shape) headDim() int { return s.dim / s.heads }
func (s shape) kvDim() int   { return s.kvHeads * s.headDim() }

// checkpoint holds weights by name, all layers of a name in one slice. The file has llama2.c's
// legacy format: seven int32 (dim, hidden, layers, heads, kv heads, vocab, seq len; a negative
// vocab means that the classifier is not the embedding), then f32 tensors in the order of `order`.
type checkpoint struct {
	shape
	weights map[string][]float32
	trained bool
}

type tensor struct {
	name       string
	rows, side int // side: numbers per row
}

func order(s shape, hasClassifier bool) []tensor {
	list := []tensor{
		{"embedding", s.vocab, s.dim},
		{"attention_norm", s.layers, s.dim},
		{"wq", s.layers * s.dim, s.dim},
		{"wk", s.layers * s.kvDim(), s.dim},
		{"wv", s.layers * s.kvDim(), s.dim},
		{"wo", s.layers * s.dim, s.dim},
		{"ffn_norm", s.layers, s.dim},
		{"gate", s.layers * s.hidden, s.dim},
		{"down", s.layers * s.dim, s.hidden},
		{"up", s.layers * s.hidden, s.dim},
		{"final_norm", 1, s.dim},
		{"unused", 2 * s.seqLen, s.headDim() / 2},
	}
	if hasClassifier {
		list = append(list, tensor{"classifier", s.vocab, s.dim})
	}
	return list
}

func loadCheckpoint(path string) (*checkpoint, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var head [7]int
	for i := range head {
		if len(content) < 4*i+4 {
			return nil, fmt.Errorf("%s is not a checkpoint: its header is missing", path)
		}
		head[i] = int(int32(binary.LittleEndian.Uint32(content[4*i:])))
	}
	hasClassifier := head[5] < 0
	if hasClassifier {
		head[5] = -head[5]
	}
	for _, size := range head {
		if size <= 0 || size > 1<<20 {
			return nil, fmt.Errorf("%s is not a checkpoint: its header has %v", path, head)
		}
	}
	s := shape{head[0], head[1], head[2], head[3], head[4], head[5], head[6]}
	if s.heads > s.dim || s.dim%s.heads != 0 || s.heads%s.kvHeads != 0 || s.headDim()%2 != 0 {
		return nil, fmt.Errorf("%s is not a checkpoint: its header has %v", path, head)
	}
	c := &checkpoint{shape: s, weights: map[string][]float32{}, trained: true}
	at := 28
	for _, t := range order(s, hasClassifier) {
		if (len(content)-at)/4/t.side < t.rows {
			return nil, fmt.Errorf("%s is truncated: it ends inside %s", path, t.name)
		}
		numbers := make([]float32, t.rows*t.side)
		for i := range numbers {
			numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(content[at+4*i:]))
		}
		c.weights[t.name] = numbers
		at += 4 * len(numbers)
	}
	return c.complete(), nil
}

// seededCheckpoint makes random weights with attention so sharp that a wrong block shows in the
// text.
func seededCheckpoint(seed int64) *checkpoint {
	s := shape{dim: 64, hidden: 172, layers: 3, heads: 8, kvHeads: 4, vocab: 128, seqLen: 512}
	random := rand.New(rand.NewSource(seed))
	spreads := map[string]float64{"wq": 1.7, "wk": 1.7, "classifier": 3, "embedding": 8}
	c := &checkpoint{shape: s, weights: map[string][]float32{}}
	for _, t := range order(s, true) {
		spread := spreads[t.name]
		if spread == 0 {
			spread = 1
		}
		numbers := make([]float32, t.rows*t.side)
		for i := range numbers {
			numbers[i] = 1
			if t.name != "attention_norm" && t.name != "ffn_norm" && t.name != "final_norm" {
				numbers[i] = float32(random.NormFloat64() * spread / math.Sqrt(float64(t.side)))
			}
		}
		c.weights[t.name] = numbers
	}
	return c.complete()
}

func (c *checkpoint) complete() *checkpoint {
	if c.weights["classifier"] == nil {
		c.weights["classifier"] = c.weights["embedding"]
	}
	return c
}
