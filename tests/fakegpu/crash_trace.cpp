// SPDX-License-Identifier: Apache-2.0
//
// crash_trace: the stack of a process that a signal ends, on stderr. With a real driver a crash may
// come from the driver's own threads, on a machine where there is no debugger.
//
// Sanitizers report crashes themselves.

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

namespace quire::gpu_tests {

namespace {

constexpr int kMostFrames = 64;
alignas(16) std::array<unsigned char, size_t{64} << 10> signal_stack;

// Names of functions come from `addr2line -e PROGRAM OFFSET` where a frame shows an offset alone.
void print_stack(int number) {
    const char *name = sigabbrev_np(number);
    const char *words[] = {"the process is ended by SIG", name != nullptr ? name : "?", "\n"};
    for (const char *word : words) (void)!write(STDERR_FILENO, word, std::strlen(word));
    void *frames[kMostFrames];
    backtrace_symbols_fd(frames, backtrace(frames, kMostFrames), STDERR_FILENO);
    raise(number);  // SA_RESETHAND: ends the process
}

struct Installed {
    Installed() {
        void *first = nullptr;
        backtrace(&first, 1);  // loads what it needs now
        stack_t stack{};
        stack.ss_sp = signal_stack.data();
        stack.ss_size = signal_stack.size();
        sigaltstack(&stack, nullptr);
        struct sigaction action{};
        action.sa_handler = print_stack;
        action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
        for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT})
            sigaction(number, &action, nullptr);
    }
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
const Installed kInstalled;
#endif

}  // namespace

}  // namespace quire::gpu_tests
