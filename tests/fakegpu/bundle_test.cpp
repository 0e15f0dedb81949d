// SPDX-License-Identifier: Apache-2.0
//
// Bundles: whatever a batch's rows and rounds, the teams of attend_prefill's blocks get the units
// that attend_fragments gets, each exactly once.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "device_array.hpp"
#include "kernels/bundle.hpp"
#include "kernels/dialect.hpp"
#include "rounds.hpp"

namespace quire::gpu {

namespace {

using Found = std::tuple<int32_t, uint32_t, uint32_t, uint32_t, uint32_t>;

// The unit that a kernel found for each team, in 5 words; count 0 if the team has none.
constexpr uint32_t kWords = 5;

QUIRE_DEVICE void store_unit(const AttendCall &call, uint64_t index, const Unit &unit) {
    const uint32_t words[kWords] = {static_cast<uint32_t>(unit.first_token), unit.count,
                                    unit.kv_head, unit.first_head, unit.chunk};
    for (uint32_t i = 0; i < kWords; ++i) {
        store<uint32_t>(call.out + (index * kWords + i) * 4, words[i]);
    }
}

QUIRE_KERNEL(test_units, 32, AttendCall, call) {
    Unit unit;
    if (!find_unit(call, kFragmentQueries, group_index(), unit)) return;
    if (thread_index() == 0) store_unit(call, group_index(), unit);
}

template <uint32_t kTeams>
void store_bundle(const AttendCall &call) {
    Bundle bundle;
    if (!find_bundle<kTeams>(call, &bundle) || thread_index() >= kTeams) return;
    Unit unit = unit_of<kTeams>(bundle, thread_index());
    store_unit(call, group_index() * kTeams + thread_index(), unit);
}
QUIRE_KERNEL(test_bundles_of_2, 32, AttendCall, call) { store_bundle<2>(call); }
QUIRE_KERNEL(test_bundles_of_4, 32, AttendCall, call) { store_bundle<4>(call); }

// A random batch, with rows of 0 tokens, and tokens of no row before the first
// row and after the last.
struct Batch {
    explicit Batch(std::mt19937 *dice) {
        auto roll = [&](uint32_t most) { return (*dice)() % (most + 1); };
        ends.push_back(roll(2) == 0 ? roll(9) : 0);
        for (uint32_t rows = roll(8) + 1; rows > 0; --rows) {
            ends.push_back(ends.back() + (roll(2) == 0 ? roll(1) : roll(90)));
        }
        call.query_tokens = ends.back() + (roll(2) == 0 ? roll(9) : 0);
        call.row_count = static_cast<uint32_t>(ends.size()) - 1;
        const uint32_t groups[] = {1, 2, 3, 4, 5, 8, 16, 20};
        call.heads_per_kv = groups[roll(7)];
        call.kv_heads = roll(1) + 1;
        call.chunk_count = roll(1) + 1;
    }

    std::vector<uint32_t> ends;  // cu_q
    AttendCall call{};
};

std::vector<Found> units_of_round(const char *kernel, AttendCall call, uint64_t groups,
                                  uint32_t teams) {
    DeviceArray out(groups * teams * kWords);
    std::fill_n(out.host(), out.bytes / 4, 0u);
    call.out = out.address;
    fakegpu::Launch launch = {fakegpu::find_kernel(kernel), &call, static_cast<uint32_t>(groups), 1,
                              32};
    EXPECT_EQ(fakegpu::run(launch), "");
    std::vector<Found> found;
    for (const uint32_t *at = out.host(); at < out.host() + out.bytes / 4; at += kWords) {
        if (at[1] == 0) continue;
        found.emplace_back(static_cast<int32_t>(at[0]), at[1], at[2], at[3], at[4]);
    }
    std::sort(found.begin(), found.end());
    return found;
}

void expect_the_same_units(const char *kernel, uint32_t teams, uint32_t seed) {
    std::mt19937 dice(seed);
    Batch batch(&dice);
    AttendCall call = batch.call;
    if (call.query_tokens == 0) return;
    DeviceArray cu_q(batch.ends.size()), lengths(batch.ends.size()), rows(call.query_tokens);
    std::copy(batch.ends.begin(), batch.ends.end(), cu_q.host());
    std::fill_n(lengths.host(), batch.ends.size(), 700u);
    std::fill_n(rows.host(), call.query_tokens, UINT32_MAX);
    for (uint32_t row = 0; row < call.row_count; ++row) {
        std::fill(rows.host() + batch.ends[row], rows.host() + batch.ends[row + 1], row);
    }
    call.cu_q = cu_q.address;
    call.lengths = lengths.address;
    call.token_rows = rows.address;
    uint32_t heads = std::min(call.heads_per_kv, kFragmentQueries);
    uint64_t others =
        uint64_t{call.kv_heads} * call.chunk_count * ((call.heads_per_kv + heads - 1) / heads);
    uint32_t round = dice() % call.query_tokens + 1;
    for (uint32_t first = 0; first < call.query_tokens; first += round) {
        call.first_token = first;
        call.end_token = std::min(first + round, call.query_tokens);
        uint64_t places = call.end_token - first;
        uint64_t seats = seat_count(call, kFragmentQueries / heads * teams);
        EXPECT_EQ(units_of_round(kernel, call, seats * others, teams),
                  units_of_round("test_units", call, places * others, 1))
            << "seed " << seed << ", from " << first << " to " << call.end_token;
    }
}

}  // namespace

TEST(Bundles, of_any_batch_have_each_unit_once) {
    for (uint32_t seed = 1; seed <= 100 && !testing::Test::HasFailure(); ++seed) {
        expect_the_same_units("test_bundles_of_2", 2, seed);
        expect_the_same_units("test_bundles_of_4", 4, seed);
    }
}

}  // namespace quire::gpu
