// SPDX-License-Identifier: Apache-2.0

#include "command.hpp"

#include <cstring>

namespace quire::gpu {

void Command::keep() {
    if (kind != CommandKind::launch) return;
    size_t argument_bytes = argument_bytes_of(kernel);
    kept = std::make_unique<unsigned char[]>(argument_bytes);
    std::memcpy(kept.get(), arguments, argument_bytes);
    arguments = reinterpret_cast<Head *>(kept.get());
}

}  // namespace quire::gpu
