// SPDX-License-Identifier: Apache-2.0
//
// plugin: the one exported function, and how the store is opened.
//
// Threads: any.

#include <memory>

#include "shared/store_table.hpp"
#include "valkey/store.hpp"

namespace quire {

const char kStoreName[] = "valkey";

namespace valkey {

namespace {

struct Plugin {
    using Store = valkey::Store;
    static constexpr bool kLists = false;
    static constexpr const char *kHelp = valkey::kHelp;

    static quire_status open(const quire_store_desc &desc, std::unique_ptr<Store> *out,
                             quire_error *error) {
        Options options;
        options.is_read_only = (desc.flags & QUIRE_STORE_OPEN_READ_ONLY) != 0;
        if (quire_status status = read_options(desc, &options, error)) return status;
        return Store::open(options, out, error);
    }

    static RequestLimits limits(const Store &store) {
        const Options &options = store.options();
        return {options.max_value_bytes, options.is_read_only, false};
    }
};

}  // namespace

}  // namespace valkey

}  // namespace quire

quire_status quire_store_query_v0(const quire_host_info *host, const quire_store_api **out,
                                  quire_error *error) {
    return quire::StoreTable<quire::valkey::Plugin>::query(host, out, error);
}
