// SPDX-License-Identifier: Apache-2.0

#include "ops.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace engine {
namespace {

constexpr size_t kLaneCount = 8;
using Lanes = float __attribute__((vector_size(kLaneCount * sizeof(float))));

// Dot products of `Rows` inputs with `Outputs` weights. Every pair has its own lanes, so a pair is
// summed in the same order in a 2x2 tile and alone: lanes first, then lane 0 to 7, then the tail.
template <size_t Rows, size_t Outputs>
void dot_tile(float *out, size_t out_stride, const float *x, const float *weight, size_t inputs) {
    Lanes sums[Rows][Outputs] = {};
    const size_t whole = inputs - inputs % kLaneCount;
    for (size_t i = 0; i < whole; i += kLaneCount) {
        Lanes w[Outputs];
        for (size_t o = 0; o < Outputs; ++o) {
            std::memcpy(&w[o], weight + o * inputs + i, sizeof(Lanes));
        }
        for (size_t r = 0; r < Rows; ++r) {
            Lanes a;
            std::memcpy(&a, x + r * inputs + i, sizeof(Lanes));
            for (size_t o = 0; o < Outputs; ++o) {
                sums[r][o] += a * w[o];
            }
        }
    }
    for (size_t r = 0; r < Rows; ++r) {
        for (size_t o = 0; o < Outputs; ++o) {
            float sum = 0.0F;
            for (size_t lane = 0; lane < kLaneCount; ++lane) {
                sum += sums[r][o][lane];
            }
            for (size_t i = whole; i < inputs; ++i) {
                sum += x[r * inputs + i] * weight[o * inputs + i];
            }
            out[r * out_stride + o] = sum;
        }
    }
}

template <size_t Rows>
void dot_rows(float *out, size_t outputs, const float *x, const float *weight, size_t inputs) {
    size_t o = 0;
    for (; o + 2 <= outputs; o += 2) {
        dot_tile<Rows, 2>(out + o, outputs, x, weight + o * inputs, inputs);
    }
    if (o < outputs) {
        dot_tile<Rows, 1>(out + o, outputs, x, weight + o * inputs, inputs);
    }
}

}  // namespace

void matmul(std::span<float> out, std::span<const float> x, std::span<const float> weight,
            size_t inputs) {
    const size_t row_count = x.size() / inputs;
    const size_t outputs = weight.size() / inputs;
    size_t r = 0;
    for (; r + 2 <= row_count; r += 2) {
        dot_rows<2>(&out[r * outputs], outputs, &x[r * inputs], weight.data(), inputs);
    }
    if (r < row_count) {
        dot_rows<1>(&out[r * outputs], outputs, &x[r * inputs], weight.data(), inputs);
    }
}

void rmsnorm(std::span<float> out, std::span<const float> x, std::span<const float> gain) {
    const size_t dim = gain.size();
    for (size_t begin = 0; begin < x.size(); begin += dim) {
        float square_sum = 0.0F;
        for (size_t i = 0; i < dim; ++i) {
            square_sum += x[begin + i] * x[begin + i];
        }
        const float scale = 1.0F / std::sqrt(square_sum / static_cast<float>(dim) + 1e-5F);
        for (size_t i = 0; i < dim; ++i) {
            out[begin + i] = gain[i] * (scale * x[begin + i]);
        }
    }
}

void swiglu(std::span<float> gate, std::span<const float> up) {
    for (size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
    }
}

void add(std::span<float> x, std::span<const float> y) {
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] += y[i];
    }
}

void softmax(std::span<float> x) {
    const float top = *std::max_element(x.begin(), x.end());
    float sum = 0.0F;
    for (float &value : x) {
        value = std::exp(value - top);
        sum += value;
    }
    for (float &value : x) {
        value /= sum;
    }
}

RopeTable::RopeTable(size_t head_dim, size_t seq_len) : pair_count_(head_dim / 2) {
    cosines_.reserve(seq_len * pair_count_);
    sines_.reserve(seq_len * pair_count_);
    for (size_t position = 0; position < seq_len; ++position) {
        for (size_t pair = 0; pair < pair_count_; ++pair) {
            const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(head_dim);
            const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
            cosines_.push_back(static_cast<float>(std::cos(angle)));
            sines_.push_back(static_cast<float>(std::sin(angle)));
        }
    }
}

void RopeTable::rotate(std::span<float> row, size_t position) const {
    const float *cosines = &cosines_[position * pair_count_];
    const float *sines = &sines_[position * pair_count_];
    for (size_t i = 0; i < row.size(); i += 2) {
        const size_t pair = (i / 2) % pair_count_;
        const float even = row[i];
        const float odd = row[i + 1];
        row[i] = even * cosines[pair] - odd * sines[pair];
        row[i + 1] = even * sines[pair] + odd * cosines[pair];
    }
}

}  // namespace engine
