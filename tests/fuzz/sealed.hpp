// SPDX-License-Identifier: Apache-2.0
//
// sealed: gives bytes the size and the checksum that their format wants, so that the fuzzer gets
// past both. No random change would.
//
// All of these formats hash the header with 0 in the checksum's place, and then the rest with the
// first hash as its seed: docs/follower-log.md, docs/calibration.md, docs/canonical-form.md.
//
// Threads: none.
#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace quire::fuzz {

struct SealPlaces {
    uint32_t header_bytes;
    uint32_t size_at;      // u64
    uint32_t checksum_at;  // u64
};

constexpr SealPlaces kCalibrationSeal = {32, 16, 24};
constexpr SealPlaces kCanonicalSeal = {256, 16, 24};
constexpr SealPlaces kLogSeal = {88, 8, 48};
constexpr SealPlaces kReportSeal = {56, 8, 40};

// Writes the checksum alone.
inline void seal_sum(std::vector<uint8_t> *bytes, const SealPlaces &places) {
    if (bytes->size() < places.header_bytes) return;
    uint64_t size = bytes->size(), sum = 0;
    std::memcpy(bytes->data() + places.checksum_at, &sum, sizeof sum);
    sum = XXH3_64bits_withSeed(bytes->data() + places.header_bytes, size - places.header_bytes,
                               XXH3_64bits(bytes->data(), places.header_bytes));
    std::memcpy(bytes->data() + places.checksum_at, &sum, sizeof sum);
}

inline void seal(std::vector<uint8_t> *bytes, const SealPlaces &places) {
    if (bytes->size() < places.header_bytes) return;
    uint64_t size = bytes->size();
    std::memcpy(bytes->data() + places.size_at, &size, sizeof size);
    seal_sum(bytes, places);
}

}  // namespace quire::fuzz
