// SPDX-License-Identifier: Apache-2.0
//
// The exported function of size.h.

#include "abi/guard.hpp"
#include "core/base/sizing.hpp"

extern "C" quire_status quire_size_estimate(const quire_size_desc *desc, quire_size_info *info,
                                            quire_error *error) {
    using namespace quire::abi;
    return guard("size_estimate", error, [&](quire_error *) -> quire::Status {
        quire_size_desc known;
        quire_size_info full{};
        QUIRE_TRY(read(desc, &known));
        QUIRE_TRY(check_output(info));
        QUIRE_TRY(quire::estimate_size(known, &full));
        write(full, info);
        return quire::Status{};
    });
}
