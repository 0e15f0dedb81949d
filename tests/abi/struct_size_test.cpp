// SPDX-License-Identifier: Apache-2.0
//
// Every struct with a head, at every size, right before a page that must not be touched: through
// the rules by themselves, and through the exported function that takes it.
//
// The structs come from the two lists of abi/structs.hpp; one without a case here fails the test.
// The checks themselves are tried on readers and writers that break the rules.

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "abi/structs.hpp"
#include "guarded.hpp"
#include "objects.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;
using quire::abi::RuleOf;
using quire::abi::StructRule;

constexpr uint32_t kBeyond = 40;  // bytes of a newer version than this one
constexpr unsigned char kPattern = 0xAB;

using Fill = std::function<void(void *)>;
// Takes a struct; what it makes of it is gone again when it returns.
using Call = std::function<quire_status(void *data, uint32_t stride)>;

// One struct and how it gets into the library.
struct Case {
    const StructRule *rule;
    bool element;  // of an array: as many bytes as its stride says are the caller's
    Fill fill;     // fields that may not be 0
    Call call;
};

class InputCheck {
 public:
    explicit InputCheck(const Case &c) : case_(c), rule_(*c.rule) {}

    // What the library does wrong; empty when nothing.
    std::string problem() {
        expect("exact", rule_.size, QUIRE_OK, [](unsigned char *) {});
        expect("of the first version", rule_.first_size, QUIRE_OK, [](unsigned char *) {});
        expect("long with zeros", rule_.size + kBeyond, QUIRE_OK, [](unsigned char *) {});
        expect("short", rule_.first_size, QUIRE_E_STRUCT, sized(rule_.first_size - 1));
        expect("of no size", rule_.first_size, QUIRE_E_STRUCT, sized(0));
        expect("of a size that is garbage", rule_.first_size, QUIRE_E_STRUCT, sized(0xFFFFFFF8u));
        if (!case_.element) expect_bare();
        for (uint32_t i = 0; i < kBeyond; ++i) {
            expect("long with a byte that is set", rule_.size + kBeyond, QUIRE_E_STRUCT,
                   [&](unsigned char *data) { data[rule_.size + i] = 1; });
        }
        for (uint32_t bit = 0; bit < 32; ++bit) {
            uint32_t flag = 1u << bit;
            if ((rule_.known_flags & flag) != 0) continue;
            expect("with an unknown flag", rule_.size, QUIRE_E_STRUCT,
                   [&](unsigned char *data) { std::memcpy(data + 4, &flag, sizeof flag); });
        }
        expect("with a chain", rule_.size, QUIRE_E_STRUCT, [](unsigned char *data) {
            static const quire_chain chain{};
            const quire_chain *next = &chain;
            std::memcpy(data + 8, &next, sizeof next);
        });
        for (uint32_t i = 0; i < rule_.reserved.size_bytes; ++i) {
            expect("with a reserved byte", rule_.size, QUIRE_E_STRUCT,
                   [&](unsigned char *data) { data[rule_.reserved.offset + i] = 1; });
        }
        return problem_;
    }

 private:
    static Fill sized(uint32_t size) {
        return [size](void *data) { std::memcpy(data, &size, sizeof size); };
    }
    // No byte is the caller's but those that its size names.
    void expect_bare() {
        for (uint32_t size : {0u, 4u, rule_.first_size - 1, 0xFFFFFFF8u}) {
            uint32_t bytes = size == rule_.first_size - 1 ? size : 4;
            Guarded data(bytes);
            std::memcpy(data.data(), &size, sizeof size);
            note("bare", case_.call(data.data(), bytes), QUIRE_E_STRUCT);
        }
        note("NULL", case_.call(nullptr, 0), QUIRE_E_ARG);
    }
    template <typename Change>
    void expect(const char *what, uint32_t size, quire_status status, Change &&change) {
        Guarded data(size, 0, size);
        case_.fill(data.data());
        change(data.data());
        note(what, case_.call(data.data(), size), status);
    }
    void note(const char *what, quire_status got, quire_status wanted) {
        if (got == wanted || !problem_.empty()) return;
        problem_ = std::string(rule_.name) + " " + what + ": " + std::to_string(got) +
                   " instead of " + std::to_string(wanted);
    }

    const Case &case_;
    const StructRule &rule_;
    std::string problem_;
};

std::string output_problem(const Case &c) {
    const StructRule &rule = *c.rule;
    for (uint32_t size : {0u, 4u, rule.first_size - 1, 0xFFFFFFF8u}) {
        uint32_t bytes = size == rule.first_size - 1 ? size : 4;
        Guarded data(bytes, kPattern);
        std::memcpy(data.data(), &size, sizeof size);
        if (c.call(data.data(), 0) != QUIRE_E_STRUCT) return "a bad size is taken";
        for (uint32_t i = 4; i < bytes; ++i) {
            if (data.data()[i] != kPattern) return "a struct that was refused is written to";
        }
    }
    for (uint32_t size : {rule.first_size, rule.size, rule.size + kBeyond}) {
        Guarded data(size, kPattern, size);
        if (c.call(data.data(), 0) != QUIRE_OK) return "a good size is refused";
        uint32_t left = 0;
        std::memcpy(&left, data.data(), sizeof left);
        if (left != size) return "struct_size is written";
        for (uint32_t i = 8; i < 16; ++i) {
            if (data.data()[i] != kPattern) return "next is written";
        }
        bool written = false;
        for (uint32_t i = 16; i < size; ++i) {
            bool same = data.data()[i] == kPattern;
            if (i >= rule.size && !same) return "bytes that are not known are written";
            written = written || !same;
        }
        if (!written) return "nothing is written";
    }
    return c.call(nullptr, 0) == QUIRE_E_ARG ? "" : "NULL is taken";
}

template <typename T>
Case by_rule() {
    return {&RuleOf<T>::value, false, [](void *) {},
            [](void *data, uint32_t) {
                T full;
                return quire::abi::read(static_cast<const T *>(data), &full).code;
            }};
}

template <typename T>
Case written_by_rule() {
    return {&RuleOf<T>::value, false, [](void *) {},
            [](void *data, uint32_t) {
                T *out = static_cast<T *>(data);
                quire::Status checked = quire::abi::check_output(out);
                if (!checked.ok()) return checked.code;
                quire::abi::write(T{}, out);
                return quire_status{QUIRE_OK};
            }};
}

TEST(StructSize, the_rules_read_no_byte_too_many){
#define QUIRE_TRY_RULE(type, ...)               \
    {                                           \
        Case c = by_rule<type>();               \
        EXPECT_EQ(InputCheck(c).problem(), ""); \
    }
    QUIRE_INPUT_RULES(QUIRE_TRY_RULE)
#undef QUIRE_TRY_RULE
}

TEST(StructSize, the_rules_write_no_byte_too_many) {
#define QUIRE_TRY_RULE(type, ...) EXPECT_EQ(output_problem(written_by_rule<type>()), "") << #type;
    QUIRE_OUTPUT_RULES(QUIRE_TRY_RULE)
#undef QUIRE_TRY_RULE
}

TEST(StructSize, an_output_of_an_older_client_is_written_up_to_its_size) {
    for (uint32_t size = 24; size <= sizeof(quire_cache_stats); size += 8) {
        Guarded data(size, kPattern, size);
        quire::abi::write(quire_cache_stats{}, data.as<quire_cache_stats>());
        EXPECT_EQ(data.data()[size - 1], 0);
    }
}

// The checks can fail: each of these breaks one rule.

Case careless(const Call &call) {
    return {&RuleOf<quire_seq_desc>::value, false, [](void *) {}, call};
}

TEST(StructSize, a_reader_that_ignores_the_callers_size_is_caught) {
    Case c = careless([](void *data, uint32_t) {
        if (data == nullptr) return quire_status{QUIRE_E_ARG};
        quire_seq_desc full;
        std::memcpy(&full, data, sizeof full);
        return full.struct_size < sizeof full ? quire_status{QUIRE_E_STRUCT}
                                              : quire_status{QUIRE_OK};
    });
    EXPECT_TRUE(ends_the_process([&] { InputCheck(c).problem(); }));
}

TEST(StructSize, a_writer_that_ignores_the_callers_size_is_caught) {
    Case c{&RuleOf<quire_seq_info>::value, false, [](void *) {},
           [](void *data, uint32_t) {
               std::memset(data, 0, sizeof(quire_seq_info));
               return quire_status{QUIRE_OK};
           }};
    EXPECT_TRUE(ends_the_process([&] { output_problem(c); }));
    EXPECT_FALSE(ends_the_process([] {})) << "the check itself";
}

TEST(StructSize, rules_that_are_planted_wrong_are_caught) {
    auto with = [](StructRule rule) {
        auto held = std::make_shared<StructRule>(rule);
        return Call([held](void *data, uint32_t) {
            quire_seq_desc full;
            return quire::abi::read_struct(*held, data, &full).code;
        });
    };
    StructRule rule = RuleOf<quire_seq_desc>::value;
    Case right = careless(with(rule));
    EXPECT_EQ(InputCheck(right).problem(), "");
    for (auto spoil :
         {+[](StructRule *r) { r->first_size = 8; }, +[](StructRule *r) { r->first_size += 8; },
          +[](StructRule *r) { r->size -= 8; }, +[](StructRule *r) { r->known_flags = 4; },
          +[](StructRule *r) { r->reserved.size_bytes = 0; },
          +[](StructRule *r) { r->reserved.offset -= 4; }}) {
        StructRule wrong = rule;
        spoil(&wrong);
        Case c = careless(with(wrong));
        EXPECT_TRUE(ends_the_process([&] { _exit(InputCheck(c).problem().empty() ? 0 : 1); }));
    }
}

// Through the exported functions.
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
    template <typename T, typename Body>
    void output(Body &&body) {
        outputs.push_back({&RuleOf<T>::value, false, [](void *) {},
                           [body](void *data, uint32_t) { return body(static_cast<T *>(data)); }});
    }

    void add_plain() {
        input<quire_instance_desc>([](quire_instance_desc *) {},
                                   [this](const quire_instance_desc *desc, uint32_t) {
                                       quire_instance *out = nullptr;
                                       quire_status s = w.api.instance_create(desc, &out, nullptr);
                                       if (s == 0) w.api.instance_destroy(out, nullptr);
                                       return s;
                                   });
        input<quire_device_desc>(
            [](quire_device_desc *desc) { desc->backend = "cpu", desc->threads = 1; },
            [this](const quire_device_desc *desc, uint32_t) {
                quire_device *out = nullptr;
                quire_status s = w.api.device_open(w.instance, desc, &out, nullptr);
                if (s == 0) w.api.device_close(out, nullptr);
                return s;
            });
        input<quire_memory_desc>([](quire_memory_desc *desc) { desc->size_bytes = 64; },
                                 [this](const quire_memory_desc *desc, uint32_t) {
                                     quire_memory *out = nullptr;
                                     quire_status s =
                                         w.api.memory_create(w.device, desc, &out, nullptr);
                                     if (s == 0) w.api.memory_destroy(out, nullptr);
                                     return s;
                                 });
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
        input<quire_namespace_desc>([](quire_namespace_desc *) {},
                                    [this](const quire_namespace_desc *desc, uint32_t) {
                                        quire_namespace out = 0;
                                        quire_status s =
                                            w.api.namespace_create(w.cache, desc, &out, nullptr);
                                        if (s == 0) w.api.namespace_destroy(w.cache, out, nullptr);
                                        return s;
                                    });
        input<quire_seq_desc>([](quire_seq_desc *) {},
                              [this](const quire_seq_desc *desc, uint32_t) {
                                  quire_seq out = 0;
                                  quire_status s = w.api.seq_create(w.cache, desc, &out, nullptr);
                                  if (s == 0) w.api.seq_end(w.cache, out, 0, nullptr);
                                  return s;
                              });
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
    }

    void add_outputs() {
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
    for (uint32_t size : {4u, 8u, 64u, uint32_t{sizeof(quire_error)} - 1}) {
        Guarded data(size, kPattern, size);
        EXPECT_EQ(w.api.seq_end(w.cache, 1, 0, data.as<quire_error>()), QUIRE_E_STALE);
        for (uint32_t i = 4; i < size; ++i) ASSERT_EQ(data.data()[i], kPattern) << size;
    }
    uint32_t size = sizeof(quire_error) + kBeyond;
    Guarded exact(sizeof(quire_error), kPattern, sizeof(quire_error)), longer(size, kPattern, size);
    EXPECT_EQ(w.api.seq_end(w.cache, 1, 0, exact.as<quire_error>()), QUIRE_E_STALE);
    EXPECT_EQ(exact.as<quire_error>()->status, QUIRE_E_STALE);
    EXPECT_EQ(w.api.seq_end(w.cache, 1, 0, longer.as<quire_error>()), QUIRE_E_STALE);
    for (uint32_t i = sizeof(quire_error); i < size; ++i) ASSERT_EQ(longer.data()[i], kPattern);
}

}  // namespace
