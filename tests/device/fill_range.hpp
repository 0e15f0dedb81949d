// SPDX-License-Identifier: Apache-2.0
//
// fill_range: sets one range of bytes to a value, the fill that most tests need.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::test {

inline quire_status fill_range(const quire_backend_api &api, quire_be_queue *queue,
                               uint64_t address, uint64_t size_bytes, uint32_t byte,
                               quire_error *error) {
    quire_be_range range = {address, size_bytes};
    return api.fill(queue, &range, 1, byte, error);
}

}  // namespace quire::test
