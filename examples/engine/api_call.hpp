// SPDX-License-Identifier: Apache-2.0
//
// api_call: how the engine calls a function of Quire's table.

#pragma once

#include "failure.hpp"
#include "quire/api.h"

namespace engine {

template <typename T>
T described() {
    T desc{};
    desc.struct_size = sizeof(T);
    return desc;
}

// Calls one function of the table. Each takes a quire_error last, whose message names the function.
template <typename... Parameters, typename... Arguments>
quire_status call(quire_status (*function)(Parameters...), Arguments... arguments) {
    auto error = described<quire_error>();
    const quire_status status = function(arguments..., &error);
    if (status < 0) {
        throw Failure(error.message);
    }
    return status;
}

}  // namespace engine
