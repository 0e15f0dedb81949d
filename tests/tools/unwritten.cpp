// SPDX-License-Identifier: Apache-2.0
//
// Decides by a byte that nobody wrote. Only valgrind notices; without it this ends well.

#include <cstdio>
#include <cstdlib>

int main() {
    void *(*volatile allocate)(std::size_t) = std::malloc;  // else the compiler sees it too
    auto *bytes = static_cast<char *>(allocate(16));
    if (bytes[7] == 42) std::puts("by chance");
    std::free(bytes);
    return 0;
}
