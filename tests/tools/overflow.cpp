// SPDX-License-Identifier: Apache-2.0
//
// Writes one byte past the end of its allocation.

#include <cstdlib>

int main() {
    volatile unsigned long size = 16;
    auto *bytes = static_cast<volatile char *>(std::malloc(size));
    bytes[size] = 1;
    std::free(const_cast<char *>(bytes));
    return 0;
}
