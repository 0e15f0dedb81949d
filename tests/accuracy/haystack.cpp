// SPDX-License-Identifier: Apache-2.0

#include "haystack.hpp"

#include "examples/engine/random.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace quire::test {
namespace {

using engine::mix;
using engine::unit_interval;

enum Drawing : uint64_t { kKey, kValue, kNearMiss, kWord, kOutlier };

// A random direction: normal elements (Box and Muller 1958), without element 0.
void draw_unit(uint64_t seed, uint32_t dim, float *to) {
    double square = 0.0;
    to[0] = 0.0f;
    for (uint32_t i = 1; i < dim; ++i) {
        double radius = std::sqrt(-2.0 * std::log(unit_interval(mix(seed, 2 * i))));
        double turn = 2.0 * std::numbers::pi * unit_interval(mix(seed, 2 * i + 1));
        to[i] = static_cast<float>(radius * std::cos(turn));
        square += double{to[i]} * to[i];
    }
    for (uint32_t i = 1; i < dim; ++i) to[i] /= static_cast<float>(std::sqrt(square));
}

double dot(const float *a, const float *b, uint32_t dim) {
    double sum = 0.0;
    for (uint32_t i = 0; i < dim; ++i) sum += double{a[i]} * b[i];
    return sum;
}

// The smaller b of b - b^2 / 2d = ln n + kMargin.
double sharpness_of(const HaystackShape &shape) {
    double d = shape.head_dim - 1;  // element 0 is ignored
    double needed = std::log(shape.positions) + kMargin;
    if (2.0 * needed > d) throw std::invalid_argument("too few elements for this many positions");
    return d - std::sqrt(d * d - 2.0 * d * needed);
}

float length_of(uint32_t word) { return word % 2 == 0 ? 1.0f : 2.0f; }

}  // namespace

Haystack::Haystack(const HaystackShape &shape)
    : shape_(shape),
      sharpness_(sharpness_of(shape)),
      keys_(size_t{kVocabulary} * kKvHeads * shape.head_dim),
      values_(keys_.size()) {
    draw_vectors();
    bend_near_misses();
    draw_words();
}

float *Haystack::at(Vectors &vectors, uint32_t word, uint32_t kv_head) const {
    return &vectors[(size_t{word} * kKvHeads + kv_head) * shape_.head_dim];
}

const float *Haystack::at(const Vectors &vectors, uint32_t word, uint32_t kv_head) const {
    return &vectors[(size_t{word} * kKvHeads + kv_head) * shape_.head_dim];
}

void Haystack::draw_vectors() {
    for (uint32_t word = 0; word < kVocabulary; ++word) {
        for (uint32_t head = 0; head < kKvHeads; ++head) {
            draw_unit(mix(mix(kKey, word), head), shape_.head_dim, at(keys_, word, head));
            float *value = at(values_, word, head);
            draw_unit(mix(mix(kValue, word / 2), head), shape_.head_dim, value);
            for (uint32_t i = 0; i < shape_.head_dim; ++i) value[i] *= length_of(word);
        }
    }
}

// The words after the markers get keys of cosine c with them.
void Haystack::bend_near_misses() {
    double cosine = 1.0 - kMargin / sharpness_, sine = std::sqrt(1.0 - cosine * cosine);
    uint32_t dim = shape_.head_dim;
    for (uint32_t needle = 0; needle < kNeedles; ++needle) {
        for (uint32_t head = 0; head < kKvHeads; ++head) {
            const float *key = at(keys_, marker(needle), head);
            float *near = at(keys_, kNeedles + needle, head);
            double along = dot(near, key, dim);
            double across = std::sqrt(1.0 - along * along);
            for (uint32_t i = 0; i < dim; ++i) {
                near[i] = static_cast<float>(cosine * key[i] +
                                             sine * (near[i] - along * key[i]) / across);
            }
        }
    }
}

// Begin, middle and end; first and last tokens of blocks, tokens within them, and the last block,
// which is not full.
void Haystack::draw_words() {
    uint32_t n = shape_.positions, block = shape_.block_tokens;
    positions_ = {1,
                  block,
                  3 * block - 1,
                  n / 2,
                  n / 2 + 3 * block - 1,
                  n / 4 * 3 + block / 2 + 1,
                  n - 2 * block,
                  n - 2};
    words_.resize(n - 1);
    for (uint32_t p = 0; p < words_.size(); ++p) {
        words_[p] = kFirstValue +
                    static_cast<uint32_t>(mix(mix(kWord, n), p) % (kVocabulary - kFirstValue));
    }
    for (uint32_t needle = 0; needle < kNeedles; ++needle) {
        words_[positions_[needle] - 1] = marker(needle);
        words_[n / 16 * (2 * needle + 1) + block / 2] = kNeedles + needle;
    }
}

// row  names the row of K or V: its element 0 is from 1/4 to 1.
void Haystack::put(const Vectors &vectors, uint32_t word, uint64_t row, float *to) const {
    std::copy_n(at(vectors, word, 0), size_t{kKvHeads} * shape_.head_dim, to);
    for (uint32_t head = 0; head < kKvHeads; ++head) {
        double drawn = unit_interval(mix(mix(kOutlier, row), head));
        to[head * shape_.head_dim] = static_cast<float>(std::exp2(-2.0 * drawn));
    }
}

void Haystack::put_k(uint32_t before, uint32_t position, float *to) const {
    put(keys_, before, 2 * uint64_t{position}, to);
}

void Haystack::put_v(uint32_t word, uint32_t position, float *to) const {
    put(values_, word, 2 * uint64_t{position} + 1, to);
}

void Haystack::put_q(uint32_t word, uint32_t kv_head, float *to) const {
    const float *key = at(keys_, word, kv_head);
    for (uint32_t i = 0; i < shape_.head_dim; ++i) {
        to[i] = static_cast<float>(sharpness_ * key[i]);
    }
}

std::optional<uint32_t> Haystack::nearest(const float *attended, uint32_t kv_head) const {
    uint32_t dim = shape_.head_dim, best = 0;
    double least = 0.0;
    for (uint32_t word = kFirstValue; word < kVocabulary; ++word) {
        const float *value = at(values_, word, kv_head);
        double square = 0.0;
        for (uint32_t i = 1; i < dim; ++i) {
            double off = double{attended[i]} - value[i];
            square += off * off;
        }
        if (word == kFirstValue || square < least) {
            least = square;
            best = word;
        }
    }
    bool is_near = std::sqrt(least) < 0.5 * length_of(best);  // false for NaN
    return is_near ? std::optional(best) : std::nullopt;
}

double Haystack::share(const float *attended, uint32_t word, uint32_t kv_head) const {
    const float *value = at(values_, word, kv_head);
    double length = length_of(word);
    return dot(attended, value, shape_.head_dim) / (length * length);
}

}  // namespace quire::test
