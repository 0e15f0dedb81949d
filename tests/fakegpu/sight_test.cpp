// SPDX-License-Identifier: Apache-2.0
//
// Sight: whatever a batch's rows, windows and masks, the rules that all GPUs share let a token see
// the keys that the processor lets it see. Vulkan compiles the same file as CUDA and HIP.

#include "tests/fakegpu/sight_case.hpp"

#include <gtest/gtest.h>

#include <random>

#include "device_array.hpp"
#include "kernels/sight.hpp"
#include "quire/cache.h"

namespace quire::gpu {

namespace {

// For each token, numbered by group, a word for each place of its row: 1 if the token sees it.
QUIRE_KERNEL(test_sight, 32, AttendCall, call) {
    if (thread_index() != 0) return;
    auto token = static_cast<int32_t>(group_index());
    uint32_t index = 0;
    while (row_at(call, index).end_token <= token) ++index;
    Row row = row_at(call, index);
    Sight sight = sight_of(call, row, token);
    for (int32_t place = 0; place < row.key_count; ++place) {
        uint64_t word = group_index() * call.chunk_count + static_cast<uint64_t>(place);
        bool may = may_see(sight, place, place + 1);
        bool is = is_visible(call, row, sight, place);
        store<uint32_t>(call.out + word * 4, is && may ? 1u : is ? 2u : 0u);
    }
}

constexpr int32_t kMostPlaces = 200;

SightCase random_case(std::mt19937 *dice) {
    auto roll = [&](uint32_t most) { return static_cast<int32_t>((*dice)() % (most + 1)); };
    const uint32_t kinds[] = {QUIRE_GROUP_FULL, QUIRE_GROUP_WINDOW, QUIRE_GROUP_CHUNKED};
    SightCase one{};
    one.group_kind = kinds[roll(2)];
    bool has_window = one.group_kind != QUIRE_GROUP_FULL;
    one.window = has_window ? static_cast<uint32_t>(roll(90) + 1) : 0;
    if (one.group_kind == QUIRE_GROUP_WINDOW) one.sink_tokens = static_cast<uint32_t>(roll(8));
    one.has_mask = roll(1) != 0;
    one.is_causal = has_window || one.has_mask || roll(2) != 0;
    one.cu_q = {0};
    for (int32_t rows = roll(3) + 1; rows > 0; --rows) {
        int32_t tokens = roll(1) == 0 ? roll(1) : roll(20);
        int32_t length = tokens + roll(static_cast<uint32_t>(kMostPlaces - tokens));
        int32_t masked = one.has_mask ? roll(static_cast<uint32_t>(tokens)) : 0;
        one.cu_q.push_back(one.cu_q.back() + tokens);
        one.lengths.push_back(length);
        one.mask_first.push_back(roll(static_cast<uint32_t>(length)));
        for (int32_t t = 0; t < tokens; ++t) {
            bool is_masked = t >= tokens - masked;
            one.mask_rows.push_back(is_masked ? static_cast<int32_t>(one.mask.size()) : -1);
            one.positions.push_back(length - tokens + roll(static_cast<uint32_t>(tokens)));
            for (int32_t i = 0; is_masked && i < (length + 31) / 32; ++i) {
                one.mask.push_back((*dice)());
            }
        }
    }
    one.mask.push_back(0);  // so that there is one
    return one;
}

// The words that the kernel stores, kMostPlaces for each token.
std::vector<uint32_t> seen_by_gpu(const SightCase &one) {
    DeviceArray cu_q(one.cu_q), lengths(one.lengths), positions(one.positions);
    DeviceArray mask_rows(one.mask_rows), mask_first(one.mask_first), mask(one.mask);
    auto tokens = static_cast<uint32_t>(one.cu_q.back());
    DeviceArray out(uint64_t{tokens} * kMostPlaces);
    std::fill_n(out.host(), out.bytes / 4, 0u);
    AttendCall call{};
    call.cu_q = cu_q.address;
    call.lengths = lengths.address;
    call.positions = positions.address;
    call.mask_rows = mask_rows.address;
    call.mask_first = mask_first.address;
    call.mask = mask.address;
    call.out = out.address;
    call.chunk_count = kMostPlaces;
    call.window = static_cast<int32_t>(one.window);
    call.sink_tokens = static_cast<int32_t>(one.sink_tokens);
    if (!one.is_causal) call.options |= kNotCausal;
    if (one.has_mask) call.options |= kMask;
    if (one.group_kind == QUIRE_GROUP_WINDOW) call.options |= kWindow;
    if (one.group_kind == QUIRE_GROUP_CHUNKED) call.options |= kChunked;
    fakegpu::Launch launch = {fakegpu::find_kernel("test_sight"), &call, tokens, 1, 32};
    EXPECT_EQ(fakegpu::run(launch), "");
    return {out.host(), out.host() + out.bytes / 4};
}

void expect_the_same_keys(uint32_t seed) {
    std::mt19937 dice(seed);
    SightCase one = random_case(&dice);
    if (one.cu_q.back() == 0) return;
    std::vector<uint32_t> words = seen_by_gpu(one);
    for (uint32_t row = 0; row < one.lengths.size(); ++row) {
        for (int32_t token = one.cu_q[row]; token < one.cu_q[row + 1]; ++token) {
            std::vector<uint32_t> expected(kMostPlaces, 0);
            for (int32_t place : seen_by_cpu(one, row, token)) {
                expected[static_cast<size_t>(place)] = 1;
            }
            auto begin = words.begin() + int64_t{token} * kMostPlaces;
            EXPECT_EQ(std::vector<uint32_t>(begin, begin + kMostPlaces), expected)
                << "seed " << seed << ", row " << row << ", token " << token;
        }
    }
}

}  // namespace

TEST(Sight, is_the_same_on_gpus_as_on_the_processor) {
    for (uint32_t seed = 1; seed <= 500 && !testing::Test::HasFailure(); ++seed) {
        expect_the_same_keys(seed);
    }
}

}  // namespace quire::gpu
