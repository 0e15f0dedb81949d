// SPDX-License-Identifier: Apache-2.0
//
// library: the table of functions and an instance without backends, once per process.
//
// Threads: none.
#pragma once

#include "quire/quire.h"
#include "recycled.hpp"
#include "require.hpp"

namespace quire::fuzz {

inline const quire_api &library() {
    static const quire_api *api = [] {
        const quire_api *table = nullptr;
        require(quire_get_api(QUIRE_VERSION_MAJOR, 0, &table, nullptr) >= 0, "the table is there");
        return table;
    }();
    return *api;
}

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

inline quire_instance *new_instance() {
    auto desc = described<quire_instance_desc>();
    desc.plugin_path = "/nowhere";
    desc.allocate = Recycled::allocate;
    desc.release = Recycled::release;
    quire_instance *instance = nullptr;
    quire_error error = new_error();
    require(library().instance_create(&desc, &instance, &error) == QUIRE_OK, "an instance is made",
            error.message);
    return instance;
}

inline quire_instance *shared_instance() {
    static quire_instance *only = new_instance();
    return only;
}

}  // namespace quire::fuzz
