// SPDX-License-Identifier: Apache-2.0
//
// The table of all functions, made from the one list in api.h.

#include "abi/guard.hpp"

namespace {

#define QUIRE_TABLE_ENTRY(name, parameters) quire_##name,
constexpr quire_api kTable = {sizeof(quire_api), QUIRE_VERSION_MAJOR, QUIRE_VERSION_MINOR, 0,
                              QUIRE_API_LIST(QUIRE_TABLE_ENTRY)};
#undef QUIRE_TABLE_ENTRY

}  // namespace

extern "C" {

quire_status quire_get_api(uint32_t major, uint32_t min_minor, const quire_api **out,
                           quire_error *error) {
    return quire::abi::guard("get_api", error, [&](quire_error *) -> quire::Status {
        if (out == nullptr) return quire::fail(QUIRE_E_ARG, "out is NULL");
        if (major != QUIRE_VERSION_MAJOR || min_minor > QUIRE_VERSION_MINOR) {
            return quire::fail(QUIRE_E_INCOMPATIBLE,
                               "version {}.{} was requested, but this library is 0.1", major,
                               min_minor);
        }
        *out = &kTable;
        return quire::Status{};
    });
}

const char *quire_status_name(quire_status status) {
    switch (status) {
#define QUIRE_NAME(code) \
    case code:           \
        return #code;
        QUIRE_NAME(QUIRE_OK)
        QUIRE_NAME(QUIRE_S_INCOMPLETE)
        QUIRE_NAME(QUIRE_S_NO_BLOCKS)
        QUIRE_NAME(QUIRE_S_TIMEOUT)
        QUIRE_NAME(QUIRE_E_ARG)
        QUIRE_NAME(QUIRE_E_STALE)
        QUIRE_NAME(QUIRE_E_BUSY)
        QUIRE_NAME(QUIRE_E_UNSUPPORTED)
        QUIRE_NAME(QUIRE_E_STRUCT)
        QUIRE_NAME(QUIRE_E_HOST_MEMORY)
        QUIRE_NAME(QUIRE_E_DEVICE_MEMORY)
        QUIRE_NAME(QUIRE_E_DEVICE_LOST)
        QUIRE_NAME(QUIRE_E_BACKEND)
        QUIRE_NAME(QUIRE_E_INCOMPATIBLE)
        QUIRE_NAME(QUIRE_E_REENTRANT)
        QUIRE_NAME(QUIRE_E_FORKED)
        QUIRE_NAME(QUIRE_E_LIMIT)
        QUIRE_NAME(QUIRE_E_OS)
        QUIRE_NAME(QUIRE_E_INTERNAL)
#undef QUIRE_NAME
        default:
            return "unknown status";
    }
}

}  // extern "C"
