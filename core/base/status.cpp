// SPDX-License-Identifier: Apache-2.0

#include "core/base/status.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace quire {

namespace {

void print_and_abort(const char *expression, const char *file, int line) {
    std::fprintf(stderr, "quire: broken invariant: %s (%s:%d)\n", expression, file, line);
    std::abort();
}

std::atomic<AssertionHook> g_hook{print_and_abort};

}  // namespace

AssertionHook set_assertion_hook(AssertionHook hook) {
    return g_hook.exchange(hook != nullptr ? hook : print_and_abort);
}

void assertion_failed(const char *expression, const char *file, int line) {
    g_hook.load()(expression, file, line);
    std::abort();
}

}  // namespace quire
