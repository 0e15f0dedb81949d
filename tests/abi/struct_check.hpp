// SPDX-License-Identifier: Apache-2.0
//
// struct_check: the promises of base.h about a struct with a head, tried at every size right before
// a guard page.
//
// A Case is one struct and a way to pass it in; the checks return a message, so that a test can try
// them on readers and writers that break the rules.
//
// Threads: none.
#pragma once

#include <functional>
#include <string>

#include "abi/structs.hpp"
#include "guarded.hpp"

namespace quire::test {

using abi::RuleOf;
using abi::StructRule;

inline constexpr uint32_t kBeyond = 40;  // bytes that only a newer version knows
inline constexpr unsigned char kPattern = 0xAB;

using Fill = std::function<void(void *)>;
// Passes the struct to the library; anything the call creates is destroyed before it returns.
using Call = std::function<quire_status(void *data, uint32_t stride)>;

// One struct and how it gets into the library.
struct Case {
    const StructRule *rule;
    bool element;  // of an array: the caller owns as many bytes as its stride says
    Fill fill;     // sets fields that may not be 0
    Call call;
};

class InputCheck {
 public:
    explicit InputCheck(const Case &c) : case_(c), rule_(*c.rule) {}

    // The library's first mistake; empty if none.
    std::string problem() {
        expect("exact", rule_.size, QUIRE_OK, [](unsigned char *) {});
        expect("of the first version", rule_.first_size, QUIRE_OK, [](unsigned char *) {});
        expect("long with zeros", rule_.size + kBeyond, QUIRE_OK, [](unsigned char *) {});
        expect("short", rule_.first_size, QUIRE_E_STRUCT, sized(rule_.first_size - 1));
        expect("of size 0", rule_.first_size, QUIRE_E_STRUCT, sized(0));
        expect("with a garbage size", rule_.first_size, QUIRE_E_STRUCT, sized(0xFFFFFFF8u));
        if (!case_.element) expect_bare();
        for (uint32_t i = 0; i < kBeyond; ++i) {
            expect("long with a nonzero byte", rule_.size + kBeyond, QUIRE_E_STRUCT,
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
    // The caller owns only the bytes within the struct's size.
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

inline std::string output_problem(const Case &c) {
    const StructRule &rule = *c.rule;
    for (uint32_t size : {0u, 4u, rule.first_size - 1, 0xFFFFFFF8u}) {
        uint32_t bytes = size == rule.first_size - 1 ? size : 4;
        Guarded data(bytes, kPattern);
        std::memcpy(data.data(), &size, sizeof size);
        if (c.call(data.data(), 0) != QUIRE_E_STRUCT) return "a bad size is taken";
        for (uint32_t i = 4; i < bytes; ++i) {
            if (data.data()[i] != kPattern) return "a refused struct is written to";
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
            if (i >= rule.size && !same) return "unknown bytes are written";
            written = written || !same;
        }
        if (!written) return "nothing is written";
    }
    return c.call(nullptr, 0) == QUIRE_E_ARG ? "" : "NULL is taken";
}

}  // namespace quire::test
