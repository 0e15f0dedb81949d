// SPDX-License-Identifier: Apache-2.0
//
// Sessions of every kind of group: full, window with sinks, chunked, latent and cross; and a golden
// file, which stays readable and is what is still written (docs/session-format.md).
//
// No kernel runs: every byte of a block is one number that group and place decide, so the bytes of
// a session are the same whatever the layout of the pools.

#include <cstring>
#include <filesystem>
#include <fstream>

#include "session_rig.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kGroupCount = 5, kBlock = 4, kCross = 5;

// A cache of the five kinds, on one device or its layers on two.
class Kinds {
 public:
    explicit Kinds(uint32_t devices = 1, uint32_t layers = 1) : layers_(layers) {
        error.struct_size = sizeof error;
        auto host = described<quire_instance_desc>();
        must(api.instance_create(&host, &instance_, &error));
        devices_.resize(devices);
        queues_.resize(devices);
        for (uint32_t i = 0; i < devices; ++i) {
            auto desc = described<quire_device_desc>();
            desc.backend = "cpu";
            desc.threads = 1;
            must(api.device_open(instance_, &desc, &devices_[i], &error));
            must(api.queue_create(devices_[i], nullptr, &queues_[i], &error));
        }
        make_cache();
    }
    ~Kinds() {
        for (quire_queue *queue : queues_) must(api.queue_sync(queue, &error));
        must(api.cache_check(cache, &error));
        must(api.cache_destroy(cache, &error));
        for (quire_queue *queue : queues_) must(api.queue_destroy(queue, &error));
        for (quire_device *device : devices_) must(api.device_close(device, &error));
        must(api.instance_destroy(instance_, &error));
    }
    Kinds(const Kinds &) = delete;
    Kinds &operator=(const Kinds &) = delete;

    void must(quire_status status) { ASSERT_EQ(status, QUIRE_OK) << error.message; }

    static quire_seq_desc seq_desc() {
        static const quire_key keys[] = {{QUIRE_KEY_SALT, 4, "salt", 0, 0},
                                         {QUIRE_KEY_MEDIA, 5, "image", 2, 5}};
        auto desc = described<quire_seq_desc>();
        desc.keys = keys;
        desc.key_count = 2;
        desc.key_stride = sizeof keys[0];
        desc.cross_tokens = kCross;
        return desc;
    }
    quire_seq sequence() {
        auto desc = seq_desc();
        quire_seq seq = 0;
        must(api.seq_create(cache, &desc, &seq, &error));
        return seq;
    }
    // Runs tokens; writes: then fills the blocks that the sequence has.
    // handover: a sender of it that gets all layers.
    void run(quire_seq seq, const Tokens &tokens, bool writes = true, quire_handover handover = 0) {
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        auto desc = described<quire_step_desc>();
        desc.queues = queues_.data();
        desc.queue_count = static_cast<uint32_t>(queues_.size());
        quire_step_result result{};
        quire_step step = 0;
        must(api.step_begin(cache, &desc, &item, 1, sizeof item, tokens.data(), item.token_count,
                            &result, sizeof result, &step, &error));
        ASSERT_EQ(result.outcome, QUIRE_ITEM_RUN);
        must(api.step_commit(cache, step, nullptr, &error));
        for (quire_queue *queue : queues_) must(api.queue_sync(queue, &error));
        for (uint32_t group = 0; writes && group < kGroupCount; ++group) fill(seq, group);
        if (handover != 0) {
            must(api.handover_layers(cache, handover, step, 0, layers_ * kGroupCount, &error));
        }
        must(api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error));
    }
    quire_status try_export(quire_seq seq, Bytes *out) {
        SessionStream stream;
        auto desc = export_desc(&stream);
        for (uint8_t i = 0; i < 32; ++i) {
            desc.fingerprint[i] = i;
            desc.name_space[i] = static_cast<uint8_t>(128 + i);
        }
        const quire_status status =
            api.seq_export_wait(cache, seq, &desc, nullptr, UINT64_MAX, &error);
        *out = stream.bytes;
        return status;
    }
    Bytes exported(quire_seq seq) {
        Bytes bytes;
        must(try_export(seq, &bytes));
        return bytes;
    }
    quire_seq imported(const Bytes &bytes) {
        SessionStream stream;
        stream.bytes = bytes;
        auto seq = seq_desc();
        auto desc = import_desc(&stream);
        desc.seq = &seq;
        for (uint8_t i = 0; i < 32; ++i) {
            desc.fingerprint[i] = i;
            desc.name_space[i] = static_cast<uint8_t>(128 + i);
        }
        quire_seq out = 0;
        must(api.seq_import(cache, &desc, &out, nullptr, &error));
        must(api.cache_check(cache, &error));
        return out;
    }
    quire_handover sender(quire_seq seq, const Tokens &tokens) {
        auto desc = described<quire_handover_send_desc>();
        desc.tokens = tokens.data();
        desc.token_count = static_cast<uint32_t>(tokens.size());
        quire_handover out = 0;
        must(api.handover_send(cache, seq, &desc, &out, &error));
        return out;
    }
    Bytes sent(quire_handover handover) {
        Bytes bytes(1 << 20);
        uint64_t size = 0, all = 0;
        auto progress = described<quire_handover_progress>();
        while (progress.is_whole == 0) {
            must(api.handover_read(cache, handover, bytes.data() + all, bytes.size() - all, &size,
                                   &progress, &error));
            all += size;
        }
        must(api.handover_end(cache, handover, &error));
        bytes.resize(all);
        return bytes;
    }
    quire_seq received(const Bytes &bytes) {
        auto seq = seq_desc();
        auto desc = described<quire_handover_receive_desc>();
        desc.seq = &seq;
        quire_handover handover = 0;
        uint64_t used = 0;
        auto progress = described<quire_handover_progress>();
        must(api.handover_receive(cache, &desc, &handover, &error));
        must(api.handover_write(cache, handover, bytes.data(), bytes.size(), &used, &progress,
                                &error));
        must(api.handover_end(cache, handover, &error));
        must(api.cache_check(cache, &error));
        return progress.seq;
    }
    uint64_t swapped_in() {
        auto stats = described<quire_cache_stats>();
        must(api.cache_get_stats(cache, &stats, &error));
        return stats.blocks_swapped_in;
    }

    const quire_api &api = library();
    quire_error error{};
    quire_cache *cache = nullptr;

 private:
    std::vector<quire_group_desc> groups() const {
        std::vector<quire_group_desc> all(kGroupCount, described<quire_group_desc>());
        for (uint32_t g = 0; g < kGroupCount; ++g) {
            all[g].kind = g;
            all[g].layer_count = layers_;
            all[g].kv_heads = 1;
            all[g].k_head_dim = all[g].v_head_dim = 8;
            all[g].k_dtype = QUIRE_DTYPE_F32;
        }
        all[QUIRE_GROUP_WINDOW].window = 6;
        all[QUIRE_GROUP_WINDOW].sink_tokens = 3;
        all[QUIRE_GROUP_WINDOW].k_dtype = QUIRE_DTYPE_I8;
        all[QUIRE_GROUP_WINDOW].k_scale = QUIRE_SCALE_TOKEN_HEAD;
        all[QUIRE_GROUP_CHUNKED].window = 8;
        all[QUIRE_GROUP_CHUNKED].k_dtype = QUIRE_DTYPE_F16;
        all[QUIRE_GROUP_LATENT].k_head_dim = 16;
        all[QUIRE_GROUP_LATENT].k_dtype = QUIRE_DTYPE_BF16;
        return all;
    }
    void make_cache() {
        std::vector<quire_shard_desc> shards;
        const uint32_t all = layers_ * kGroupCount, part = all / 2;
        for (uint32_t i = 0; i < devices_.size(); ++i) {
            shards.push_back(described<quire_shard_desc>());
            shards.back().device = devices_[i];
            if (devices_.size() == 1) continue;
            shards.back().layer_begin = i * part;
            shards.back().layer_count = i == 0 ? part : all - part;
        }
        const std::vector<quire_group_desc> list = groups();
        auto desc = described<quire_cache_desc>();
        desc.groups = list.data();
        desc.group_count = kGroupCount;
        desc.group_stride = sizeof list[0];
        desc.shards = shards.data();
        desc.shard_count = static_cast<uint32_t>(shards.size());
        desc.shard_stride = sizeof shards[0];
        desc.blocks = 24;
        desc.block_tokens = kBlock;
        desc.host_blocks = 12;
        desc.flags = QUIRE_CACHE_NO_PREFIX;
        must(api.cache_create(instance_, &desc, &cache, &error));
    }
    void fill(quire_seq seq, uint32_t group) {
        int32_t ids[16];
        uint32_t count = 0;
        must(api.step_blocks(cache, 0, seq, group, 0, ids, 16, &count, &error));
        for (uint32_t shard = 0; shard < devices_.size(); ++shard) {
            auto pool = described<quire_pool_info>();
            must(api.cache_get_pool(cache, group, shard, &pool, &error));
            const auto stride = static_cast<uint64_t>(pool.block_stride);
            for (uint32_t i = 0; i < count && pool.layer_count != 0; ++i) {
                if (ids[i] == 0) continue;
                const uint64_t at = pool.address + static_cast<uint64_t>(ids[i]) * stride;
                std::memset(reinterpret_cast<void *>(at), static_cast<int>(1 + 16 * group + i),
                            stride);
            }
        }
    }

    uint32_t layers_;
    quire_instance *instance_ = nullptr;
    std::vector<quire_device *> devices_;
    std::vector<quire_queue *> queues_;
};

TEST(SessionKinds, each_is_handed_over_to_other_devices_to_the_byte) {
    for (uint32_t length = 2; length <= 23; ++length) {
        SCOPED_TRACE(length);
        Kinds from(1, 2), to(2, 2);
        const quire_seq seq = from.sequence();
        const Tokens tokens = tokens_from(1, length), first(tokens.begin(), tokens.begin() + 1);
        const quire_handover sender = from.sender(seq, tokens);
        from.run(seq, first, true, sender);
        from.run(seq, Tokens(tokens.begin() + 1, tokens.end()), true, sender);
        const quire_seq back = to.received(from.sent(sender));
        ASSERT_NE(back, 0u);
        // A window's blocks that the next token does not see may be in one of them: a step gives
        // them back in both.
        for (auto [kinds, which] : {std::pair{&from, seq}, std::pair{&to, back}}) {
            kinds->run(which, {99}, false);
            kinds->must(kinds->api.seq_truncate(kinds->cache, which, length, &kinds->error));
        }
        ASSERT_EQ(to.exported(back), from.exported(seq));
    }
}

TEST(SessionKinds, each_comes_back_to_other_devices_to_the_byte) {
    for (uint32_t length = 1; length <= 23; ++length) {
        SCOPED_TRACE(length);
        Kinds from(1, 2), to(2, 2);
        const quire_seq seq = from.sequence();
        from.run(seq, tokens_from(1, length));
        const Bytes bytes = from.exported(seq);
        const quire_seq back = to.imported(bytes);
        ASSERT_EQ(to.exported(back), bytes) << "from the host tier";
        // A step brings it to the devices; a truncate forgets that step's token, which neither
        // cache wrote.
        for (auto [kinds, which] : {std::pair{&from, seq}, std::pair{&to, back}}) {
            kinds->run(which, {99}, false);
            kinds->must(kinds->api.seq_truncate(kinds->cache, which, length, &kinds->error));
        }
        EXPECT_GT(to.swapped_in(), 0u);
        ASSERT_EQ(to.exported(back), from.exported(seq)) << "from the devices";
    }
}

TEST(SessionKinds, each_leaves_windows_and_chunks_as_they_were) {
    Kinds from, to;
    const quire_seq seq = from.sequence();
    from.run(seq, tokens_from(1, 9));
    for (uint32_t step = 0; step < 12; ++step) {
        from.run(seq, tokens_from(step, 1 + step % 2));
        const Bytes bytes = from.exported(seq);
        const quire_seq back = to.imported(bytes);
        ASSERT_EQ(to.exported(back), bytes) << "step " << step;
        to.must(to.api.seq_end(to.cache, back, 0, &to.error));
    }
}

Bytes golden_file() {
    std::ifstream file(quire::tests::place(QUIRE_SESSION_GOLDEN), std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
}

TEST(SessionGolden, file_is_what_is_written) {
    Kinds kinds;
    const quire_seq seq = kinds.sequence();
    kinds.run(seq, tokens_from(1, 14));
    kinds.run(seq, tokens_from(30, 4));
    const Bytes bytes = kinds.exported(seq);
    if (const char *to = std::getenv("QUIRE_WRITE_GOLDEN")) {
        std::ofstream(to, std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    }
    ASSERT_FALSE(golden_file().empty());
    EXPECT_EQ(bytes, golden_file());
}

TEST(SessionGolden, file_is_still_restored) {
    Kinds kinds;
    const Bytes bytes = golden_file();
    const quire_seq seq = kinds.imported(bytes);
    auto info = described<quire_seq_info>();
    kinds.must(kinds.api.seq_get_info(kinds.cache, seq, &info, &kinds.error));
    EXPECT_EQ(info.computed_tokens, 18u);
    EXPECT_EQ(kinds.exported(seq), bytes);
    kinds.run(seq, {7});
}

TEST(SessionGolden, file_of_another_version_is_refused_in_words) {
    Kinds kinds;
    SessionStream stream;
    stream.bytes = golden_file();
    stream.bytes[8] = 2;
    auto desc = import_desc(&stream);
    quire_seq seq = 0;
    EXPECT_EQ(kinds.api.seq_import(kinds.cache, &desc, &seq, nullptr, &kinds.error),
              QUIRE_E_INCOMPATIBLE);
    EXPECT_NE(std::string(kinds.error.message).find("version is 2, this library reads 1"),
              std::string::npos)
        << kinds.error.message;
}

}  // namespace
