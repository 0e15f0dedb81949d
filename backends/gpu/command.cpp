// SPDX-License-Identifier: Apache-2.0

#include "command.hpp"

#include <algorithm>
#include <cstring>

namespace quire::gpu {

void Command::keep() {
    if (kind == CommandKind::launch) keep_arguments();
    if (kind == CommandKind::copies) keep_copies();
}

void Command::keep_arguments() {
    size_t argument_bytes = argument_bytes_of(kernel);
    kept = std::make_unique<uint64_t[]>((argument_bytes + 7) / 8);
    std::memcpy(kept.get(), arguments, argument_bytes);
    arguments = reinterpret_cast<Head *>(kept.get());
}

void Command::keep_copies() {
    static_assert(sizeof(size_t) == sizeof(uint64_t));
    size_t count = copies.count;
    kept = std::make_unique<uint64_t[]>(3 * count);
    auto *sizes_bytes = reinterpret_cast<size_t *>(kept.get() + 2 * count);
    std::copy_n(copies.dsts, count, kept.get());
    std::copy_n(copies.srcs, count, kept.get() + count);
    std::copy_n(copies.sizes_bytes, count, sizes_bytes);
    copies = {kept.get(), kept.get() + count, sizes_bytes, count};
}

}  // namespace quire::gpu
