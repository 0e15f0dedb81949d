// SPDX-License-Identifier: Apache-2.0
//
// plugin: the one exported function, and how the store is opened.
//
// Threads: any.

#include <cerrno>
#include <cstring>
#include <memory>

#include "disk/store.hpp"
#include "shared/store_table.hpp"

namespace quire {

const char kStoreName[] = "disk";

namespace disk {

namespace {

struct Plugin {
    using Store = disk::Store;
    static constexpr bool kLists = true;
    static constexpr const char *kHelp = disk::kHelp;

    static quire_status open(const quire_store_desc &desc, std::unique_ptr<Store> *out,
                             quire_error *error) {
        Options options;
        options.is_read_only = (desc.flags & QUIRE_STORE_OPEN_READ_ONLY) != 0;
        options.must_exist = options.is_read_only || (desc.flags & QUIRE_STORE_OPEN_EXISTING) != 0;
        if (quire_status status = read_options(desc, &options, error)) return status;
        std::unique_ptr<Directory> directory;
        int result =
            open_directory({options.directory, !options.must_exist, options.direct}, &directory);
        if (result != 0) {
            bool is_missing = result == -ENOENT && options.must_exist;
            return fail_os(error, is_missing ? QUIRE_E_ARG : QUIRE_E_OS, -result,
                           "cannot open the directory %.300s: %s", options.directory.c_str(),
                           std::strerror(-result));
        }
        return Store::open(options, std::move(directory), nullptr, out, error);
    }

    static RequestLimits limits(const Store &store) {
        const Options &options = store.options();
        return {options.max_value_bytes(), options.is_read_only, true};
    }
};

}  // namespace

}  // namespace disk

}  // namespace quire

quire_status quire_store_query_v0(const quire_host_info *host, const quire_store_api **out,
                                  quire_error *error) {
    return quire::StoreTable<quire::disk::Plugin>::query(host, out, error);
}
