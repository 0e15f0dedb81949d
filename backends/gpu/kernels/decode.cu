// SPDX-License-Identifier: Apache-2.0
//
// decode: the kernels of decode.hpp, one for each format and head dim that it serves.

#include "decode.hpp"

namespace quire::gpu {

#define QUIRE_DECODE(name, format, dim)                                                       \
    QUIRE_KERNEL_OF_BLOCKS(quire_decode_##name##_##dim, 128, (dim == 64 ? 3 : 2), AttendCall, \
                           call) {                                                            \
        decode<format, dim>(call);                                                            \
    }
QUIRE_DECODE_INSTANCES(QUIRE_DECODE)

}  // namespace quire::gpu
