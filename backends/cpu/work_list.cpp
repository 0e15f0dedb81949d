// SPDX-License-Identifier: Apache-2.0

#include "work_list.hpp"

#include <algorithm>

#include "kernels/sight.hpp"

namespace quire::cpu {

namespace {

// A bundle of at most this many queries per KV head reads more than it computes: on a core that
// reads 16 GB/s and computes 200 GFLOP/s, f16 is read in the time of 6 queries' arithmetic.
constexpr uint32_t kFewQueries = 16;
constexpr uint64_t kReadingCost = 8;  // per chunk, in queries that could be computed meanwhile

// Works per thread: a thread that finishes one work late delays the call by this fraction of it.
constexpr uint64_t kWorksPerThread = 16;

uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace

Sharing::Sharing(const AttendCall &call, uint32_t thread_count)
    : call_(call),
      group_(call.plan->q_heads / call.pool.kv_heads),
      queries_at_once_(std::min(group_, kQueries)) {
    uint64_t total = 0;
    Bundle bundle;
    for (uint32_t token = 0; next_bundle(token, &bundle); token = bundle.end_token) {
        total += bundle.cost;
    }
    fair_cost_ = thread_count > 1 ? total / (kWorksPerThread * thread_count) : UINT64_MAX;
}

// Returns the end of the bundle that begins at `token`: the tokens of its row, and of the following
// rows that each share a prefix with the row before, as many as fit in one tile.
uint32_t Sharing::end_of_bundle(uint32_t token) const {
    const int32_t *cu_q = array_at<const int32_t>(call_.args.cu_q);
    const auto *shared = array_at<const int32_t>(call_.args.shared_prefix);
    const int32_t *ends_end = cu_q + 1 + call_.args.row_count;
    const int32_t *end = std::upper_bound(cu_q + 1, ends_end, static_cast<int32_t>(token));
    uint32_t most = token + kQueries / queries_at_once_;
    for (; end != ends_end; ++end) {
        if (static_cast<uint32_t>(*end) >= most) return most;
        const int32_t *next = end + 1;
        bool is_shared = next != ends_end && shared != nullptr && shared[next - cu_q - 1] != 0;
        if (!is_shared) break;
    }
    return static_cast<uint32_t>(end != ends_end ? *end : *(ends_end - 1));
}

// Finds the chunks that the bundle's tokens see, and their cost.
void Sharing::look(Bundle *bundle) const {
    int64_t begin = INT64_MAX;
    int64_t end = 0;
    int64_t most = 0;  // positions that one token sees
    const int32_t *ends = array_at<const int32_t>(call_.args.cu_q) + 1;
    const int32_t *at = std::upper_bound(ends, ends + call_.args.row_count,
                                         static_cast<int32_t>(bundle->first_token));
    Row row = row_at(call_, static_cast<uint32_t>(at - ends));
    for (uint32_t token = bundle->first_token; token < bundle->end_token; ++token) {
        while (token >= row.end_token) row = row_at(call_, row.index + 1);
        Sight sight = sight_of(call_, row, token);
        if (sight.sink_end > 0) begin = 0;
        if (sight.begin < sight.end) begin = std::min(begin, sight.begin);
        end = std::max({end, sight.end, sight.sink_end});
        most = std::max(most, sight.end - sight.begin + sight.sink_end);
    }
    begin = std::min(begin, end);
    bundle->first_chunk = static_cast<uint32_t>(begin / kChunkTokens);
    bundle->end_chunk = static_cast<uint32_t>((end + kChunkTokens - 1) / kChunkTokens);
    bundle->queries = (bundle->end_token - bundle->first_token) * queries_at_once_;
    uint64_t chunks = static_cast<uint64_t>(std::max<int64_t>(most, 0)) / kChunkTokens + 1;
    uint64_t slices = ceil_div(group_, queries_at_once_);
    bundle->cost =
        chunks * std::max<uint64_t>(bundle->queries, kReadingCost) * call_.pool.kv_heads * slices;
}

// False if no token is left.
bool Sharing::next_bundle(uint32_t token, Bundle *bundle) const {
    const int32_t *cu_q = array_at<const int32_t>(call_.args.cu_q);
    bundle->first_token = std::max(token, static_cast<uint32_t>(cu_q[0]));
    if (bundle->first_token >= static_cast<uint32_t>(cu_q[call_.args.row_count])) return false;
    bundle->end_token = end_of_bundle(bundle->first_token);
    look(bundle);
    return true;
}

uint32_t Sharing::kv_heads_at_once(const Bundle &bundle) const {
    if (bundle.queries > kFewQueries) return 1;
    uint32_t tokens = bundle.end_token - bundle.first_token;
    uint32_t most = kv_heads_in_scratch(call_, tokens, queries_at_once_);
    return std::clamp(most, 1u, call_.pool.kv_heads);
}

// False if the bundle is not large, or there is no room for its works or their states.
bool Sharing::split(const Bundle &bundle, WorkList *list) {
    uint32_t chunks = bundle.end_chunk - bundle.first_chunk;
    if (bundle.cost <= fair_cost_ || chunks < 2) return false;
    uint32_t heads = kv_heads_at_once(bundle);
    uint32_t slices = ceil_div(group_, queries_at_once_);
    uint64_t wanted = bundle.cost / std::max<uint64_t>(fair_cost_, 1) + 1;
    uint64_t by_heads = uint64_t{ceil_div(call_.pool.kv_heads, heads)} * slices;
    if (wanted <= by_heads) return false;
    auto parts = static_cast<uint32_t>(std::min<uint64_t>(chunks, wanted / by_heads + 1));
    if (parts == chunks && wanted > by_heads * parts && heads > 1) {
        uint64_t more = wanted / (by_heads * parts) + 1;
        heads = std::max<uint32_t>(1, static_cast<uint32_t>(heads / more));
    }
    uint32_t tokens = bundle.end_token - bundle.first_token;
    uint64_t floats =
        uint64_t{chunks} * tokens * call_.plan->q_heads * ChunkStates::floats_each(call_);
    uint64_t works = uint64_t{parts} * ceil_div(call_.pool.kv_heads, heads) * slices;
    if (list->split_count == WorkList::kSplits || works > WorkList::kWorks - list->work_count ||
        floats > WorkList::kStateFloats - used_floats_) {
        return false;
    }
    ChunkStates states = {list->states + used_floats_, bundle.first_chunk};
    used_floats_ += floats;
    list->splits[list->split_count++] = {bundle.first_token, tokens, bundle.first_chunk,
                                         bundle.end_chunk, states};
    for (uint32_t part = 0; part < parts; ++part) {
        auto first = static_cast<uint32_t>(uint64_t{chunks} * part / parts);
        auto end = static_cast<uint32_t>(uint64_t{chunks} * (part + 1) / parts);
        for (uint32_t head = 0; head < call_.pool.kv_heads; head += heads) {
            for (uint32_t query = 0; query < group_; query += queries_at_once_) {
                list->works[list->work_count++] = {bundle.first_token,
                                                   bundle.end_token,
                                                   head,
                                                   std::min(head + heads, call_.pool.kv_heads),
                                                   query,
                                                   std::min(queries_at_once_, group_ - query),
                                                   bundle.first_chunk + first,
                                                   bundle.first_chunk + end,
                                                   states};
            }
        }
    }
    return true;
}

// False if the list is full before the bundle's last work; the next list continues there.
bool Sharing::add_whole(const Bundle &bundle, WorkList *list) {
    uint32_t heads = kv_heads_at_once(bundle);
    for (; next_kv_head_ < call_.pool.kv_heads; next_kv_head_ += heads) {
        for (; next_query_ < group_; next_query_ += queries_at_once_) {
            if (list->work_count == WorkList::kWorks) return false;
            list->works[list->work_count++] = {
                bundle.first_token, bundle.end_token,
                next_kv_head_,      std::min(next_kv_head_ + heads, call_.pool.kv_heads),
                next_query_,        std::min(queries_at_once_, group_ - next_query_),
                bundle.first_chunk, bundle.end_chunk,
                ChunkStates{}};
        }
        next_query_ = 0;
    }
    next_kv_head_ = 0;
    return true;
}

bool Sharing::fill(WorkList *list) {
    list->work_count = 0;
    list->split_count = 0;
    used_floats_ = 0;
    Bundle bundle;
    while (next_bundle(token_, &bundle)) {
        bool is_begun = next_kv_head_ != 0 || next_query_ != 0;
        if (is_begun || !split(bundle, list)) {
            if (!add_whole(bundle, list)) return true;
        }
        token_ = bundle.end_token;
    }
    return list->work_count != 0;
}

}  // namespace quire::cpu
