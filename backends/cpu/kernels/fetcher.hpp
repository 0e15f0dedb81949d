// SPDX-License-Identifier: Apache-2.0
//
// fetcher: prefetches the rows of K or V that a later kernel reads, while this one computes.
//
// Included by units compiled for more than the baseline, so it has internal linkage
// (kernels/lanes.hpp says why).
//
// Threads: one.
#pragma once

#include <cstddef>

#include "kernels/tile.hpp"

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

// Spreads the prefetches evenly over a kernel's steps: if all were issued at once, the kernel would
// wait for memory, and memory would then be idle. The four quarters of the rows take turns: they
// mostly lie in four pages, and a processor's own prefetcher works within a page, so together they
// are read a fifth faster than one after another.
class Fetcher {
 public:
    Fetcher(const Ahead &ahead, size_t steps)
        : rows_(ahead.rows),
          count_(ahead.count / 4 * 4),
          quarter_(ahead.count / 4),
          row_bytes_(ahead.row_bytes),
          steps_(steps != 0 ? steps : 1) {}

    // Advances by `weight` steps.
    void step(size_t weight = 1) {
        for (due_ += count_ * weight; due_ >= steps_ && next_ < count_; due_ -= steps_) {
            const std::byte *row = rows_[next_ % 4 * quarter_ + next_ / 4];
            ++next_;
            for (size_t at = 0; at < row_bytes_; at += 64) {
                __builtin_prefetch(row + at, 0, 2);
            }
        }
    }

 private:
    Rows rows_;
    size_t count_;
    size_t quarter_;
    size_t row_bytes_;
    size_t steps_;
    size_t due_ = 0;
    size_t next_ = 0;
};

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
