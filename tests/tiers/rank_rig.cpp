// SPDX-License-Identifier: Apache-2.0

#include "tests/tiers/rank_rig.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace quire::test {

namespace {

// For each token up to the end, a number that follows from all tokens up to it.
std::vector<uint64_t> chain(const Tokens &tokens, uint64_t seed) {
    std::vector<uint64_t> rows;
    uint64_t row = seed;
    for (size_t i = 0; i < tokens.size(); ++i) {
        row = (row ^ tokens[i]) * 0xD6E8FEB86659FD93u + i;
        rows.push_back(row);
    }
    return rows;
}

// A number for one element of a token's K or V in a layer and KV head.
float element(uint64_t row, uint32_t group, uint32_t layer, uint32_t head, uint32_t i) {
    uint64_t x =
        row ^ (uint64_t{group} << 60) ^ (uint64_t{layer} << 48) ^ (uint64_t{head} << 36) ^ i;
    x *= 0x9E3779B97F4A7C15u;
    return static_cast<float>((x >> 40) % 65'536);
}

void fill(float *out, uint64_t row, uint32_t group, uint32_t layer, uint32_t head, uint32_t side) {
    for (uint32_t k = 0; k < Rank::kDim; ++k)
        out[k] = element(row, group, layer, head, side * Rank::kDim + k);
}

}  // namespace

Rank::Rank(quire_instance *of, const RanksShape &ranks, uint32_t rank)
    : instance(of), number(rank), shape(ranks) {
    error.struct_size = sizeof error;
    std::vector<quire_shard_desc> shards;
    for (const Cut &cut : shape.ranks[rank]) {
        auto desc = described<quire_device_desc>();
        desc.backend = "cpu";
        desc.threads = 2;
        quire_device *device = nullptr;
        EXPECT_EQ(api.device_open(instance, &desc, &device, &error), QUIRE_OK) << error.message;
        devices.push_back(device);
        quire_queue *queue = nullptr;
        EXPECT_EQ(api.queue_create(device, nullptr, &queue, &error), QUIRE_OK) << error.message;
        queues.push_back(queue);
        auto shard = described<quire_shard_desc>();
        shard.device = device;
        shard.layer_begin = cut.layer_begin;
        shard.layer_count = cut.layer_count;
        shard.head_begin = cut.head_begin;
        shard.head_count = cut.head_count;
        shards.push_back(shard);
    }
    quire_group_desc groups[2] = {described<quire_group_desc>(), described<quire_group_desc>()};
    for (quire_group_desc &group : groups) {
        group.kv_heads = shape.heads;
        group.k_head_dim = group.v_head_dim = kDim;
        group.k_dtype = QUIRE_DTYPE_F32;
    }
    groups[0].layer_count = shape.layers;
    groups[1].layer_count = 1;
    groups[1].kind = QUIRE_GROUP_WINDOW;
    groups[1].window = shape.window;
    std::vector<uint32_t> layer_groups(shape.layers, 0);
    if (shape.window != 0) layer_groups.push_back(1);
    auto desc = described<quire_cache_desc>();
    desc.groups = groups;
    desc.group_count = shape.window != 0 ? 2 : 1;
    desc.group_stride = sizeof groups[0];
    desc.layer_groups = layer_groups.data();
    desc.shards = shards.data();
    desc.shard_count = static_cast<uint32_t>(shards.size());
    desc.shard_stride = sizeof shards[0];
    desc.flags = QUIRE_CACHE_FOLLOWER;
    if (rank == 0) desc.flags = QUIRE_CACHE_LOG | shape.leader_flags;
    desc.blocks = shape.blocks;
    desc.host_blocks = shape.host_blocks;
    desc.block_tokens = kBlockTokens;
    desc.max_sequences = 32;
    EXPECT_EQ(api.cache_create(instance, &desc, &cache, &error), QUIRE_OK) << error.message;
}

Rank::~Rank() {
    EXPECT_EQ(wrong_rows, 0u) << "rank " << number;
    sync();
    if (attached) {
        if (stub != nullptr) stub->reset();
        EXPECT_EQ(detach(), QUIRE_OK) << error.message;
    }
    close_store();
    EXPECT_EQ(api.cache_destroy(cache, &error), QUIRE_OK) << error.message;
    for (quire_queue *queue : queues) {
        EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK) << error.message;
    }
    for (quire_device *device : devices) {
        EXPECT_EQ(api.device_close(device, &error), QUIRE_OK) << error.message;
    }
}

void Rank::open_store(const char *name) {
    const std::string path = quire::tests::place(QUIRE_STUB_STORE_PATH);
    const std::string own(1, static_cast<char>('0' + number));
    std::vector<quire_store_option> options = {{"capacity", "16MiB"}};
    if (name == nullptr) options.push_back({"stub", own.c_str()});
    auto desc = described<quire_tier_desc>();
    desc.store = name != nullptr ? name : path.c_str();
    desc.options = options.data();
    desc.option_count = static_cast<uint32_t>(options.size());
    desc.option_stride = sizeof(quire_store_option);
    ASSERT_EQ(api.tier_open(instance, &desc, &tier, &error), QUIRE_OK) << error.message;
    if (name != nullptr) return;
    void *plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(plugin, nullptr) << dlerror();
    void *symbol = dlsym(plugin, "quire_stub_control");
    ASSERT_NE(symbol, nullptr);
    stub = reinterpret_cast<StubControl *(*)()>(symbol)() + number;
    stub->reset();
    stub->gets = 0;
    stub->finds = 0;
}

void Rank::close_store() {
    if (stub != nullptr) stub->reset();
    if (tier == nullptr) return;
    EXPECT_EQ(api.tier_close_wait(tier, UINT64_MAX, &error), QUIRE_OK) << error.message;
    tier = nullptr;
    stub = nullptr;
}

quire_status Rank::attach(uint32_t write) {
    auto desc = described<quire_cache_tier_desc>();
    desc.fingerprint[0] = 1;
    desc.write = write;
    desc.load_timeout_ns = load_timeout_ns;
    desc.load_expiry_ns = UINT64_MAX / 4;
    desc.max_write_bytes = max_write_bytes;
    desc.followers = number == 0 ? static_cast<uint32_t>(shape.ranks.size() - 1) : 0;
    quire_status status = api.cache_attach_tier(cache, tier, &desc, &error);
    attached = attached || status == QUIRE_OK;
    return status;
}

void Rank::sync() {
    for (quire_queue *queue : queues) {
        EXPECT_EQ(api.queue_sync(queue, &error), QUIRE_OK) << error.message;
    }
}

// Writes what the row's tokens [begin, end) are here, or counts those that differ.
void Rank::each_row(quire_step step, const Sent::Row &row, uint32_t begin, uint32_t end,
                    bool writes) {
    const std::vector<uint64_t> rows = chain(row.tokens, row.seed);
    for (uint32_t g = 0; g < (shape.window != 0 ? 2u : 1u); ++g) {
        std::vector<int32_t> ids(1'024);
        uint32_t count = 0;
        ASSERT_EQ(api.step_blocks(cache, step, row.seq, g, 0, ids.data(), 1'024, &count, &error),
                  QUIRE_OK)
            << error.message;
        for (uint32_t s = 0; s < queues.size(); ++s) {
            auto pool = described<quire_pool_info>();
            ASSERT_EQ(api.cache_get_pool(cache, g, s, &pool, &error), QUIRE_OK);
            for (uint32_t i = begin; i < end; ++i) {
                const int32_t block = ids[i / kBlockTokens];
                if (block == 0) continue;  // its window has passed
                if (!writes && g == 1 && i + shape.window <= end) continue;
                for (uint32_t n = 0; n < pool.layer_count * pool.head_count * 2; ++n) {
                    const uint32_t layer = n / 2 / pool.head_count;
                    const uint32_t head = n / 2 % pool.head_count, side = n % 2;
                    float want[kDim];
                    fill(want, rows[i], g, pool.layer_begin + layer, pool.head_begin + head, side);
                    auto *at = reinterpret_cast<char *>(pool.address) + block * pool.block_stride +
                               layer * pool.layer_stride + (side == 0 ? 0 : pool.v_offset) +
                               head * (side == 0 ? pool.k_head_stride : pool.v_head_stride) +
                               (i % kBlockTokens) *
                                   (side == 0 ? pool.k_token_stride : pool.v_token_stride);
                    if (writes) {
                        std::memcpy(at, want, sizeof want);
                    } else {
                        wrong_rows += std::memcmp(at, want, sizeof want) != 0;
                    }
                }
            }
        }
    }
}

void Rank::compute(quire_step step, const std::vector<Sent::Row> &rows) {
    for (const Sent::Row &row : rows)
        each_row(step, row, row.first, static_cast<uint32_t>(row.tokens.size()), true);
    for (const Sent::Row &row : rows) each_row(step, row, 0, row.first, false);
}

void Rank::migrate(uint32_t flags) {
    auto desc = described<quire_migrate_desc>();
    std::vector<quire_shard_desc> shards;
    std::vector<quire_queue *> left = queues;
    queues.clear();
    for (const Cut &cut : shape.ranks[number]) {
        auto device_desc = described<quire_device_desc>();
        device_desc.backend = "cpu";
        device_desc.threads = 2;
        quire_device *device = nullptr;
        ASSERT_EQ(api.device_open(instance, &device_desc, &device, &error), QUIRE_OK);
        devices.push_back(device);
        quire_queue *queue = nullptr;
        ASSERT_EQ(api.queue_create(device, nullptr, &queue, &error), QUIRE_OK);
        queues.push_back(queue);
        auto shard = described<quire_shard_desc>();
        shard.device = device;
        shard.layer_begin = cut.layer_begin;
        shard.layer_count = cut.layer_count;
        shard.head_begin = cut.head_begin;
        shard.head_count = cut.head_count;
        shards.push_back(shard);
    }
    desc.flags = flags;
    desc.shards = shards.data();
    desc.shard_count = static_cast<uint32_t>(shards.size());
    desc.shard_stride = sizeof shards[0];
    auto info = described<quire_migrate_info>();
    ASSERT_EQ(api.cache_migrate_wait(cache, &desc, &info, UINT64_MAX, &error), QUIRE_OK)
        << error.message;
    for (quire_queue *queue : left) {
        ASSERT_EQ(api.queue_destroy(queue, &error), QUIRE_OK) << error.message;
    }
}

quire_status Rank::try_apply(const Bytes &log) {
    auto desc = described<quire_step_desc>();
    desc.queues = queues.data();
    desc.queue_count = static_cast<uint32_t>(queues.size());
    return api.log_apply(cache, log.data(), log.size(), &desc, nullptr, &applied, &error);
}

bool Rank::apply() {
    if (logs.empty()) return false;
    const Sent sent = logs.front();
    logs.pop_front();
    EXPECT_EQ(try_apply(sent.log), QUIRE_OK) << error.message;
    sync();
    compute(applied, sent.rows);
    EXPECT_EQ(api.step_finish(cache, applied, nullptr, QUIRE_STEP_OK, &error), QUIRE_OK)
        << error.message;
    sync();
    check();
    return true;
}

Bytes Rank::report() {
    uint64_t size = 0;
    quire_status asked = api.cache_report_loads(cache, nullptr, 0, &size, &error);
    EXPECT_GE(asked, 0) << error.message;
    if (asked == QUIRE_OK) {
        EXPECT_EQ(size, 0u);
        return {};
    }
    EXPECT_EQ(asked, QUIRE_S_INCOMPLETE);
    Bytes bytes(size + 64 * 16);  // more may have ended meanwhile
    EXPECT_EQ(api.cache_report_loads(cache, bytes.data(), bytes.size(), &size, &error), QUIRE_OK)
        << error.message;
    bytes.resize(size);
    return bytes;
}

quire_cache_tier_progress Rank::poll() {
    auto progress = described<quire_cache_tier_progress>();
    EXPECT_EQ(api.cache_poll_tier(cache, &progress, &error), QUIRE_OK) << error.message;
    return progress;
}

quire_cache_tier_stats Rank::stats() {
    auto stats = described<quire_cache_tier_stats>();
    EXPECT_EQ(api.cache_get_tier_stats(cache, &stats, &error), QUIRE_OK) << error.message;
    return stats;
}

Ranks::Ranks(const RanksShape &shape) {
    error.struct_size = sizeof error;
    auto desc = described<quire_instance_desc>();
    EXPECT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK) << error.message;
    for (uint32_t i = 0; i < shape.ranks.size(); ++i)
        ranks.push_back(std::make_unique<Rank>(instance, shape, i));
}

Ranks::~Ranks() {
    ranks.clear();
    EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK) << error.message;
}

void Ranks::attach_all(uint32_t write) {
    for (const auto &rank : ranks) {
        if (rank->tier == nullptr) rank->open_store();
        EXPECT_EQ(rank->attach(write), QUIRE_OK) << rank->error.message;
    }
}

void Ranks::detach_all() {
    for (const auto &rank : ranks) {
        if (rank->stub != nullptr) rank->stub->reset();
    }
    if (leader().attached) {
        EXPECT_EQ(leader().detach(), QUIRE_OK) << leader().error.message;
    }
    empty_step();
    deliver_logs();
    for (size_t i = 0; i < follower_count(); ++i) {
        if (!follower(i).attached) continue;
        EXPECT_EQ(follower(i).detach(), QUIRE_OK) << follower(i).error.message;
    }
}

quire_namespace Ranks::tenant(const char *key) {
    auto desc = described<quire_namespace_desc>();
    desc.key = key;
    desc.key_size_bytes = static_cast<uint32_t>(std::strlen(key));
    quire_namespace ns = 0;
    EXPECT_EQ(api.namespace_create(leader().cache, &desc, &ns, &error), QUIRE_OK) << error.message;
    uint64_t seed = 1;
    for (const char *c = key; *c != 0; ++c) seed = seed * 131 + static_cast<uint64_t>(*c);
    tenants_[ns] = seed;
    return ns;
}

quire_seq Ranks::create(quire_namespace ns) {
    auto desc = described<quire_seq_desc>();
    desc.ns = ns;
    quire_seq seq = 0;
    EXPECT_EQ(api.seq_create(leader().cache, &desc, &seq, &error), QUIRE_OK) << error.message;
    known_[seq] = Known{{}, ns != 0 ? tenants_[ns] : 0};
    return seq;
}

void Ranks::end(quire_seq seq) {
    EXPECT_EQ(api.seq_end(leader().cache, seq, 0, &error), QUIRE_OK) << error.message;
    known_.erase(seq);
}

void Ranks::truncate(quire_seq seq, uint32_t count) {
    EXPECT_EQ(api.seq_truncate(leader().cache, seq, count, &error), QUIRE_OK) << error.message;
    of(seq).tokens.resize(count);
}

Ranks::Known &Ranks::of(quire_seq seq) { return known_.at(seq); }

quire_status Ranks::begin(const std::vector<Item> &items, uint32_t preempt) {
    std::vector<quire_step_item> list;
    Tokens tokens;
    for (const Item &item : items) {
        quire_step_item one{};
        one.seq = item.seq;
        one.token_offset = static_cast<uint32_t>(tokens.size());
        one.token_count = static_cast<uint32_t>(item.tokens.size());
        one.max_compute = item.max_compute;
        one.max_hit_tokens = item.max_hit_tokens;
        one.flags = item.flags;
        list.push_back(one);
        tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    }
    auto desc = described<quire_step_desc>();
    desc.queues = leader().queues.data();
    desc.queue_count = static_cast<uint32_t>(leader().queues.size());
    if (preempt != 0) {
        desc.flags = QUIRE_STEP_MAY_PREEMPT;
        desc.preempt = preempt;
    }
    results.assign(items.size(), quire_step_result{});
    quire_status status =
        api.step_begin(leader().cache, &desc, list.data(), static_cast<uint32_t>(list.size()),
                       sizeof(quire_step_item), tokens.data(), static_cast<uint32_t>(tokens.size()),
                       results.data(), sizeof(quire_step_result), &step, &error);
    if (status == QUIRE_OK) items_ = items;
    return status;
}

void Ranks::note_computed(const Sent::Row &row) {
    const uint32_t size = Rank::kBlockTokens;
    for (uint32_t end = size; end <= row.tokens.size(); end += size) {
        Tokens front(row.tokens.begin(), row.tokens.begin() + end);
        Tokens own(front.end() - size, front.end());
        auto &of = computed_[{end / size - 1, own}];
        const std::pair<uint64_t, Tokens> one{row.seed, front};
        if (std::find(of.begin(), of.end(), one) == of.end()) of.push_back(one);
    }
}

void Ranks::commit() {
    Sent sent;
    for (size_t i = 0; i < items_.size(); ++i) {
        const quire_step_result &r = results[i];
        if (r.outcome != QUIRE_ITEM_RUN) continue;
        Known &known = of(items_[i].seq);
        known.tokens.insert(known.tokens.end(), items_[i].tokens.begin(), items_[i].tokens.end());
        const uint32_t end = r.first_position + r.compute_count;
        sent.rows.push_back(Sent::Row{items_[i].seq, r.first_position,
                                      Tokens(known.tokens.begin(), known.tokens.begin() + end),
                                      known.seed});
    }
    ASSERT_EQ(api.step_commit(leader().cache, step, nullptr, &error), QUIRE_OK) << error.message;
    uint64_t size = 0;
    EXPECT_EQ(api.step_log(leader().cache, step, nullptr, 0, &size, &error), QUIRE_S_INCOMPLETE);
    sent.log.resize(size);
    ASSERT_EQ(api.step_log(leader().cache, step, sent.log.data(), size, &size, &error), QUIRE_OK);
    leader().sync();
    leader().compute(step, sent.rows);
    for (const Sent::Row &row : sent.rows) note_computed(row);
    for (size_t i = 0; i < follower_count(); ++i) follower(i).logs.push_back(sent);
}

void Ranks::finish(uint32_t outcome) {
    ASSERT_EQ(api.step_finish(leader().cache, step, nullptr, outcome, &error), QUIRE_OK)
        << error.message;
    leader().sync();
}

void Ranks::abort() {
    ASSERT_EQ(api.step_abort(leader().cache, step, &error), QUIRE_OK) << error.message;
}

void Ranks::deliver_logs() {
    for (size_t i = 0; i < follower_count(); ++i) {
        while (follower(i).apply()) {
        }
    }
}

void Ranks::deliver_reports() {
    for (size_t i = 0; i < follower_count(); ++i) {
        const Bytes report = follower(i).report();
        if (report.empty()) continue;
        EXPECT_EQ(api.cache_take_report(leader().cache, report.data(), report.size(), &error),
                  QUIRE_OK)
            << error.message;
        leader().check();
    }
}

void Ranks::empty_step() {
    ASSERT_EQ(begin({}), QUIRE_OK) << error.message;
    commit();
    finish();
}

quire_step_result Ranks::run(quire_seq seq, const Tokens &tokens, uint32_t flags) {
    const Tokens &known = of(seq).tokens;
    Tokens added(tokens.begin() + static_cast<ptrdiff_t>(known.size()), tokens.end());
    EXPECT_EQ(begin({Item{seq, added, flags, 0}}), QUIRE_OK) << error.message;
    check();
    commit();
    finish();
    deliver_logs();
    check();
    return results[0];
}

quire_step_result Ranks::run_to_the_end(quire_seq seq, const Tokens &tokens) {
    for (;;) {
        quire_step_result result = run(seq, tokens);
        if (result.outcome != QUIRE_ITEM_LOADING) return result;
        for (uint32_t i = 0; i < 100'000 && leader().poll().loads_running != 0; ++i)
            deliver_reports();
        EXPECT_EQ(leader().poll().loads_running, 0u);
        if (testing::Test::HasFailure()) return result;
    }
}

void Ranks::expect_found(const Tokens &prompt, uint32_t blocks) {
    quire_seq seq = create();
    const quire_step_result result = run_to_the_end(seq, prompt);
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(result.hit_tokens, blocks * Rank::kBlockTokens);
    EXPECT_EQ(wrong_rows(), 0u);
    end(seq);
}

void Ranks::compute(const Tokens &tokens, quire_namespace ns) {
    quire_seq seq = create(ns);
    EXPECT_EQ(run(seq, tokens, 0).outcome, uint32_t{QUIRE_ITEM_RUN});
    end(seq);
}

// A write is ordered once the leader begins it, told by the next step's log, and copied by then.
void Ranks::settle() {
    while (leader().attached && leader().poll().blocks_queued != 0) {
    }
    empty_step();
    deliver_logs();
    for (const auto &rank : ranks) {
        while (rank->attached && rank->poll().blocks_queued != 0) {
        }
    }
}

// A sequence of other tokens takes every block, unless sequences hold some.
void Ranks::evict_all() {
    quire_seq seq = create();
    run(seq, rank_prompt(9'999, (leader().shape.blocks - 1) * Rank::kBlockTokens), 0);
    end(seq);
}

void Ranks::check() {
    for (const auto &rank : ranks) rank->check();
}

uint64_t Ranks::wrong_rows() const {
    uint64_t sum = 0;
    for (const auto &rank : ranks) sum += rank->wrong_rows;
    return sum;
}

namespace {

// The fields of a canonical block that the test reads (docs/canonical-form.md).
struct ValueHead {
    uint32_t at(size_t offset) const {
        uint32_t word = 0;
        std::memcpy(&word, bytes + offset, sizeof word);
        return word;
    }
    const uint8_t *bytes;
    uint32_t group() const { return at(32); }
    uint64_t index() const { return at(56) / Rank::kBlockTokens; }
    uint32_t first_layer() const { return at(68); }
    uint32_t layer_count() const { return at(72); }
    uint32_t first_head() const { return at(80); }
    uint32_t head_count() const { return at(84); }
};

// True if the value's planes hold the last block of these tokens.
bool holds(const ValueHead &v, uint64_t seed, const Tokens &tokens) {
    const std::vector<uint64_t> rows = chain(tokens, seed);
    constexpr uint32_t kHead = Rank::kBlockTokens * Rank::kDim * sizeof(float);
    const uint8_t *at = v.bytes + 256 + 64;  // 8 token ids take 32 bytes, padded to 64
    for (uint32_t layer = 0; layer < v.layer_count(); ++layer) {
        for (uint32_t side = 0; side < 2; ++side) {
            for (uint32_t head = 0; head < v.head_count(); ++head, at += kHead) {
                for (uint32_t i = 0; i < Rank::kBlockTokens; ++i) {
                    float want[Rank::kDim];
                    fill(want, rows[tokens.size() - Rank::kBlockTokens + i], v.group(),
                         v.first_layer() + layer, v.first_head() + head, side);
                    if (std::memcmp(at + i * sizeof want, want, sizeof want) != 0) return false;
                }
            }
        }
    }
    return true;
}

}  // namespace

uint64_t Ranks::wrong_values(Rank *rank, uint64_t *values) {
    uint64_t cursor = 0, wrong = 0;
    for (;;) {
        quire_store_record record{};
        uint32_t count = 0;
        EXPECT_EQ(api.tier_list(rank->tier, &cursor, &record, 1, sizeof record, &count, &error),
                  QUIRE_OK)
            << error.message;
        if (count == 0) return wrong;
        Bytes bytes(record.value_bytes);
        quire_store_piece piece{bytes.data(), bytes.size()};
        quire_store_request request{};
        request.kind = QUIRE_STORE_GET;
        request.label = record.label;
        request.pieces = &piece;
        request.piece_count = 1;
        quire_store_answer answer{};
        EXPECT_EQ(api.tier_request_wait(rank->tier, &request, &answer, UINT64_MAX, &error),
                  QUIRE_OK)
            << error.message;
        if (answer.outcome != QUIRE_STORE_DONE) continue;
        const ValueHead head{bytes.data()};
        Tokens tokens(Rank::kBlockTokens);
        std::memcpy(tokens.data(), bytes.data() + 256, tokens.size() * sizeof tokens[0]);
        const auto &known = computed_[{head.index(), tokens}];
        const bool is_right = std::any_of(known.begin(), known.end(), [&](const auto &one) {
            return holds(head, one.first, one.second);
        });
        wrong += is_right ? 0 : 1;
        ++*values;
    }
}

}  // namespace quire::test
