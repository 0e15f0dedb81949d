// SPDX-License-Identifier: Apache-2.0
//
// require: stops the process where a promise does not hold, so that the fuzzer keeps the input.
//
// Threads: any.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "quire/base.h"

namespace quire::fuzz {

[[noreturn]] inline void broken(const char *promise, const char *detail = "") {
    std::fprintf(stderr, "broken promise: %s %s\n", promise, detail);
    std::abort();
}

inline void require(bool holds, const char *promise, const char *detail = "") {
    if (!holds) broken(promise, detail);
}

// A refusal has words, and they end within the message.
inline void require_words(quire_status status, const quire_error &error) {
    if (status >= 0) return;
    require(error.message[0] != 0, "a refusal says why");
    for (char c : error.message) {
        if (c == 0) return;
    }
    broken("a message ends");
}

inline quire_error new_error() {
    quire_error error{};
    error.struct_size = sizeof error;
    return error;
}

}  // namespace quire::fuzz
