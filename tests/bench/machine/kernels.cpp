// SPDX-License-Identifier: Apache-2.0
//
// Compiled once per width: QUIRE_VECTOR_BYTES sets it, and QUIRE_KERNELS names the table. Code here
// must not call inline functions of headers: the linker would keep one copy for all processors.

#include "kernels.hpp"

namespace quire::bench {

extern const Kernels QUIRE_KERNELS;

namespace {

// May lie anywhere and alias anything, like a load of bytes.
typedef uint64_t Words __attribute__((vector_size(QUIRE_VECTOR_BYTES), may_alias, aligned(1)));
typedef float Lanes __attribute__((vector_size(QUIRE_VECTOR_BYTES)));

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kLineWords = kLineBytes / QUIRE_VECTOR_BYTES;  // vectors in a line
constexpr uint64_t kStepBytes = 4 * kLineBytes;
// Time for a line from memory, about 100 ns, at 20 GB/s per core.
constexpr uint64_t kAheadBytes = 2048;
// Data in random order is read as fast as contiguous data only by several streams at once: some
// of them go on while another enters its next page. 12 * 2 KiB are half of an L1 of 48 KiB.
constexpr uint64_t kTableStreams = 12;

struct Sum {
    Words parts[4] = {};

    inline __attribute__((always_inline)) void add_line(const std::byte *at, int part) {
        auto *words = reinterpret_cast<const Words *>(at);
        for (uint64_t i = 0; i < kLineWords; ++i) parts[part] ^= words[i];
    }
    uint64_t total() const {
        Words all = parts[0] ^ parts[1] ^ parts[2] ^ parts[3];
        uint64_t total = 0;
        for (uint64_t i = 0; i < QUIRE_VECTOR_BYTES / 8; ++i) total ^= all[i];
        return total;
    }
};

uint64_t read_forward(Run run) {
    Sum sum;
    uint64_t at = 0;
    for (; at + kStepBytes <= run.size_bytes; at += kStepBytes) {
        for (int line = 0; line < 4; ++line) sum.add_line(run.at + at + line * kLineBytes, line);
    }
    for (; at + kLineBytes <= run.size_bytes; at += kLineBytes) sum.add_line(run.at + at, 0);
    return sum.total();
}

uint64_t read_four_streams(Run run) {
    Sum sum;
    uint64_t quarter = run.size_bytes / 4 / kLineBytes * kLineBytes;
    for (uint64_t at = 0; at < quarter; at += kLineBytes) {
        for (int stream = 0; stream < 4; ++stream) {
            sum.add_line(run.at + static_cast<uint64_t>(stream) * quarter + at, stream);
        }
    }
    return sum.total() ^ read_forward({run.at + 4 * quarter, run.size_bytes - 4 * quarter});
}

// Goes through runs in steps, each within one run.
struct Cursor {
    const Run *run;
    const Run *end;
    uint64_t offset = 0;

    bool at_end() const { return run == end; }
    const std::byte *place() const { return run->at + offset; }
    uint64_t lines() const {
        uint64_t left = run->size_bytes - offset;
        return (left < kStepBytes ? left : kStepBytes) / kLineBytes;
    }
    void advance() {
        offset += kStepBytes;
        if (offset + kLineBytes <= run->size_bytes) return;
        offset = 0;
        ++run;
    }
};

inline void prefetch_step(Cursor *ahead) {
    if (ahead->at_end()) return;
    uint64_t lines = ahead->lines();
    for (uint64_t i = 0; i < lines; ++i) {
        __builtin_prefetch(ahead->place() + i * kLineBytes, 0, 3);
    }
    ahead->advance();
}

inline void read_step(Cursor *at, Sum *sum) {
    uint64_t lines = at->lines();
    if (lines == 4) {
        for (int line = 0; line < 4; ++line) sum->add_line(at->place() + line * kLineBytes, line);
    } else {
        for (uint64_t i = 0; i < lines; ++i) sum->add_line(at->place() + i * kLineBytes, 0);
    }
    at->advance();
}

uint64_t read_runs(const Run *runs, uint64_t run_count) {
    Sum sum;
    Cursor at[kTableStreams], ahead[kTableStreams];
    for (uint64_t s = 0; s < kTableStreams; ++s) {
        at[s] = ahead[s] = {runs + run_count * s / kTableStreams,
                            runs + run_count * (s + 1) / kTableStreams};
        for (uint64_t i = 0; i < kAheadBytes / kStepBytes; ++i) prefetch_step(&ahead[s]);
    }
    for (bool is_reading = true; is_reading;) {
        is_reading = false;
        for (uint64_t s = 0; s < kTableStreams; ++s) {
            if (at[s].at_end()) continue;
            is_reading = true;
            prefetch_step(&ahead[s]);
            read_step(&at[s], &sum);
        }
    }
    return sum.total();
}

float multiply_add(uint64_t length) {
    Lanes chains[kFmaChains];
    Lanes factor, addend;
    for (uint64_t i = 0; i < QUIRE_VECTOR_BYTES / sizeof(float); ++i) {
        factor[i] = 0.5f;  // a chain converges to 2: no denormal, no infinity
        addend[i] = 1.0f;
    }
    for (uint32_t chain = 0; chain < kFmaChains; ++chain) {
        chains[chain] = addend * static_cast<float>(chain + 3);  // at 2 it would be constant
    }
    for (uint64_t i = 0; i < length; ++i) {
        for (uint32_t chain = 0; chain < kFmaChains; ++chain) {
            chains[chain] = chains[chain] * factor + addend;
        }
    }
    Lanes all = chains[0];
    for (uint32_t chain = 1; chain < kFmaChains; ++chain) all += chains[chain];
    float total = 0;
    for (uint64_t i = 0; i < QUIRE_VECTOR_BYTES / sizeof(float); ++i) total += all[i];
    return total;
}

}  // namespace

const Kernels QUIRE_KERNELS = {QUIRE_VECTOR_BYTES / sizeof(float), read_forward, read_four_streams,
                               read_runs, multiply_add};

}  // namespace quire::bench
