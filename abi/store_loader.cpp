// SPDX-License-Identifier: Apache-2.0

#include "abi/store_loader.hpp"

#include <cstdio>
#include <cstring>

#include "abi/vetting.hpp"

namespace quire::abi {

namespace {

constexpr uint32_t kLargestTable = 4096;

// As the instance tells backends, with the version of the other contract. A plugin may keep it.
const quire_host_info *host_for_stores(const quire_instance *instance) {
    static const quire_host_info host = [&] {
        quire_host_info info = *instance->host_info;
        info.abi_major = QUIRE_STORE_ABI_MAJOR;
        info.abi_minor = QUIRE_STORE_ABI_MINOR;
        return info;
    }();
    return &host;
}

// Empty, or why the table cannot be used.
std::string keep_table(const quire_store_api *table, StorePlugin *out) {
    uint32_t size = 0;
    if (table != nullptr) std::memcpy(&size, table, sizeof size);
    if (size < sizeof(quire_store_api) || size > kLargestTable)
        return "its table of functions is missing, or its struct_size is invalid";
    std::memcpy(&out->api, table, sizeof out->api);
    const quire_store_api &api = out->api;
    if (api.abi_major != QUIRE_STORE_ABI_MAJOR || api.abi_minor > QUIRE_STORE_ABI_MINOR ||
        api.min_host_minor > QUIRE_STORE_ABI_MINOR) {
        return "it speaks another version of the store ABI";
    }
    if (const char *wrong = wrong_name(api.name)) return wrong;
    if (api.open == nullptr || api.close_wait == nullptr || api.get_info == nullptr ||
        api.get_stats == nullptr || api.submit == nullptr || api.reap == nullptr ||
        api.cancel == nullptr || api.find == nullptr) {
        return "a function that every store needs is missing from its table";
    }
    out->name = api.name;
    out->api.name = out->name.c_str();  // from here on nothing reads the plugin's own
    return {};
}

// Empty, or why the file does not serve.
std::string load_file(const quire_instance *instance, const std::string &path, StorePlugin *out) {
    char why[480] = "";
    void *symbol = os::load_symbol(path.c_str(), QUIRE_STORE_ENTRY, why, sizeof why);
    if (symbol == nullptr) return why;
    quire_store_query_fn entry = nullptr;
    std::memcpy(&entry, &symbol, sizeof entry);
    const quire_store_api *table = nullptr;
    std::string words;
    quire_status status = contained(QUIRE_STORE_ENTRY, &words, [&](quire_error *error) {
        return entry(host_for_stores(instance), &table, error);
    });
    if (status < 0) return words;
    out->path = path;
    return keep_table(table, out);
}

}  // namespace

Status load_store(quire_instance *instance, const char *name, StorePlugin *out,
                  quire_error *error) {
    std::string given = name, reasons;
    std::vector<std::string> paths;
    if (given.find('/') != std::string::npos) {
        paths.push_back(given);
    } else if (const char *wrong = wrong_name(name)) {
        std::snprintf(error->message, sizeof error->message, "store \"%.40s\": %s", name, wrong);
        return fail(QUIRE_E_ARG, nullptr);
    } else {
        std::lock_guard<std::mutex> lock(instance->mutex);
        for (const std::string &directory : instance->searched) {
            paths.push_back(directory + "/quire_store_" + given + ".so");
        }
    }
    for (const std::string &path : paths) {
        std::string why = load_file(instance, path, out);
        if (why.empty()) return Status{};
        reasons += "; " + path + ": " + why;
    }
    std::string words = "no store \"" + given + "\" was loaded" + reasons;
    words += "; QUIRE_PLUGIN_PATH names the directory of quire_store_*.so";
    std::snprintf(error->message, sizeof error->message, "%s", words.c_str());
    return fail(QUIRE_E_BACKEND, nullptr);
}

}  // namespace quire::abi
