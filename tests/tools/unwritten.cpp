// SPDX-License-Identifier: Apache-2.0
//
// Branches on an unwritten byte. Only valgrind notices; without it this exits with 0.

#include <cstdio>
#include <cstdlib>

int main() {
    void *(*volatile allocate)(std::size_t) = std::malloc;  // else the compiler sees it too
    auto *bytes = static_cast<char *>(allocate(16));
    if (bytes[7] == 42) std::puts("by chance");
    std::free(bytes);
    return 0;
}
