// SPDX-License-Identifier: Apache-2.0
//
// Two threads add to one number without a lock.

#include <thread>

int number = 0;

int main() {
    std::thread other([] { ++number; });
    ++number;
    other.join();
    return 0;
}
