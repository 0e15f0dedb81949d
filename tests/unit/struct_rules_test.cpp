// SPDX-License-Identifier: Apache-2.0
//
// The rules of base.h for structs, tried on one input, one output and one array.

#include <cstring>

#include "manager.hpp"

namespace {

using namespace quire::test;

// A description from a client of another version: exactly as many bytes as its size says.
struct Bytes {
    alignas(8) unsigned char data[256] = {};

    explicit Bytes(uint32_t size) { std::memcpy(data, &size, sizeof size); }
    template <typename T>
    const T *as() const {
        return reinterpret_cast<const T *>(data);
    }
    template <typename T>
    T *as() {
        return reinterpret_cast<T *>(data);
    }
};

struct Rules : testing::Test {
    Manager m;

    quire_status create(const Bytes &desc) {
        quire_seq out = 0;
        uint64_t before = m.stats().sequences;
        quire_status status =
            m.api().seq_create(m.cache(), desc.as<quire_seq_desc>(), &out, m.error());
        EXPECT_EQ(m.stats().sequences, before + (status == QUIRE_OK ? 1 : 0));
        return status;
    }
};

TEST_F(Rules, a_struct_shorter_than_the_first_version_is_refused) {
    EXPECT_EQ(create(Bytes(0)), QUIRE_E_STRUCT);
    EXPECT_EQ(create(Bytes(4)), QUIRE_E_STRUCT);
    EXPECT_EQ(create(Bytes(sizeof(quire_seq_desc) - 8)), QUIRE_E_STRUCT);
    EXPECT_EQ(create(Bytes(sizeof(quire_seq_desc))), QUIRE_OK);
}

TEST_F(Rules, a_longer_struct_is_taken_when_the_rest_is_zero) {
    Bytes longer(200);
    EXPECT_EQ(create(longer), QUIRE_OK);
    longer.data[199] = 1;
    EXPECT_EQ(create(longer), QUIRE_E_STRUCT);
    EXPECT_NE(m.message().find("byte"), std::string::npos) << m.message();
    longer.data[199] = 0;
    longer.data[sizeof(quire_seq_desc)] = 1;
    EXPECT_EQ(create(longer), QUIRE_E_STRUCT);
    EXPECT_EQ(create(Bytes(1u << 30)), QUIRE_E_STRUCT) << "a size that is garbage is not read";
}

TEST_F(Rules, unknown_flags_chains_and_reserved_fields_are_refused) {
    auto desc = described<quire_seq_desc>();
    quire_seq out = 0;
    auto create_with = [&](auto change) {
        quire_seq_desc changed = desc;
        change(&changed);
        return m.api().seq_create(m.cache(), &changed, &out, m.error());
    };
    quire_chain chain{};
    EXPECT_EQ(create_with([](quire_seq_desc *d) { d->flags = 1; }), QUIRE_E_STRUCT);
    EXPECT_EQ(create_with([&](quire_seq_desc *d) { d->next = &chain; }), QUIRE_E_STRUCT);
    EXPECT_EQ(m.api().seq_create(m.cache(), nullptr, &out, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(m.api().seq_create(m.cache(), &desc, nullptr, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(m.api().seq_create(nullptr, &desc, &out, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(m.stats().sequences, 0u);
}

TEST_F(Rules, an_output_is_written_up_to_the_callers_size) {
    Bytes longer(240);
    std::memset(longer.data + 8, 0xAB, sizeof longer.data - 8);
    EXPECT_EQ(m.api().cache_get_info(m.cache(), longer.as<quire_cache_info>(), m.error()),
              QUIRE_OK);
    EXPECT_EQ(longer.as<quire_cache_info>()->block_tokens, 4u);
    EXPECT_EQ(longer.as<quire_cache_info>()->struct_size, 240u);
    for (size_t i = sizeof(quire_cache_info); i < sizeof longer.data; ++i) {
        ASSERT_EQ(longer.data[i], 0xAB);
    }
    Bytes shorter(56);  // the first version had 64 bytes
    EXPECT_EQ(m.api().cache_get_info(m.cache(), shorter.as<quire_cache_info>(), m.error()),
              QUIRE_E_STRUCT);
    EXPECT_EQ(m.api().cache_get_info(m.cache(), nullptr, m.error()), QUIRE_E_ARG);
}

TEST_F(Rules, elements_of_arrays_travel_with_their_stride) {
    struct Newer {
        quire_step_item item;
        uint64_t unknown;
    };
    quire_seq a = m.sequence(), b = m.sequence();
    Newer items[2] = {};
    items[0].item.seq = a, items[1].item.seq = b;
    items[0].item.token_count = items[1].item.token_count = 2;
    quire_token tokens[] = {1, 2};
    struct {
        quire_step_result result;
        uint32_t guard[5];
    } results[2] = {};
    auto add = [&](uint32_t stride, quire_step_result *out, uint32_t result_stride) {
        return m.api().step_add(m.cache(), m.open(), &items[0].item, 2, stride, tokens, 2, out,
                                result_stride, m.error());
    };
    m.begin();
    items[1].unknown = 1;
    EXPECT_EQ(add(sizeof items[0], &results[0].result, sizeof results[0]), QUIRE_E_STRUCT);
    items[1].unknown = 0;
    constexpr uint32_t kFirst = 40;  // bytes of the first published item
    EXPECT_EQ(add(kFirst - 8, &results[0].result, sizeof results[0]), QUIRE_E_ARG);
    EXPECT_EQ(add(sizeof items[0], nullptr, sizeof results[0]), QUIRE_E_ARG);
    EXPECT_EQ(add(sizeof items[0], &results[0].result, 8), QUIRE_E_ARG);
    EXPECT_EQ(m.info(a).known_tokens, 0u);
    EXPECT_EQ(add(sizeof items[0], &results[0].result, sizeof results[0]), QUIRE_OK);
    EXPECT_EQ(results[1].result.row, 1u);
    EXPECT_EQ(results[0].guard[0], 0u);
}

TEST_F(Rules, an_error_says_which_function_and_is_optional) {
    EXPECT_EQ(m.api().seq_end(m.cache(), 1, 0, nullptr), QUIRE_E_STALE);
    EXPECT_EQ(m.api().seq_end(m.cache(), 1, 0, m.error()), QUIRE_E_STALE);
    EXPECT_EQ(m.error()->status, QUIRE_E_STALE);
    EXPECT_EQ(m.message().rfind("quire_seq_end: ", 0), 0u) << m.message();
    quire_error unset{};  // struct_size 0: nothing is written
    EXPECT_EQ(m.api().seq_end(m.cache(), 1, 0, &unset), QUIRE_E_STALE);
    EXPECT_EQ(unset.status, 0);
}

TEST_F(Rules, unknown_flags_of_steps_and_queues_are_refused) {
    auto begin = [&](auto change) {
        auto desc = described<quire_step_desc>();
        change(&desc);
        quire_step out = 0;
        return m.api().step_begin(m.cache(), &desc, nullptr, 0, 0, nullptr, 0, nullptr, 0, &out,
                                  m.error());
    };
    EXPECT_EQ(begin([](quire_step_desc *d) { d->flags = 2; }), QUIRE_E_STRUCT);
    EXPECT_EQ(begin([](quire_step_desc *d) { d->preempt = 3; }), QUIRE_E_ARG);
    EXPECT_EQ(begin([](quire_step_desc *d) { d->queue_count = 1; }), QUIRE_E_ARG);
    EXPECT_EQ(begin([](quire_step_desc *d) { d->queue_tag = UINT64_MAX; }), QUIRE_E_ARG);
    m.begin();  // none of them opened a step
}

}  // namespace
