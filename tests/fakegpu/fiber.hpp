// SPDX-License-Identifier: Apache-2.0
//
// fiber: a function with its own stack, which runs until it yields.
//
// Why not ucontext: it saves the signal mask by a system call at each switch, and a barrier of 64
// threads is 128 switches.
//
// Threads: a fiber stays on the thread that first resumed it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fakegpu {

// The stacks of a block's threads, each with an inaccessible guard page below it.
class Stacks {
 public:
    static constexpr size_t kStackBytes = 64 << 10;

    Stacks() = default;
    Stacks(const Stacks &) = delete;
    Stacks &operator=(const Stacks &) = delete;
    ~Stacks();

    // Makes at least `count` stacks; those handed out before are gone.
    void reserve(uint32_t count);
    // One past the stack's last byte.
    unsigned char *top(uint32_t index) const { return memory_ + (index + 1) * kSpan; }

 private:
    static constexpr size_t kGuardBytes = 4096;
    static constexpr size_t kSpan = kStackBytes + kGuardBytes;

    void unmap();

    unsigned char *memory_ = nullptr;
    uint32_t count_ = 0;
};

class Fiber {
 public:
    // `body(argument)` begins at the first resume(); it must end in give_way() and never return.
    void prepare(unsigned char *stack_top, void (*body)(void *), void *argument);
    void resume();
    // REQUIRES: called inside the fiber.
    void give_way();

 private:
    void *own_ = nullptr;
    void *other_ = nullptr;
};

}  // namespace fakegpu
