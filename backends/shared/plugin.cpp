// SPDX-License-Identifier: Apache-2.0

#include "shared/plugin.hpp"

namespace quire {

quire_status hand_out(const quire_backend_api *api, const quire_host_info *host,
                      const quire_backend_api **out, quire_error *error) {
    if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
    if (quire_status status = check_struct(host, sizeof *host, "host", error)) return status;
    if (host->abi_major != api->abi_major || host->abi_minor < api->min_host_minor) {
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "the host speaks backend ABI %u.%u, this backend %u.%u; "
                    "install the backend that came with the library",
                    host->abi_major, host->abi_minor, api->abi_major, api->abi_minor);
    }
    *out = api;
    return QUIRE_OK;
}

}  // namespace quire
