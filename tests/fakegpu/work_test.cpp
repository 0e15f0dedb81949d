// SPDX-License-Identifier: Apache-2.0
//
// Work lists: whatever a batch's rows, windows and rounds, each chunk that a token sees is in the
// list once, and states of chunks do not overlap; results do not depend on how many rounds and
// blocks a call has, nor on how wide units are, nor on whatever else is in a token's row or batch,
// where chunks become longer too.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "device_array.hpp"
#include "kernels/decode.hpp"
#include "work_shape.hpp"

#include "kernels/items.cu"
#include "kernels/rows.cu"

namespace quire::gpu {

namespace {

constexpr uint32_t kDim = 64, kBlockTokens = 16, kQueueWords = 64;

QUIRE_KERNEL(test_decode, 128, AttendCall, call) { decode<kBf16, kDim, kNarrowQueries>(call); }
QUIRE_KERNEL(test_decode_wide, 128, AttendCall, call) { decode<kBf16, kDim, kWideQueries>(call); }

// A random batch of rows with random K and V, full or with a window and sink tokens.
struct Batch {
    explicit Batch(uint32_t seed) : dice(seed) {
        ends.push_back(roll(2) == 0 ? roll(3) : 0);
        for (uint32_t rows = roll(5) + 1; rows > 0; --rows) {
            uint32_t tokens = roll(2) == 0 ? roll(40) : roll(2);
            ends.push_back(ends.back() + tokens);
            lengths.push_back(tokens + (roll(1) == 0 ? roll(2200) : roll(600)));
        }
        const uint32_t groups[] = {1, 2, 3, 4, 8, 16};
        describe(groups[roll(5)], roll(1) + 1, 2240);
        call.query_tokens = std::max(ends.back() + roll(2), 1u);
        call.options = kDecodes | kWideRows | kWideScales;
        if (roll(1) == 0) {
            call.options |= kWindow;
            call.window = static_cast<int32_t>(roll(900) + 1);
            call.sink_tokens = static_cast<int32_t>(roll(1) * roll(700));
        }
    }
    // Rows of one sequence: how many tokens each has, and how many keys its last one sees.
    explicit Batch(const std::vector<std::pair<uint32_t, uint32_t>> &rows) : is_one_sequence(true) {
        ends.push_back(0);
        for (const auto &[tokens, keys] : rows) {
            ends.push_back(ends.back() + tokens);
            lengths.push_back(keys);
        }
        describe(4, 1, 8200);
        call.query_tokens = ends.back();
        call.options = kDecodes | kWideRows | kWideScales;
    }

    uint32_t roll(uint32_t most) { return static_cast<uint32_t>(dice() % (most + 1)); }

    // The keys that each token sees, itself included; 0: it has no row.
    std::vector<uint32_t> keys_of_tokens() const {
        std::vector<uint32_t> keys(call.query_tokens);
        for (uint32_t row = 0; row < call.row_count; ++row) {
            for (uint32_t token = ends[row]; token < ends[row + 1]; ++token) {
                keys[token] = lengths[row] - ends[row + 1] + token + 1;
            }
        }
        return keys;
    }

    bool is_one_sequence = false;
    std::mt19937 dice;
    std::vector<uint32_t> ends;  // cu_q
    std::vector<uint32_t> lengths;
    AttendCall call{};

 private:
    void describe(uint32_t heads_per_kv, uint32_t kv_heads, uint32_t most_keys) {
        call.heads_per_kv = heads_per_kv;
        call.kv_heads = kv_heads;
        call.q_heads = heads_per_kv * kv_heads;
        call.heads_inverse = (65536 + heads_per_kv - 1) / heads_per_kv;
        call.unit_queries = heads_per_kv > kNarrowQueries ? kWideQueries : kNarrowQueries;
        call.row_count = call.most_rows = static_cast<uint32_t>(lengths.size());
        call.k_dim = call.v_dim = kDim;
        call.q_format = call.k_format = call.v_format = kBf16;
        call.block_tokens = kBlockTokens;
        call.block_table_stride = (most_keys + kBlockTokens) / kBlockTokens;
        call.block_count = call.block_table_stride * (is_one_sequence ? 1 : call.row_count);
        call.chunk_count = decode_chunk_count(most_keys);
        call.scale = 0.2f;
    }
};

// A batch in the emulated GPU's memory.
class World {
 public:
    explicit World(Batch &batch)
        : call_(batch.call),
          cu_q_(batch.ends),
          lengths_(batch.lengths),
          table_(call_.block_table_stride * call_.row_count),
          queue_(kQueueWords),
          q_(uint64_t{call_.query_tokens} * call_.q_heads * kDim / 2),
          out_(uint64_t{call_.query_tokens} * call_.q_heads * kDim / 2),
          lse_(uint64_t{call_.query_tokens} * call_.q_heads),
          pool_(uint64_t{call_.block_count} * kBlockTokens * call_.kv_heads * kDim) {
        std::fill_n(queue_.host(), kQueueWords, 0u);
        std::mt19937 dice(1);
        for (uint32_t i = 0; i < call_.block_count; ++i) table_.host()[i] = i;
        std::shuffle(table_.host(), table_.host() + call_.block_count, dice);
        for (uint32_t row = 1; batch.is_one_sequence && row < call_.row_count; ++row) {
            std::copy_n(table_.host(), call_.block_count,
                        table_.host() + row * call_.block_table_stride);
        }
        fill(pool_.host(), pool_.bytes / 4, dice);
        std::vector<uint32_t> keys = batch.keys_of_tokens();
        for (uint32_t token = 0; token < call_.query_tokens; ++token) {
            std::mt19937 of_token(keys[token]);
            fill(q_.host() + size_t{token} * row_words(), row_words(), of_token);
        }
        int64_t side = int64_t{kBlockTokens} * kDim * 2;
        call_.cu_q = cu_q_.address;
        call_.lengths = lengths_.address;
        call_.block_table = table_.address;
        call_.q = q_.address;
        call_.out = out_.address;
        call_.lse = lse_.address;
        call_.pool = pool_.address;
        call_.q_stride = call_.out_stride = int64_t{call_.q_heads} * kDim;
        call_.k_token_stride = call_.v_token_stride = int64_t{kDim} * 2;
        call_.k_head_stride = call_.v_head_stride = side;
        call_.v_offset = side * call_.kv_heads;
        call_.block_stride = 2 * call_.v_offset;
        call_.head.fault = queue_.address;
        call_.head.record = queue_.address + 64;
    }

    // Makes lists of this many tokens and attends, in rounds of this many states of a KV head.
    void run(uint32_t list_tokens, uint32_t round_states, uint32_t blocks) {
        round_states_ = round_states;
        std::fill_n(out_.host(), out_.bytes / 4, 0u);
        std::fill_n(lse_.host(), lse_.bytes / 4, 0u);
        for (uint32_t first = 0; first < call_.query_tokens; first += list_tokens) {
            call_.first_token = first;
            call_.end_token = std::min(first + list_tokens, call_.query_tokens);
            make_list();
            look_at_list();
            for (call_.round = 0; call_.round < call_.round_count; ++call_.round) {
                bool is_narrow = call_.unit_queries == kNarrowQueries;
                launch(is_narrow ? "test_decode" : "test_decode_wide", blocks, 128);
            }
        }
    }
    std::vector<uint32_t> result() {
        std::vector<uint32_t> all(out_.host(), out_.host() + out_.bytes / 4);
        all.insert(all.end(), lse_.host(), lse_.host() + lse_.bytes / 4);
        return all;
    }
    // A token's result alone.
    std::vector<uint32_t> result_of(uint32_t token) {
        const uint32_t *out = out_.host() + size_t{token} * row_words();
        const uint32_t *lse = lse_.host() + size_t{token} * call_.q_heads;
        std::vector<uint32_t> all(out, out + row_words());
        all.insert(all.end(), lse, lse + call_.q_heads);
        return all;
    }
    // Tokens share a unit of this many queries.
    void set_unit_queries(uint32_t queries) { call_.unit_queries = queries; }
    // How often each chunk that a token sees was in a list.
    std::map<std::pair<int32_t, uint32_t>, uint32_t> listed;
    // Tokens of units that see nothing.
    std::set<int32_t> empty;
    uint32_t most_rounds = 0;

 private:
    size_t row_words() const { return size_t{call_.q_heads} * kDim / 2; }
    static void fill(uint32_t *words, size_t count, std::mt19937 &dice) {
        for (size_t i = 0; i < count; ++i) {
            auto random = static_cast<uint32_t>(dice());
            words[i] = (random & 0x807F807Fu) | 0x3F003F00u;  // of size 1/2 to 1
        }
    }
    void launch(const char *kernel, uint32_t groups, uint32_t threads) {
        call_.head.group_count = groups;
        fakegpu::Launch launch = {fakegpu::find_kernel(kernel), &call_, groups, 1, 32};
        launch.asked_bytes = threads == 128 ? kDecodeSharedBytes<kBf16, kDim> : 0;
        ASSERT_EQ(fakegpu::run(launch), "");
        ASSERT_EQ(queue_.host()[0], 0u) << "a fault";
    }
    void make_list() {
        uint64_t tokens = call_.end_token - call_.first_token;
        uint64_t states = tokens * call_.heads_per_kv * call_.chunk_count;
        call_.round_states = round_states_;
        call_.round_count = static_cast<uint32_t>((states + round_states_ - 1) / round_states_);
        states = (round_states_ + kFragmentQueries * call_.chunk_count) * call_.kv_heads;
        tickets_.emplace(call_.query_tokens * call_.kv_heads);
        row_works_.emplace(call_.row_count * 4);
        begins_.emplace(call_.round_count + 1);
        items_.emplace(tokens * call_.chunk_count * 8);
        states_.emplace(states * 2);
        values_.emplace(states * kDim);
        call_.tickets = tickets_->address;
        call_.row_works = row_works_->address;
        call_.round_begins = begins_->address;
        call_.items = items_->address;
        call_.states = states_->address;
        call_.values = values_->address;
        launch("quire_rows", call_.row_count, 64);
        launch("quire_items", call_.row_count, 64);
    }
    void look_at_list() {
        const uint32_t *begins = begins_->host();
        ASSERT_EQ(begins[0], 0u);
        for (uint32_t round = 0; round < call_.round_count; ++round) {
            ASSERT_LE(begins[round], begins[round + 1]);
            if (begins[round] != begins[round + 1]) most_rounds = std::max(most_rounds, round + 1);
            look_at_round(begins[round], begins[round + 1]);
        }
    }
    void look_at_round(uint32_t begin, uint32_t end) {
        std::set<uint32_t> used;
        for (uint32_t i = begin; i < end; ++i) {
            const uint32_t *item = items_->host() + size_t{i} * 8;
            auto first = static_cast<int32_t>(item[0]);
            uint32_t row = item[1], chunk = item[2] & 0xFFFFFF, tokens = item[2] >> 24;
            EXPECT_EQ(item[4], lengths_.host()[row]);
            EXPECT_EQ(item[5], cu_q_.host()[row]);
            EXPECT_EQ(item[6], cu_q_.host()[row + 1]);
            EXPECT_LE(tokens * call_.heads_per_kv, call_.unit_queries);
            for (uint32_t t = 0; t < tokens; ++t) {
                ++listed[{first + static_cast<int32_t>(t), chunk}];
            }
            bool is_alone = is_only_one(i, begin, end);
            for (uint32_t m = 0; m < tokens * call_.heads_per_kv && !is_alone; ++m) {
                EXPECT_TRUE(used.insert(item[3] + m).second) << "states overlap";
                EXPECT_LT(item[3] + m, round_states_ + kFragmentQueries * call_.chunk_count);
            }
        }
    }
    // True if the item's unit has no other.
    bool is_only_one(uint32_t i, uint32_t begin, uint32_t end) {
        auto first_of = [&](uint32_t index) { return items_->host()[size_t{index} * 8]; };
        bool has_before = i > begin && first_of(i - 1) == first_of(i);
        return !has_before && (i + 1 == end || first_of(i + 1) != first_of(i));
    }

    AttendCall call_;
    uint32_t round_states_ = 0;
    DeviceArray cu_q_, lengths_, table_, queue_, q_, out_, lse_, pool_;
    std::optional<DeviceArray> tickets_, row_works_, begins_, items_, states_, values_;
};

// The chunks that each token sees, key by key.
std::set<std::pair<int32_t, uint32_t>> seen_in(const Batch &batch) {
    std::set<std::pair<int32_t, uint32_t>> seen;
    for (uint32_t row = 0; row < batch.call.row_count; ++row) {
        auto end = static_cast<int32_t>(batch.ends[row + 1]);
        auto length = static_cast<int32_t>(batch.lengths[row]);
        for (auto token = static_cast<int32_t>(batch.ends[row]); token < end; ++token) {
            int32_t position = length - end + token;
            int32_t length_of_chunk = position < 2048 ? 512 : position < 8192 ? 1024 : 2048;
            for (int32_t key = 0; key <= position; ++key) {
                bool in_window = (batch.call.options & kWindow) == 0 ||
                                 key > position - batch.call.window || key < batch.call.sink_tokens;
                if (in_window) seen.insert({token, static_cast<uint32_t>(key / length_of_chunk)});
            }
        }
    }
    return seen;
}

void expect_each_once(const Batch &batch, const World &world, uint32_t seed) {
    auto seen = seen_in(batch);
    for (const auto &one : seen) {
        auto found = world.listed.find(one);
        ASSERT_TRUE(found != world.listed.end() && found->second == 1)
            << "seed " << seed << ": token " << one.first << ", chunk " << one.second;
    }
    for (const auto &[one, count] : world.listed) EXPECT_EQ(count, 1u) << "seed " << seed;
}

}  // namespace

TEST(Work, of_any_batch_is_listed_once_and_its_rounds_change_no_bit) {
    uint32_t most_rounds = 0;
    for (uint32_t seed = 1; seed <= 8 && !testing::Test::HasFailure(); ++seed) {
        Batch batch(seed);
        World world(batch);
        world.run(UINT32_MAX / 2, 1 << 20, 64);
        expect_each_once(batch, world, seed);
        std::vector<uint32_t> whole = world.result();
        const uint32_t kLists[] = {1000, 1000, 7};
        const uint32_t kStates[] = {1, 61, 200};
        for (uint32_t i = 0; i < 3; ++i) {
            world.run(kLists[i], kStates[i], i + 1);
            EXPECT_EQ(world.result(), whole) << "seed " << seed << ", way " << i;
        }
        world.set_unit_queries(kWideQueries);
        world.run(1000, 61, 3);
        EXPECT_EQ(world.result(), whole) << "seed " << seed << ", wide";
        most_rounds = std::max(most_rounds, world.most_rounds);
    }
    EXPECT_GT(most_rounds, 20u);
}

// A token of 2,048 or 8,192 keys, and the next one, which has longer chunks: alone, in a batch,
// among the last tokens of a prompt and among speculated ones, in few rounds and in many.
TEST(Work, gives_a_token_the_same_bits_beside_any_other_where_chunks_become_longer) {
    std::map<uint32_t, std::vector<uint32_t>> results;  // by keys
    uint32_t compared = 0;
    auto attend = [&](const std::vector<std::pair<uint32_t, uint32_t>> &rows, uint32_t queries,
                      uint32_t round_states) {
        Batch batch(rows);
        World world(batch);
        world.set_unit_queries(queries);
        world.run(1000, round_states, 5);
        expect_each_once(batch, world, queries);
        std::vector<uint32_t> keys = batch.keys_of_tokens();
        for (uint32_t token = 0; token < keys.size(); ++token) {
            auto [first, is_new] = results.try_emplace(keys[token], world.result_of(token));
            EXPECT_EQ(first->second, world.result_of(token))
                << keys[token] << " keys, units of " << queries << ", " << rows.size() << " rows";
            compared += is_new ? 0 : 1;
        }
    };
    for (uint32_t keys : {2048u, 2049u, 8192u, 8193u}) attend({{1, keys}}, kNarrowQueries, 1 << 20);
    attend({{1, 8193}, {1, 2048}, {1, 8192}, {1, 2049}}, kNarrowQueries, 1);
    attend({{1, 40}, {4, 2050}, {5, 8195}}, kNarrowQueries, 30);
    attend({{5, 8195}, {4, 2050}}, kWideQueries, 1 << 20);
    attend({{17, 2048}, {10, 2049}, {9, 8192}}, kWideQueries, 7);
    attend({{7, 8193}}, kWideQueries, 1 << 20);
    EXPECT_GE(compared, 30u);
}

// As the device counts, and at least what any shorter row has.
TEST(Work, has_room_for_the_most_chunks_of_a_row) {
    uint32_t most = 1;
    for (int32_t keys = 1; keys <= 20000; ++keys) {
        uint32_t of_token = static_cast<uint32_t>(count_of(chunks_of({0, 0, keys})));
        most = std::max(most, of_token);
        ASSERT_EQ(most_chunks(keys), most) << keys;
        ASSERT_EQ(decode_chunk_count(static_cast<uint64_t>(keys)), most) << keys;
    }
    EXPECT_EQ(decode_chunk_count(kMostKeys), (uint64_t{kMostKeys} + 2047) / 2048);
}

TEST(Work, is_wide_where_rows_fill_wide_units) {
    auto queries_of = [](uint32_t heads, uint32_t tokens, uint32_t rows) {
        AttendCall call{};
        call.heads_per_kv = heads;
        call.query_tokens = tokens;
        call.row_count = rows;
        return unit_queries_of(call);
    };
    EXPECT_EQ(queries_of(8, 32, 32), kNarrowQueries);
    EXPECT_EQ(queries_of(9, 32, 32), kWideQueries);
    EXPECT_EQ(queries_of(4, 64, 32), kNarrowQueries);
    EXPECT_EQ(queries_of(4, 65, 32), kWideQueries);
    EXPECT_EQ(queries_of(1, 8, 1), kNarrowQueries);
    EXPECT_EQ(queries_of(1, 2048, 1), kWideQueries);
}

// A queue's scratch memory is sized for its plans, and does not grow while a graph is captured.
TEST(Work, wants_no_more_scratch_memory_than_its_plan) {
    std::mt19937 dice(2);
    auto roll = [&](uint32_t most) { return static_cast<uint32_t>(dice() % most) + 1; };
    for (int i = 0; i < 5000; ++i) {
        quire_be_plan_desc desc{};
        uint32_t of_kv = roll(16);
        desc.shape.kv_heads = roll(16);
        desc.shape.q_heads = desc.shape.kv_heads * of_kv;
        desc.shape.v_head_dim = 128;
        desc.shape.block_tokens = kChunkPlaces;
        desc.max_blocks_per_row = roll(roll(4000));
        desc.max_query_tokens = roll(roll(9000));
        desc.max_rows = roll(300);
        AttendCall call{};
        call.kv_heads = desc.shape.kv_heads;
        call.heads_per_kv = of_kv;
        call.v_dim = 128;
        call.query_tokens = roll(desc.max_query_tokens);
        call.row_count = roll(desc.max_rows);
        call.chunk_count =
            decode_chunk_count(uint64_t{roll(desc.max_blocks_per_row)} * kChunkPlaces);
        call.unit_queries = unit_queries_of(call);
        WorkShape shape = work_shape_of(call);
        EXPECT_LE(shape.bytes(), decode_scratch_bytes_of(desc))
            << call.query_tokens << " of " << desc.max_query_tokens << " tokens, "
            << call.chunk_count << " of " << desc.max_blocks_per_row << " chunks";
        for (uint64_t bytes : {shape.ticket_bytes, shape.row_bytes, shape.begin_bytes,
                               shape.item_bytes, shape.state_bytes}) {
            EXPECT_EQ(bytes % 16, 0u) << "what comes next is stored in vectors";
        }
        EXPECT_GE(uint64_t{shape.round_count} * shape.round_states,
                  call.chunk_count == 1 ? 1 : uint64_t{shape.tokens} * of_kv * call.chunk_count);
    }
}

}  // namespace quire::gpu
