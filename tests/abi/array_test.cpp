// SPDX-License-Identifier: Apache-2.0
//
// Arrays of headless elements with the strides of newer versions, right before a guard page; and
// undefined values of numbers that have a fixed set of meanings.

#include <algorithm>
#include <cstring>

#include "guarded.hpp"
#include "objects.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kCount = 3;

// An input array: `call` receives the array and its stride. first_size: of the first version.
template <typename T, typename Set, typename Call>
void expect_read_within(const char *what, uint32_t first_size, Set &&set, Call &&call) {
    for (uint32_t stride :
         {first_size, uint32_t{sizeof(T)}, uint32_t{sizeof(T)} + 8, uint32_t{sizeof(T)} + 64}) {
        Guarded array(kCount * stride);
        for (uint32_t i = 0; i < kCount; ++i) {
            T element{};
            set(&element, i);
            std::memcpy(array.data() + i * stride, &element,
                        std::min<uint64_t>(stride, sizeof element));
        }
        EXPECT_EQ(call(array.as<T>(), stride), QUIRE_OK) << what << " of stride " << stride;
        for (uint32_t i = sizeof(T); i < stride; ++i) {
            for (uint32_t element = 0; element < kCount; ++element) {
                unsigned char *byte = array.data() + element * stride + i;
                *byte = 1;
                EXPECT_EQ(call(array.as<T>(), stride), QUIRE_E_STRUCT) << what << " byte " << i;
                *byte = 0;
            }
        }
        for (uint32_t wrong : {0u, 8u, first_size - 8, uint32_t{sizeof(T)} + 1}) {
            EXPECT_EQ(call(array.as<T>(), wrong), QUIRE_E_ARG) << what << " of stride " << wrong;
        }
    }
    EXPECT_EQ(call(nullptr, sizeof(T)), QUIRE_E_ARG) << what;
}

// An output array: of each element, only the known bytes are written.
template <typename T, typename Call>
void expect_written_within(const char *what, Call &&call) {
    constexpr unsigned char pattern = 0xAB;
    for (uint32_t stride : {uint32_t{sizeof(T)}, uint32_t{sizeof(T)} + 8}) {
        Guarded array(kCount * stride, pattern);
        EXPECT_EQ(call(array.as<T>(), stride), QUIRE_OK) << what << " of stride " << stride;
        for (uint32_t i = 0; i < kCount * stride; ++i) {
            if (i % stride >= sizeof(T)) {
                ASSERT_EQ(array.data()[i], pattern) << what << " byte " << i;
            }
        }
        EXPECT_NE(array.data()[(kCount - 1) * stride], pattern) << what << ": nothing was written";
        EXPECT_EQ(call(array.as<T>(), sizeof(T) - 4), QUIRE_E_ARG) << what;
    }
    EXPECT_EQ(call(nullptr, sizeof(T)), QUIRE_E_ARG) << what;
}

TEST(Array, keys_are_read_within_their_stride) {
    Manager m;
    auto set = [](quire_key *key, uint32_t) { *key = {QUIRE_KEY_SALT, 1, "s", 0, 0}; };
    expect_read_within<quire_key>("keys", 24, set, [&](const quire_key *keys, uint32_t stride) {
        auto desc = described<quire_seq_desc>();
        desc.keys = keys;
        desc.key_count = kCount;
        desc.key_stride = stride;
        quire_seq out = 0;
        quire_status status = m.api().seq_create(m.cache(), &desc, &out, m.error());
        if (status == QUIRE_OK) m.api().seq_end(m.cache(), out, 0, nullptr);
        return status;
    });
}

TEST(Array, spans_are_read_within_their_stride) {
    Manager m;
    quire_seq seq = m.sequence();
    Tokens unknown(kCount, QUIRE_TOKEN_UNKNOWN);
    quire_token names[kCount] = {7, 8, 9};
    auto set = [&](quire_token_span *span, uint32_t i) { *span = {seq, i, i, 1, 0}; };
    expect_read_within<quire_token_span>(
        "spans", 24, set, [&](const quire_token_span *spans, uint32_t stride) {
            // Named tokens cannot be named again, so each call gets a sequence with unknown ones.
            m.api().seq_truncate(m.cache(), seq, 0, nullptr);
            m.compute(seq, unknown);
            return m.api().seq_set_tokens(m.cache(), spans, kCount, stride, names, kCount,
                                          m.error());
        });
}

TEST(Array, items_are_read_and_results_written_within_their_strides) {
    Manager m;
    quire_seq seqs[kCount] = {m.sequence(), m.sequence(), m.sequence()};
    const quire_token token = 5;
    auto add = [&](const quire_step_item *items, uint32_t stride, quire_step_result *results,
                   uint32_t result_stride) {
        auto desc = described<quire_step_desc>();
        quire_step step = 0;
        quire_status status = m.api().step_begin(m.cache(), &desc, items, kCount, stride, &token, 1,
                                                 results, result_stride, &step, m.error());
        if (status == QUIRE_OK) m.api().step_abort(m.cache(), step, nullptr);
        return status;
    };
    auto set = [&](quire_step_item *item, uint32_t i) {
        item->seq = seqs[i];
        item->token_count = 1;
    };
    quire_step_result results[kCount];
    expect_read_within<quire_step_item>("items", 40, set,
                                        [&](const quire_step_item *items, uint32_t stride) {
                                            return add(items, stride, results, sizeof results[0]);
                                        });
    quire_step_item items[kCount] = {};
    for (uint32_t i = 0; i < kCount; ++i) set(&items[i], i);
    expect_written_within<quire_step_result>("results",
                                             [&](quire_step_result *out, uint32_t stride) {
                                                 return add(items, sizeof items[0], out, stride);
                                             });
}

TEST(Array, lists_of_a_step_are_written_within_their_stride) {
    Manager m({.host_blocks = 32});
    quire_seq seqs[kCount] = {m.sequence(), m.sequence(), m.sequence()};
    for (quire_seq seq : seqs) m.compute(seq, tokens_from(static_cast<quire_token>(seq), 4));
    m.begin();
    uint32_t count = 0;
    for (quire_seq seq : seqs) {
        ASSERT_EQ(
            m.api().step_preempt(m.cache(), m.open(), seq, QUIRE_PREEMPT_SWAP, &count, m.error()),
            QUIRE_OK)
            << m.message();
    }
    expect_written_within<quire_preemption>("preempted", [&](quire_preemption *out,
                                                             uint32_t stride) {
        return m.api().step_preempted(m.cache(), m.open(), out, kCount, stride, &count, m.error());
    });
    expect_written_within<quire_block_copy>("copies", [&](quire_block_copy *out, uint32_t stride) {
        return m.api().step_copies(m.cache(), m.open(), out, kCount, stride, &count, m.error());
    });
    m.abort();
}

// Undefined values of a 32-bit number; the message shows the number.
class Number : public testing::Test {
 protected:
    Number() : w(library()) {
        auto host = described<quire_instance_desc>();
        EXPECT_TRUE(w.make(host)) << w.problem();
    }
    ~Number() override {
        w.destroy();
        EXPECT_STREQ(w.problem(), "");
    }
    template <typename Call>
    void refuse(const char *what, std::initializer_list<uint32_t> values, Call &&call) {
        for (uint32_t value : values) {
            w.error.message[0] = '\0';
            EXPECT_LT(call(value), 0) << what << " " << value;
            std::string message = w.error.message;
            char hexadecimal[16];
            std::snprintf(hexadecimal, sizeof hexadecimal, "0x%x", value);
            bool shown = message.find(std::to_string(value)) != std::string::npos ||
                         message.find(hexadecimal) != std::string::npos;
            EXPECT_TRUE(shown) << what << " " << value << ": " << message;
        }
    }
    quire_status create(quire_group_desc group, quire_cache_desc desc, bool memory) {
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 64;
        auto shard = described<quire_shard_desc>();
        shard.device = w.device;
        desc.shards = &shard;
        desc.shard_count = memory ? 1 : 0;
        desc.shard_stride = sizeof shard;
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.blocks = 8;
        quire_cache *out = nullptr;
        return w.api.cache_create(w.instance, &desc, &out, &w.error);
    }

    Objects w;
};

constexpr uint32_t kMost = 0xFFFFFFFF;

TEST_F(Number, of_a_caches_description_is_refused) {
    for (bool memory : {false, true}) {
        auto of_kinds = [&](uint32_t value) {
            auto group = described<quire_group_desc>();
            group.kind = value;
            return create(group, described<quire_cache_desc>(), memory);
        };
        memory ? refuse("kind", {5, 6, 77, kMost}, of_kinds)
               : refuse("kind", {6, 77, kMost}, of_kinds);
        // 4-bit floats, vectors of two, and a type without bits.
        refuse("k_dtype", {1, 0x20401, 0x21002, 0x60801, kMost}, [&](uint32_t value) {
            auto group = described<quire_group_desc>();
            group.k_dtype = value;
            return create(group, described<quire_cache_desc>(), memory);
        });
        refuse("v_dtype", {1, kMost}, [&](uint32_t value) {
            auto group = described<quire_group_desc>();
            group.v_dtype = value;
            return create(group, described<quire_cache_desc>(), memory);
        });
        auto of_groups_blocks = [&](uint32_t value) {
            auto group = described<quire_group_desc>();
            group.block_tokens = value;
            return create(group, described<quire_cache_desc>(), memory);
        };
        memory ? refuse("block_tokens of a group", {8, 32, kMost}, of_groups_blocks)
               : refuse("block_tokens of a group", {8, 24, 4112, kMost}, of_groups_blocks);
        refuse("eviction", {1, kMost}, [&](uint32_t value) {
            auto desc = described<quire_cache_desc>();
            desc.eviction = value;
            return create(described<quire_group_desc>(), desc, memory);
        });
        refuse("victim", {2, kMost}, [&](uint32_t value) {
            auto desc = described<quire_cache_desc>();
            desc.victim = value;
            return create(described<quire_group_desc>(), desc, memory);
        });
        auto of_blocks = [&](uint32_t value) {
            auto desc = described<quire_cache_desc>();
            desc.block_tokens = value;
            return create(described<quire_group_desc>(), desc, memory);
        };
        memory ? refuse("block_tokens", {3, 512, kMost}, of_blocks)
               : refuse("block_tokens", {4097, kMost}, of_blocks);
    }
}

TEST_F(Number, of_steps_and_sequences_is_refused) {
    refuse("preempt", {3, kMost}, [&](uint32_t value) {
        auto desc = described<quire_step_desc>();
        desc.queues = &w.queue;
        desc.queue_count = 1;
        desc.preempt = value;
        quire_step out = 0;
        return w.api.step_begin(w.cache, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &out,
                                &w.error);
    });
    refuse("outcome", {2, kMost}, [&](uint32_t value) {
        return w.api.step_finish(w.cache, w.step, nullptr, value, &w.error);
    });
    refuse("flags of seq_end", {2, 0x80000000u},
           [&](uint32_t value) { return w.api.seq_end(w.cache, w.seq, value, &w.error); });
    refuse("type of a key", {0, 5, kMost}, [&](uint32_t value) {
        quire_key key{value, 1, "k", 0, 0};
        auto desc = described<quire_seq_desc>();
        desc.keys = &key;
        desc.key_count = 1;
        desc.key_stride = sizeof key;
        quire_seq out = 0;
        return w.api.seq_create(w.cache, &desc, &out, &w.error);
    });
    auto desc = described<quire_step_desc>();
    desc.queues = &w.queue;
    desc.queue_count = 1;
    quire_step open = 0;
    ASSERT_EQ(
        w.api.step_begin(w.cache, &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &open, &w.error),
        QUIRE_OK);
    refuse("how", {3, kMost}, [&](uint32_t value) {
        uint32_t freed = 0;
        return w.api.step_preempt(w.cache, open, w.seq, value, &freed, &w.error);
    });
    EXPECT_EQ(w.api.step_abort(w.cache, open, &w.error), QUIRE_OK);
}

TEST_F(Number, of_devices_and_launches_is_refused) {
    refuse("kind of memory", {2, kMost}, [&](uint32_t value) {
        auto desc = described<quire_memory_desc>();
        desc.size_bytes = 64;
        desc.kind = value;
        quire_memory *out = nullptr;
        return w.api.memory_create(w.device, &desc, &out, &w.error);
    });
    refuse("kind of native", {1, kMost}, [&](uint32_t value) {
        quire_native native{};
        native.kind = value;
        quire_queue *out = nullptr;
        return w.api.queue_create(w.device, &native, &out, &w.error);
    });
    refuse("index", {1000, kMost}, [&](uint32_t value) {
        auto desc = described<quire_device_desc>();
        desc.backend = "cpu";
        desc.index = value;
        quire_device *out = nullptr;
        return w.api.device_open(w.instance, &desc, &out, &w.error);
    });
    refuse("views", {1u << 9, kMost}, [&](uint32_t value) {
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 4;
        desc.views = value;
        quire_batch *out = nullptr;
        return w.api.batch_create(w.cache, &desc, &out, &w.error);
    });
    refuse("dtype", {1, 0x20401, kMost}, [&](uint32_t value) {
        auto args = described<quire_kv_args>();
        args.k = args.v = 4096;
        args.dtype = value;
        return w.api.kv_write(w.batch, &args, w.queue, &w.error);
    });
    refuse("layer", {1, kMost}, [&](uint32_t value) {
        auto args = described<quire_attend_args>();
        args.q = args.out = 4096;
        args.layer = value;
        return w.api.attend(w.batch, &args, w.queue, &w.error);
    });
    refuse("q_dtype", {1, kMost}, [&](uint32_t value) {
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        attention.q_dtype = value;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 4;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        quire_batch *out = nullptr;
        return w.api.batch_create(w.cache, &desc, &out, &w.error);
    });
    for (uint32_t shard : {1u, kMost}) {
        auto views = described<quire_batch_views>();
        EXPECT_LT(w.api.batch_get_views(w.batch, 0, shard, &views, &w.error), 0);
        auto pool = described<quire_pool_info>();
        EXPECT_LT(w.api.cache_get_pool(w.cache, shard, 0, &pool, &w.error), 0);
        EXPECT_LT(w.api.cache_get_pool(w.cache, 0, shard, &pool, &w.error), 0);
    }
}

}  // namespace
