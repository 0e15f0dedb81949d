// SPDX-License-Identifier: Apache-2.0
//
// haystack: a long text with needles in it, and an attention layer with constructed weights that
// finds them: nothing is trained, so it is known what must be found and by how much.
//
// The layer is the second half of an induction head (arXiv 2209.11895): K of a position names the
// previous token, V the token itself. So a query that names a marker finds the word after it.
// Each KV head has vectors of its own; the vectors of the words are random units.
//
// The margin. Let a query be b times the marker's unit vector, of d elements, over n positions.
//   needle     its logit is b.
//   haystack   the cosine of two random units is normal with variance 1/d, so the n positions add
//              up to n exp(b^2 / 2d) in the softmax: their combined logit is ln n + b^2 / 2d.
//   near miss  for each marker the text contains a word of cosine c with it: its logit is b c.
// b and c are chosen so that the needle is kMargin above either, at every n:
//   b - b^2 / 2d = ln n + kMargin,  c = 1 - kMargin / b
// So b grows like ln n, as it must, the needle's weight is 1 / (1 + 2 exp(-kMargin)) = 0.91, and
// a format's errors may use up kMargin: an error of that size in the needle's logit, or more than
// ten times the weight on one wrong value, loses the needle.
//
// Errors of a format. In a row whose largest magnitude is m, int8 rounds each element by
// m / (127 sqrt(12)) on average, which gives b times that in the logit: 0.03 at m = 1 and the b of
// 15 that 32,768 positions need, a hundredth of the margin; int4 gives 0.6; fp8 with 3 and 2 bits
// after the leading one gives 0.1 and 0.2.
//
// Outliers. Element 0 of each row of K and V holds a number that varies fourfold from row to row,
// as a few channels of trained models do, and that queries ignore. It makes the scales of
// neighbours differ, so that a wrong scale loses needles; and words come in pairs, of one direction
// and two lengths, so that the size of the found word matters too.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace quire::test {

constexpr uint32_t kNeedles = 8, kKvHeads = 4, kQHeads = 8;
constexpr double kMargin = 3.0;

struct HaystackShape {
    uint32_t positions = 0;  // n, including the query's own; a multiple of 16 block_tokens
    uint32_t head_dim = 64;
    uint32_t block_tokens = 16;
};

class Haystack {
 public:
    explicit Haystack(const HaystackShape &shape);

    const HaystackShape &shape() const { return shape_; }
    // All words except the query's.
    const std::vector<uint32_t> &words() const { return words_; }
    // [kKvHeads][head_dim], K of a position that follows the word `before`.
    void put_k(uint32_t before, uint32_t position, float *to) const;
    void put_v(uint32_t word, uint32_t position, float *to) const;
    // [head_dim]: asks one KV head for the word that follows `word`.
    void put_q(uint32_t word, uint32_t kv_head, float *to) const;

    static uint32_t marker(uint32_t needle) { return needle; }
    // A word like a marker that does not occur in the text.
    static uint32_t absent_marker(uint32_t needle) { return 2 * kNeedles + needle; }
    uint32_t position(uint32_t needle) const { return positions_[needle]; }
    uint32_t value(uint32_t needle) const { return words_[positions_[needle]]; }

    // The word whose V is nearest to a head's result; none if that is not within half the word's
    // length, as with a mean of many.
    std::optional<uint32_t> nearest(const float *attended, uint32_t kv_head) const;
    // How much of a word's V the result contains: the word's weight, if little else has its
    // direction.
    double share(const float *attended, uint32_t word, uint32_t kv_head) const;

 private:
    static constexpr uint32_t kVocabulary = 4096, kFirstValue = 3 * kNeedles;

    using Vectors = std::vector<float>;  // [kVocabulary][kKvHeads][head_dim], element 0 is 0

    float *at(Vectors &vectors, uint32_t word, uint32_t kv_head) const;
    const float *at(const Vectors &vectors, uint32_t word, uint32_t kv_head) const;
    void draw_vectors();
    void bend_near_misses();
    void draw_words();
    void put(const Vectors &vectors, uint32_t word, uint64_t row, float *to) const;

    HaystackShape shape_;
    double sharpness_ = 0.0;  // b
    Vectors keys_, values_;
    std::vector<uint32_t> words_;
    std::vector<uint32_t> positions_;  // of the needles' values
};

}  // namespace quire::test
