// SPDX-License-Identifier: Apache-2.0

#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

// Saves the callee-saved registers and the stack pointer in *save; continues on the other stack.
extern "C" void fakegpu_switch(void **save, void *to);
// The first code of a new fiber: calls what prepare() left in registers.
extern "C" void fakegpu_begin();

#if defined(__x86_64__)
asm(R"(
.text
.hidden fakegpu_switch
.globl fakegpu_switch
.type fakegpu_switch, @function
fakegpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size fakegpu_switch, .-fakegpu_switch
.hidden fakegpu_begin
.globl fakegpu_begin
.type fakegpu_begin, @function
fakegpu_begin:
    movq %r13, %rdi
    call *%r12
    ud2
.size fakegpu_begin, .-fakegpu_begin
)");
#elif defined(__aarch64__)
asm(R"(
.text
.hidden fakegpu_switch
.globl fakegpu_switch
.type fakegpu_switch, %function
fakegpu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size fakegpu_switch, .-fakegpu_switch
.hidden fakegpu_begin
.globl fakegpu_begin
.type fakegpu_begin, %function
fakegpu_begin:
    mov x0, x20
    blr x19
    brk #1
.size fakegpu_begin, .-fakegpu_begin
)");
#else
#error "fiber.cpp knows x86-64 and aarch64"
#endif

namespace fakegpu {

Stacks::~Stacks() { unmap(); }

void Stacks::unmap() {
    if (memory_ == nullptr) return;
#if defined(__SANITIZE_ADDRESS__)
    // Fibers may have been abandoned here with their frames marked; what is mapped next is not.
    __asan_unpoison_memory_region(memory_, count_ * kSpan);
#endif
    munmap(memory_, count_ * kSpan);
    memory_ = nullptr;
}

void Stacks::reserve(uint32_t count) {
    if (count <= count_) return;
    unmap();
    count_ = count;
    void *made =
        mmap(nullptr, count * kSpan, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) {
        std::perror("fakegpu: the stacks of a block");
        std::abort();
    }
    memory_ = static_cast<unsigned char *>(made);
    for (uint32_t i = 0; i < count; ++i) mprotect(memory_ + i * kSpan, kGuardBytes, PROT_NONE);
}

void Fiber::prepare(unsigned char *stack_top, void (*body)(void *), void *argument) {
#if defined(__SANITIZE_ADDRESS__)
    // An earlier fiber may have been abandoned, with its frames still marked.
    __asan_unpoison_memory_region(stack_top - Stacks::kStackBytes, Stacks::kStackBytes);
#endif
    auto **at = reinterpret_cast<void **>(stack_top);
#if defined(__x86_64__)
    // As fakegpu_switch() leaves it; the stack is aligned to 16 bytes where the body is called.
    at -= 1;
    *at = reinterpret_cast<void *>(fakegpu_begin);
    at -= 6;
    at[0] = at[1] = at[4] = at[5] = nullptr;  // r15, r14, rbx, rbp
    at[3] = reinterpret_cast<void *>(body);   // r12
    at[2] = argument;                         // r13
#else
    at -= 20;
    for (int i = 0; i < 20; ++i) at[i] = nullptr;
    at[0] = reinterpret_cast<void *>(body);  // x19
    at[1] = argument;                        // x20
    at[11] = reinterpret_cast<void *>(fakegpu_begin);
#endif
    own_ = at;
}

void Fiber::resume() { fakegpu_switch(&other_, own_); }

void Fiber::give_way() { fakegpu_switch(&own_, other_); }

}  // namespace fakegpu
