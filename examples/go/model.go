// SPDX-License-Identifier: Apache-2.0

package main

import "math"

// attention stores the new tokens' K and V, and attends over all so far: it takes q
// [tokens][heads][head_dim] and k, v [tokens][kv_heads][head_dim], and returns
// [tokens][heads * head_dim].
type attention func(layer int, q, k, v []float32) ([]float32, error)

// next returns the most likely token after each of the new tokens that `last` names.
func (c *checkpoint) next(tokens []uint32, positions []int, last []int,
	attend attention) ([]uint32, error) {
	s, n := c.shape, len(tokens)
	x := make([]float32, n*s.dim)
	for i, token := range tokens {
		copy(x[i*s.dim:(i+1)*s.dim], c.weights["embedding"][int(token)*s.dim:])
	}
	for layer := 0; layer < s.layers; layer++ {
		y := norm(x, c.of("attention_norm", layer, s.dim), s.dim)
		q := multiply(y, c.of("wq", layer, s.dim*s.dim), s.dim)
		k := multiply(y, c.of("wk", layer, s.kvDim()*s.dim), s.dim)
		v := multiply(y, c.of("wv", layer, s.kvDim()*s.dim), s.dim)
		turn(q, positions, s.headDim())
		turn(k, positions, s.headDim())
		out, err := attend(layer, q, k, v)
		if err != nil {
			return nil, err
		}
		add(x, multiply(out, c.of("wo", layer, s.dim*s.dim), s.dim))
		y = norm(x, c.of("ffn_norm", layer, s.dim), s.dim)
		gate := multiply(y, c.of("gate", layer, s.hidden*s.dim), s.dim)
		up := multiply(y, c.of("up", layer, s.hidden*s.dim), s.dim)
		for i, g := range gate {
			gate[i] = g / (1 + float32(math.Exp(-float64(g)))) * up[i]
		}
		add(x, multiply(gate, c.of("down", layer, s.dim*s.hidden), s.hidden))
	}
	result := make([]uint32, len(last))
	for i, at := range last {
		y := norm(x[at*s.dim:(at+1)*s.dim], c.weights["final_norm"], s.dim)
		result[i] = largest(multiply(y, c.weights["classifier"], s.dim))
	}
	return result, nil
}

func (c *checkpoint) of(name string, layer, size int) []float32 {
	return c.weights[name][layer*size : (layer+1)*size]
}

// multiply returns x [n][dim] times the transposed weights [rows][dim], as [n][rows].
func multiply(x, weights []float32, dim int) []float32 {
	n, rows := len(x)/dim, len(weights)/dim
	out := make([]float32, n*rows)
	for i := 0; i < n; i++ {
		row := x[i*dim : (i+1)*dim]
		for j := 0; j < rows; j++ {
			sum := float32(0)
			for d, weight := range weights[j*dim : (j+1)*dim] {
				sum += row[d] * weight
			}
			out[i*rows+j] = sum
		}
	}
	return out
}

func norm(x, gain []float32, dim int) []float32 {
	out := make([]float32, len(x))
	for i := 0; i < len(x); i += dim {
		sum := float32(0)
		for _, number := range x[i : i+dim] {
			sum += number * number
		}
		scale := float32(1 / math.Sqrt(float64(sum/float32(dim)+1e-5)))
		for d := 0; d < dim; d++ {
			out[i+d] = x[i+d] * scale * gain[d]
		}
	}
	return out
}

// turn rotates adjacent pairs of each head by their positions.
func turn(x []float32, positions []int, headDim int) {
	row := len(x) / len(positions)
	for i := 0; i < len(x); i += 2 {
		angle := float64(positions[i/row]) * math.Pow(10000, -float64(i%headDim)/float64(headDim))
		sine, cosine := math.Sincos(angle)
		a, b := x[i], x[i+1]
		x[i] = a*float32(cosine) - b*float32(sine)
		x[i+1] = a*float32(sine) + b*float32(cosine)
	}
}

func add(x, y []float32) {
	for i := range x {
		x[i] += y[i]
	}
}

func largest(numbers []float32) uint32 {
	best := 0
	for i, number := range numbers {
		if number > numbers[best] {
			best = i
		}
	}
	return uint32(best)
}
