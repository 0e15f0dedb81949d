// SPDX-License-Identifier: Apache-2.0
//
// The names of a driver's results.

#include "machine.hpp"

namespace fakegpu {

const char *result_name(int result) {
    switch (result) {
        case kSuccess:
            return "no error";
        case kInvalidValue:
            return "invalid argument";
        case kOutOfMemory:
            return "out of memory";
        case kNotReady:
            return "device not ready";
        case kIllegalAddress:
            return "an illegal memory access was encountered";
        default:
            return "an error";
    }
}

}  // namespace fakegpu
