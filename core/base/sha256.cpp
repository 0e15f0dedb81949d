// SPDX-License-Identifier: Apache-2.0

#include "core/base/sha256.hpp"

#include <bit>

namespace quire {

static_assert(std::endian::native == std::endian::little, "numbers are added as they lie");

Sha256::Sha256() { SHA256Init(&state_); }

void Sha256::add(const void *bytes, uint64_t size_bytes) {
    SHA256Update(&state_, static_cast<const uint8_t *>(bytes), size_bytes);
}

void Sha256::add(uint32_t number) { add(&number, sizeof number); }

Digest Sha256::finish() {
    Digest out;
    SHA256Final(out.bytes, &state_);
    return out;
}

}  // namespace quire
