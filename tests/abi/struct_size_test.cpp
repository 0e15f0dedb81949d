// SPDX-License-Identifier: Apache-2.0
//
// The rules for structs by themselves, at every size; the structs come from the two lists of
// abi/structs.hpp. The checks are also tried on readers, writers and rules that are wrong.

#include <gtest/gtest.h>

#include <memory>

#include "struct_check.hpp"

namespace {

using namespace quire::test;

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
    return {&RuleOf<quire_merge_args>::value, false, [](void *) {}, call};
}

TEST(StructSize, a_reader_that_ignores_the_callers_size_is_caught) {
    Case c = careless([](void *data, uint32_t) {
        if (data == nullptr) return quire_status{QUIRE_E_ARG};
        quire_merge_args full;
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
            quire_merge_args full;
            std::memset(&full, 0xEE, sizeof full);  // unwritten bytes show
            return quire::abi::read_struct(*held, data, &full).code;
        });
    };
    StructRule rule = RuleOf<quire_merge_args>::value;
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

}  // namespace
