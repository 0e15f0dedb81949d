// SPDX-License-Identifier: Apache-2.0

#include "memory_use.hpp"

#include <algorithm>
#include <set>

namespace decoding {

MemoryUse memory_use(const Decoder &decoder, std::span<const uint64_t> texts, size_t block_count) {
    MemoryUse use;
    std::set<int32_t> held;
    for (const uint64_t text : texts) {
        const std::vector<int32_t> blocks = decoder.blocks(text);
        const size_t count = std::min(blocks.size(), block_count);
        held.insert(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count));
        use.copies += count;
    }
    use.held = held.size();
    return use;
}

}  // namespace decoding
