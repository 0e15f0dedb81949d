// SPDX-License-Identifier: Apache-2.0
//
// Every struct with a head, at every size, through the exported function that takes it. The test
// fails if a struct in the lists of abi/structs.hpp has no case here.

#include <cstring>
#include <set>

#include "objects.hpp"
#include "struct_check.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

class Exported : public testing::Test {
 protected:
    Exported() : w(library()) {
        quire_instance_desc host = described<quire_instance_desc>();
        EXPECT_TRUE(w.make(host)) << w.problem();
        auto info = described<quire_memory_info>();
        w.must("memory_get_info", w.api.memory_get_info(w.memory, &info, &w.error));
        address = info.address;
        add_plain();
        add_of_the_cache();
        add_elements();
        add_launches();
        add_sizing();
        add_calibration();
        add_sessions();
        add_handovers();
        add_migration();
        add_tiers();
        add_cache_tiers();
        add_leases();
        add_outputs();
    }
    ~Exported() override {
        w.destroy();
        EXPECT_STREQ(w.problem(), "");
    }

    template <typename T, typename Set, typename Body>
    void input(Set &&set, Body &&body, bool element = false) {
        inputs.push_back({&RuleOf<T>::value, element,
                          [set](void *data) { set(static_cast<T *>(data)); },
                          [body](void *data, uint32_t stride) {
                              return body(static_cast<const T *>(data), stride);
                          }});
    }
    // The description of what a call makes, and `end` ends.
    template <typename T, typename Object, typename Set, typename Make, typename End>
    void made(Set &&set, Make &&make, End &&end) {
        input<T>(set, [make, end](const T *desc, uint32_t) {
            Object out{};
            quire_status s = make(desc, &out);
            if (s == 0) end(out);
            return s;
        });
    }
    template <typename T, typename Body>
    void output(Body &&body) {
        outputs.push_back({&RuleOf<T>::value, false, [](void *) {},
                           [body](void *data, uint32_t) { return body(static_cast<T *>(data)); }});
    }

    void add_plain() {
        made<quire_instance_desc, quire_instance *>(
            [](auto *) {},
            [this](auto *desc, auto *out) { return w.api.instance_create(desc, out, nullptr); },
            [this](auto out) { w.api.instance_destroy(out, nullptr); });
        made<quire_device_desc, quire_device *>(
            [](auto *desc) { desc->backend = "cpu", desc->threads = 1; },
            [this](auto *d, auto *out) { return w.api.device_open(w.instance, d, out, nullptr); },
            [this](auto out) { w.api.device_close(out, nullptr); });
        made<quire_memory_desc, quire_memory *>(
            [](auto *desc) { desc->size_bytes = 64; },
            [this](auto *d, auto *out) { return w.api.memory_create(w.device, d, out, nullptr); },
            [this](auto out) { w.api.memory_destroy(out, nullptr); });
    }

    quire_status create_cache(const quire_cache_desc *desc) {
        quire_cache *out = nullptr;
        quire_status s = w.api.cache_create(w.instance, desc, &out, nullptr);
        if (s == 0) w.api.cache_destroy(out, nullptr);
        return s;
    }
    static quire_group_desc group() {
        auto desc = described<quire_group_desc>();
        desc.layer_count = desc.kv_heads = 1;
        desc.k_head_dim = desc.v_head_dim = 64;
        return desc;
    }
    static quire_cache_desc cache_of(const quire_group_desc *groups, uint32_t stride) {
        auto desc = described<quire_cache_desc>();
        desc.groups = groups;
        desc.group_count = 1;
        desc.group_stride = stride;
        desc.blocks = 8;
        return desc;
    }

    void add_of_the_cache() {
        input<quire_cache_desc>(
            [](quire_cache_desc *desc) {
                static const quire_group_desc groups = group();
                desc->groups = &groups;
                desc->group_count = 1;
                desc->group_stride = sizeof groups;
                desc->blocks = 8;
            },
            [this](const quire_cache_desc *desc, uint32_t) { return create_cache(desc); });
        made<quire_namespace_desc, quire_namespace>(
            [](auto *) {},
            [this](auto *desc, auto *out) {
                return w.api.namespace_create(w.cache, desc, out, nullptr);
            },
            [this](auto out) { w.api.namespace_destroy(w.cache, out, nullptr); });
        made<quire_seq_desc, quire_seq>(
            [](auto *) {},
            [this](auto *desc, auto *out) { return w.api.seq_create(w.cache, desc, out, nullptr); },
            [this](auto out) { w.api.seq_end(w.cache, out, 0, nullptr); });
        made<quire_lease_desc, quire_lease>(
            [](auto *) {},
            [this](auto *desc, auto *out) {
                return w.api.lease_create(w.cache, desc, out, nullptr);
            },
            [this](auto out) { w.api.lease_end(w.cache, out, nullptr); });
        input<quire_step_desc>(
            [this](quire_step_desc *desc) { desc->queues = &w.queue, desc->queue_count = 1; },
            [this](const quire_step_desc *desc, uint32_t) {
                quire_step out = 0;
                quire_status s = w.api.step_begin(w.cache, desc, nullptr, 0, 0, nullptr, 0, nullptr,
                                                  0, &out, nullptr);
                if (s == 0) w.api.step_abort(w.cache, out, nullptr);
                return s;
            });
        input<quire_batch_desc>(
            [](quire_batch_desc *desc) {
                desc->max_rows = desc->max_blocks_per_row = desc->max_query_tokens = 4;
                desc->views = QUIRE_VIEW_SLOTS;
            },
            [this](const quire_batch_desc *desc, uint32_t) { return create_batch(desc); });
    }

    quire_status create_batch(const quire_batch_desc *desc) {
        quire_batch *out = nullptr;
        quire_status s = w.api.batch_create(w.cache, desc, &out, nullptr);
        if (s == 0) w.api.batch_destroy(out, nullptr);
        return s;
    }

    void add_elements() {
        input<quire_group_desc>(
            [](quire_group_desc *desc) {
                desc->layer_count = desc->kv_heads = 1;
                desc->k_head_dim = desc->v_head_dim = 64;
            },
            [this](const quire_group_desc *desc, uint32_t stride) {
                quire_cache_desc cache = cache_of(desc, stride);
                return create_cache(&cache);
            },
            true);
        input<quire_shard_desc>([this](quire_shard_desc *desc) { desc->device = w.device; },
                                [this](const quire_shard_desc *desc, uint32_t stride) {
                                    quire_group_desc one = group();
                                    quire_cache_desc cache = cache_of(&one, sizeof one);
                                    cache.shards = desc;
                                    cache.shard_count = 1;
                                    cache.shard_stride = stride;
                                    return create_cache(&cache);
                                },
                                true);
        input<quire_attention_desc>([](quire_attention_desc *desc) { desc->q_heads = 1; },
                                    [this](const quire_attention_desc *desc, uint32_t stride) {
                                        auto batch = described<quire_batch_desc>();
                                        batch.max_rows = batch.max_blocks_per_row =
                                            batch.max_query_tokens = 4;
                                        batch.attention = desc;
                                        batch.attention_count = 1;
                                        batch.attention_stride = stride;
                                        return create_batch(&batch);
                                    },
                                    true);
        input<quire_rope_desc>([](quire_rope_desc *) {},
                               [this](const quire_rope_desc *desc, uint32_t) {
                                   // NULL means no rope, and is accepted.
                                   if (desc == nullptr) return quire_status{QUIRE_E_ARG};
                                   auto attention = described<quire_attention_desc>();
                                   attention.q_heads = 1;
                                   attention.rope = desc;
                                   auto batch = described<quire_batch_desc>();
                                   batch.max_rows = batch.max_blocks_per_row =
                                       batch.max_query_tokens = 4;
                                   batch.attention = &attention;
                                   batch.attention_count = 1;
                                   batch.attention_stride = sizeof attention;
                                   return create_batch(&batch);
                               });
    }

    void add_launches() {
        input<quire_kv_args>([this](quire_kv_args *args) { args->k = args->v = address; },
                             [this](const quire_kv_args *args, uint32_t) {
                                 return w.api.kv_write(w.batch, args, w.queue, nullptr);
                             });
        input<quire_attend_args>(
            [this](quire_attend_args *args) { args->q = address, args->out = address + 1024; },
            [this](const quire_attend_args *args, uint32_t) {
                return w.api.attend(w.batch, args, w.queue, nullptr);
            });
        input<quire_merge_args>(
            [this](quire_merge_args *args) {
                args->parts = args->lses = address;
                args->out = address + 1024;
                args->part_count = args->token_count = args->heads = args->head_dim = 1;
            },
            [this](const quire_merge_args *args, uint32_t) {
                return w.api.attention_merge(w.queue, args, nullptr);
            });
    }

    void add_sizing() {
        input<quire_size_desc>(
            [](quire_size_desc *desc) {
                desc->layer_count = desc->kv_heads = desc->k_head_dim = 1;
            },
            [this](const quire_size_desc *desc, uint32_t) {
                auto info = described<quire_size_info>();
                return w.api.size_estimate(desc, &info, nullptr);
            });
        output<quire_size_info>([this](quire_size_info *out) {
            auto desc = described<quire_size_desc>();
            desc.layer_count = desc.kv_heads = desc.k_head_dim = 1;
            return w.api.size_estimate(&desc, out, nullptr);
        });
    }

    void add_calibration() {
        static const std::vector<unsigned char> bytes = [this] { return calibration(); }();
        output<quire_calibration_info>([this](quire_calibration_info *out) {
            return w.api.calibration_get_info(bytes.data(), bytes.size(), out, nullptr);
        });
        output<quire_calibration_layer>([this](quire_calibration_layer *out) {
            float amax[2];
            return w.api.calibration_get_layer(bytes.data(), bytes.size(), 0, out, amax, 2,
                                               nullptr);
        });
    }

    // The calibration of a cache that nothing was written into.
    std::vector<unsigned char> calibration() {
        std::vector<unsigned char> bytes(32 + 16 + 8);
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 8;
        auto shard = described<quire_shard_desc>();
        shard.device = w.device;
        auto desc = described<quire_cache_desc>();
        desc.flags = QUIRE_CACHE_CALIBRATE;
        desc.groups = &group;
        desc.group_count = desc.shard_count = 1;
        desc.group_stride = sizeof group;
        desc.shards = &shard;
        desc.shard_stride = sizeof shard;
        desc.blocks = 4;
        quire_cache *cache = nullptr;
        uint64_t size_bytes = 0;
        EXPECT_EQ(w.api.cache_create(w.instance, &desc, &cache, nullptr), QUIRE_OK);
        EXPECT_EQ(w.api.cache_save_calibration_wait(cache, bytes.data(), bytes.size(), &size_bytes,
                                                    UINT64_MAX, nullptr),
                  QUIRE_OK);
        EXPECT_EQ(size_bytes, bytes.size());
        EXPECT_EQ(w.api.cache_destroy(cache, nullptr), QUIRE_OK);
        return bytes;
    }

    // Migrates a cache without memory to the devices it is on.
    quire_status migrate(const quire_migrate_desc *desc, quire_migrate_info *info) {
        quire_group_desc groups = group();
        quire_cache_desc cache_desc = cache_of(&groups, sizeof groups);
        quire_cache *cache = nullptr;
        EXPECT_EQ(w.api.cache_create(w.instance, &cache_desc, &cache, nullptr), QUIRE_OK);
        quire_status s = w.api.cache_migrate(cache, desc, info, nullptr);
        EXPECT_EQ(w.api.cache_destroy(cache, nullptr), QUIRE_OK);
        return s;
    }

    // Sessions of a sequence without tokens, each of which is a head alone.
    void add_sessions() {
        static std::vector<char> session;
        static size_t at = 0;
        static const auto take = [](void *, const void *bytes, uint64_t size) -> quire_status {
            const auto *first = static_cast<const char *>(bytes);
            session.insert(session.end(), first, first + size);
            return QUIRE_OK;
        };
        static const auto give = [](void *, void *bytes, uint64_t size) -> quire_status {
            if (size > session.size() - at) return QUIRE_E_OS;
            std::memcpy(bytes, session.data() + at, size);
            at += size;
            return QUIRE_OK;
        };
        auto seq_desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        w.must("seq_create", w.api.seq_create(w.cache, &seq_desc, &seq, &w.error));
        const auto export_to = [this, seq](const quire_export_desc *desc,
                                           quire_session_info *info) {
            session.clear();
            return w.api.seq_export_wait(w.cache, seq, desc, info, UINT64_MAX, nullptr);
        };
        input<quire_export_desc>([](quire_export_desc *desc) { desc->write = take; },
                                 [export_to](const quire_export_desc *desc, uint32_t) {
                                     return export_to(desc, nullptr);
                                 });
        output<quire_session_info>([export_to](quire_session_info *out) {
            auto desc = described<quire_export_desc>();
            desc.write = take;
            if (out == nullptr) {  // the one output that may be left out
                EXPECT_EQ(export_to(&desc, nullptr), QUIRE_OK);
                return quire_status{QUIRE_E_ARG};
            }
            return export_to(&desc, out);
        });
        input<quire_import_desc>([](quire_import_desc *desc) { desc->read = give; },
                                 [this, export_to](const quire_import_desc *desc, uint32_t) {
                                     auto save = described<quire_export_desc>();
                                     save.write = take;
                                     EXPECT_EQ(export_to(&save, nullptr), QUIRE_OK);
                                     at = 0;
                                     quire_seq out = 0;
                                     quire_status s =
                                         w.api.seq_import(w.cache, desc, &out, nullptr, nullptr);
                                     if (s == 0) w.api.seq_end(w.cache, out, 0, nullptr);
                                     return s;
                                 });
    }

    void add_handovers() {
        static const quire_token tokens[] = {1, 2, 3};
        auto seq_desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        w.must("seq_create", w.api.seq_create(w.cache, &seq_desc, &seq, &w.error));
        const auto ended = [this](quire_status s, quire_handover handover) {
            const quire_status end = w.api.handover_end(w.cache, handover, nullptr);
            EXPECT_EQ(end, s == 0 ? quire_status{QUIRE_OK} : quire_status{QUIRE_E_STALE});
            return s;
        };
        const auto send = [this, seq](const quire_handover_send_desc *desc, quire_handover *out) {
            return w.api.handover_send(w.cache, seq, desc, out, nullptr);
        };
        const auto set = [](quire_handover_send_desc *desc) {
            desc->tokens = tokens;
            desc->token_count = 3;
        };
        input<quire_handover_send_desc>(set, [=](const quire_handover_send_desc *desc, uint32_t) {
            quire_handover out = 0;
            const quire_status s = send(desc, &out);
            return ended(s, out);
        });
        input<quire_handover_receive_desc>(
            [](quire_handover_receive_desc *) {},
            [=, this](const quire_handover_receive_desc *desc, uint32_t) {
                quire_handover out = 0;
                const quire_status s = w.api.handover_receive(w.cache, desc, &out, nullptr);
                return ended(s, out);
            });
        output<quire_handover_progress>([=, this](quire_handover_progress *out) {
            auto desc = described<quire_handover_send_desc>();
            set(&desc);
            quire_handover handover = 0;
            uint64_t size = 0;
            EXPECT_EQ(send(&desc, &handover), QUIRE_OK);
            quire_status s =
                w.api.handover_read(w.cache, handover, nullptr, 0, &size, out, nullptr);
            ended(QUIRE_OK, handover);
            if (out == nullptr) {  // it may be left out
                EXPECT_EQ(s, QUIRE_OK);
                return quire_status{QUIRE_E_ARG};
            }
            return s;
        });
    }

    // Opens a tier for the length of one call.
    template <typename Body>
    quire_status with_tier(Body body) {
        auto desc = described<quire_tier_desc>();
        desc.store = "memory";
        quire_tier *tier = nullptr;
        EXPECT_EQ(w.api.tier_open(w.instance, &desc, &tier, &w.error), QUIRE_OK) << w.error.message;
        quire_status s = body(tier);
        EXPECT_EQ(w.api.tier_close_wait(tier, UINT64_MAX, nullptr), QUIRE_OK);
        return s;
    }

    void add_tiers() {
        input<quire_tier_desc>([](quire_tier_desc *desc) { desc->store = "memory"; },
                               [this](const quire_tier_desc *desc, uint32_t) {
                                   quire_tier *out = nullptr;
                                   quire_status s =
                                       w.api.tier_open(w.instance, desc, &out, nullptr);
                                   if (s == 0) w.api.tier_close_wait(out, UINT64_MAX, nullptr);
                                   return s;
                               });
        output<quire_store_info>([this](quire_store_info *out) {
            return with_tier(
                [&](quire_tier *tier) { return w.api.tier_get_info(tier, out, nullptr); });
        });
        output<quire_store_stats>([this](quire_store_stats *out) {
            return with_tier(
                [&](quire_tier *tier) { return w.api.tier_get_stats(tier, out, nullptr); });
        });
    }

    // A cache that can have a tier, and a tier, for the length of one call.
    template <typename Body>
    quire_status with_cache_and_tier(Body body) {
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 8;
        auto shard = described<quire_shard_desc>();
        shard.device = w.device;
        auto desc = described<quire_cache_desc>();
        desc.groups = &group;
        desc.group_count = desc.shard_count = 1;
        desc.group_stride = sizeof group;
        desc.shards = &shard;
        desc.shard_stride = sizeof shard;
        desc.blocks = 4;
        desc.host_bytes = 1 << 20;
        quire_cache *cache = nullptr;
        EXPECT_EQ(w.api.cache_create(w.instance, &desc, &cache, &w.error), QUIRE_OK)
            << w.error.message;
        quire_status s = with_tier([&](quire_tier *tier) {
            quire_status inner = body(cache, tier);
            w.api.cache_detach_tier_wait(cache, UINT64_MAX, nullptr);
            return inner;
        });
        EXPECT_EQ(w.api.cache_destroy(cache, nullptr), QUIRE_OK);
        return s;
    }

    void add_cache_tiers() {
        input<quire_cache_tier_desc>(
            [](quire_cache_tier_desc *) {},
            [this](const quire_cache_tier_desc *desc, uint32_t) {
                return with_cache_and_tier([&](quire_cache *cache, quire_tier *tier) {
                    return w.api.cache_attach_tier(cache, tier, desc, nullptr);
                });
            });
        auto attached = [this](auto body) {
            return with_cache_and_tier([&](quire_cache *cache, quire_tier *tier) {
                auto desc = described<quire_cache_tier_desc>();
                EXPECT_EQ(w.api.cache_attach_tier(cache, tier, &desc, &w.error), QUIRE_OK)
                    << w.error.message;
                return body(cache);
            });
        };
        output<quire_cache_tier_progress>([=, this](quire_cache_tier_progress *out) {
            return attached(
                [&](quire_cache *cache) { return w.api.cache_poll_tier(cache, out, nullptr); });
        });
        output<quire_cache_tier_stats>([=, this](quire_cache_tier_stats *out) {
            return attached([&](quire_cache *cache) {
                return w.api.cache_get_tier_stats(cache, out, nullptr);
            });
        });
    }

    void add_migration() {
        input<quire_migrate_desc>([](quire_migrate_desc *) {},
                                  [this](const quire_migrate_desc *desc, uint32_t) {
                                      auto info = described<quire_migrate_info>();
                                      return migrate(desc, &info);
                                  });
        output<quire_migrate_info>([this](quire_migrate_info *out) {
            auto desc = described<quire_migrate_desc>();
            return migrate(&desc, out);
        });
    }

    // Abandons a cache without memory; the little that remains of it is never freed.
    quire_status abandon(quire_abandon_info *out) {
        quire_group_desc groups = group();
        quire_cache_desc desc = cache_of(&groups, sizeof groups);
        quire_cache *cache = nullptr;
        EXPECT_EQ(w.api.cache_create(w.instance, &desc, &cache, nullptr), QUIRE_OK);
        quire_status s = w.api.cache_abandon(cache, out, nullptr);
        if (s < 0) {
            EXPECT_EQ(w.api.cache_destroy(cache, nullptr), QUIRE_OK);
        }
        return s;
    }

    // Calls body(lease) on a lease of its own.
    template <typename Body>
    quire_status with_lease(Body body) {
        auto desc = described<quire_lease_desc>();
        quire_lease lease = 0;
        EXPECT_EQ(w.api.lease_create(w.cache, &desc, &lease, nullptr), QUIRE_OK);
        quire_status s = body(lease);
        EXPECT_EQ(w.api.lease_end(w.cache, lease, nullptr), QUIRE_OK);
        return s;
    }

    void add_leases() {
        output<quire_lease_info>([this](quire_lease_info *out) {
            return with_lease([&](quire_lease lease) {
                return w.api.lease_get_info(w.cache, lease, out, nullptr);
            });
        });
        output<quire_lease_result>([this](quire_lease_result *out) {
            return with_lease([&](quire_lease lease) {
                const quire_token token = 1;
                int32_t id = 0;
                return w.api.lease_match(w.cache, 0, lease, &token, 1, QUIRE_MATCH_LOOK, &id, out,
                                         nullptr);
            });
        });
    }

    void add_outputs() {
        output<quire_abandon_info>([this](quire_abandon_info *out) { return abandon(out); });
        output<quire_backend_info>([this](quire_backend_info *out) {
            return w.api.backend_get_info(w.instance, 0, out, nullptr);
        });
        output<quire_device_info>([this](quire_device_info *out) {
            return w.api.device_get_info(w.device, out, nullptr);
        });
        output<quire_memory_info>([this](quire_memory_info *out) {
            return w.api.memory_get_info(w.memory, out, nullptr);
        });
        output<quire_cache_info>(
            [this](quire_cache_info *out) { return w.api.cache_get_info(w.cache, out, nullptr); });
        output<quire_pool_info>([this](quire_pool_info *out) {
            return w.api.cache_get_pool(w.cache, 0, 0, out, nullptr);
        });
        output<quire_cache_stats>([this](quire_cache_stats *out) {
            return w.api.cache_get_stats(w.cache, out, nullptr);
        });
        output<quire_namespace_info>([this](quire_namespace_info *out) {
            return w.api.namespace_get_info(w.cache, w.ns, out, nullptr);
        });
        output<quire_events_info>([this](quire_events_info *out) {
            quire_cache_event event;
            return w.api.cache_events(w.cache, 0, &event, 1, sizeof event, nullptr, 0, out,
                                      nullptr);
        });
        output<quire_seq_info>([this](quire_seq_info *out) {
            return w.api.seq_get_info(w.cache, w.seq, out, nullptr);
        });
        output<quire_batch_views>([this](quire_batch_views *out) {
            return w.api.batch_get_views(w.batch, 0, 0, out, nullptr);
        });
    }

    Objects w;
    uint64_t address = 0;
    std::vector<Case> inputs, outputs;
};

std::set<std::string> names_of(const std::vector<Case> &cases) {
    std::set<std::string> names;
    for (const Case &c : cases) names.insert(c.rule->name);
    return names;
}

TEST_F(Exported, every_struct_of_the_rules_has_a_case) {
#define QUIRE_NAME_OF(type, ...) #type,
    EXPECT_EQ(names_of(inputs), (std::set<std::string>{QUIRE_INPUT_RULES(QUIRE_NAME_OF)}));
    EXPECT_EQ(names_of(outputs), (std::set<std::string>{QUIRE_OUTPUT_RULES(QUIRE_NAME_OF)}));
#undef QUIRE_NAME_OF
}

TEST_F(Exported, an_input_of_every_size_is_read_within_it) {
    for (const Case &c : inputs) EXPECT_EQ(InputCheck(c).problem(), "");
}

TEST_F(Exported, an_output_of_every_size_is_written_within_it) {
    for (const Case &c : outputs) EXPECT_EQ(output_problem(c), "") << c.rule->name;
}

TEST_F(Exported, an_error_is_written_within_its_size) {
    for (uint32_t size : {8u, 64u, uint32_t{sizeof(quire_error)} - 8}) {
        Guarded data(size, kPattern, size);
        EXPECT_EQ(w.api.seq_end(w.cache, 1, 0, data.as<quire_error>()), QUIRE_E_STALE);
        for (uint32_t i = 4; i < size; ++i) ASSERT_EQ(data.data()[i], kPattern) << size;
    }
    uint32_t size = sizeof(quire_error) + 16;  // a quire_error is aligned, whatever its size
    Guarded exact(sizeof(quire_error), kPattern, sizeof(quire_error)), longer(size, kPattern, size);
    EXPECT_EQ(w.api.seq_end(w.cache, 1, 0, exact.as<quire_error>()), QUIRE_E_STALE);
    EXPECT_EQ(exact.as<quire_error>()->status, QUIRE_E_STALE);
    EXPECT_EQ(w.api.seq_end(w.cache, 1, 0, longer.as<quire_error>()), QUIRE_E_STALE);
    for (uint32_t i = sizeof(quire_error); i < size; ++i) ASSERT_EQ(longer.data()[i], kPattern);
}

}  // namespace
