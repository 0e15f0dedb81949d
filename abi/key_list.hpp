// SPDX-License-Identifier: Apache-2.0
//
// key_list: reads the keys of a sequence's or lease's description.
#pragma once

#include <cstring>

#include "abi/structs.hpp"
#include "core/steps/sequence_keys.hpp"

namespace quire::abi {

// keys: [kMaxKeys]
template <typename Desc>
Status read_keys(const Desc &desc, quire_key *keys) {
    if (desc.key_count > kMaxKeys) {
        return fail(QUIRE_E_LIMIT, "key_count is {}: at most {}", desc.key_count, kMaxKeys);
    }
    QUIRE_TRY(check_array(desc.keys, desc.key_count, desc.key_stride));
    for (uint32_t i = 0; i < desc.key_count; ++i) {
        const char *at = reinterpret_cast<const char *>(desc.keys) + uint64_t{i} * desc.key_stride;
        std::memcpy(&keys[i], at, sizeof keys[i]);
    }
    return Status{};
}

}  // namespace quire::abi
