// SPDX-License-Identifier: Apache-2.0
//
// status: what a core function returns, and what an internal invariant does when it breaks.
//
// A Status carries a code and a static text with up to two numbers, so that making one never
// allocates. Running out of blocks is not a Status: it is part of a function's result.
#pragma once

#include "quire/base.h"

namespace quire {

struct [[nodiscard]] Status {
    quire_status code = QUIRE_OK;
    const char *text = nullptr;  // "{}" is the next of the two numbers, "{dtype}" its type's name
    uint64_t first = 0;
    uint64_t second = 0;

    bool ok() const { return code >= 0; }
};

inline Status fail(quire_status code, const char *text, uint64_t first = 0, uint64_t second = 0) {
    return Status{code, text, first, second};
}

// The hook is called when an invariant of the library is broken; it must not return. The exported
// functions install one that throws BrokenInvariant, which stops only the cache that the call is
// on; a test installs one to prove that a check fires.
struct BrokenInvariant {
    const char *expression;  // these live as long as the library
    const char *file;
    int line;
};
using AssertionHook = void (*)(const char *expression, const char *file, int line);
AssertionHook set_assertion_hook(AssertionHook hook);
[[noreturn]] void assertion_failed(const char *expression, const char *file, int line);

}  // namespace quire

// Stays on in release builds: a wrong table is worse than a stopped cache.
#define QUIRE_ASSERT(condition)                                        \
    do {                                                               \
        if (!(condition)) [[unlikely]]                                 \
            ::quire::assertion_failed(#condition, __FILE__, __LINE__); \
    } while (0)

#define QUIRE_TRY(expression)                                  \
    do {                                                       \
        ::quire::Status quire_try_status_ = (expression);      \
        if (!quire_try_status_.ok()) return quire_try_status_; \
    } while (0)
