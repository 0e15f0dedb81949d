// SPDX-License-Identifier: Apache-2.0

#include "abi/loader.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "abi/vetting.hpp"

namespace quire::abi {

namespace {

constexpr const char *kPrefix = "quire_backend_";
constexpr const char *kSuffix = ".so";
constexpr uint32_t kSmallestTable = offsetof(quire_backend_api, device_open);
constexpr uint32_t kLargestTable = 4096;
constexpr uint32_t kMostDevices = 1024;  // a larger count was never written

void refuse(Backend *backend, quire_status status, const std::string &why) {
    backend->status = status;
    backend->message = why;
}

// The name that the file name implies, for a backend that does not load.
std::string name_of(const std::string &path) {
    std::string name = path.substr(path.rfind('/') + 1);
    if (name.starts_with(kPrefix)) name = name.substr(std::strlen(kPrefix));
    if (name.ends_with(kSuffix)) name = name.substr(0, name.size() - std::strlen(kSuffix));
    return name;
}

// Copies the table, zero-extended to the length that this library knows, before any of it is read:
// the plugin may change its own.
bool copy_table(Backend *backend, const quire_backend_api *table) {
    uint32_t size = 0;
    if (table != nullptr) std::memcpy(&size, table, sizeof size);
    // Only whole entries, and no size that only garbage would have.
    if (size < kSmallestTable || size > kLargestTable || size % sizeof(void *) != 0) return false;
    std::memcpy(&backend->api, table, std::min<size_t>(size, sizeof backend->api));
    backend->api.struct_size = size;
    return true;
}

void keep_table(Backend *backend, const quire_backend_api *table) {
    if (!copy_table(backend, table)) {
        return refuse(backend, QUIRE_E_BACKEND,
                      "its table of functions is missing, or its struct_size is invalid");
    }
    quire_backend_api &api = backend->api;
    if (api.abi_major != QUIRE_BACKEND_ABI_MAJOR || api.abi_minor > QUIRE_BACKEND_ABI_MINOR ||
        api.min_host_minor > QUIRE_BACKEND_ABI_MINOR) {
        char words[256];
        std::snprintf(
            words, sizeof words,
            "it speaks plugin ABI %u.%u and needs at least minor %u; this library speaks %u.%u",
            api.abi_major, api.abi_minor, api.min_host_minor, QUIRE_BACKEND_ABI_MAJOR,
            QUIRE_BACKEND_ABI_MINOR);
        return refuse(backend, QUIRE_E_INCOMPATIBLE, words);
    }
    const char *wrong = wrong_name(api.name);
    if (wrong != nullptr) return refuse(backend, QUIRE_E_BACKEND, wrong);
    backend->name = api.name;
    api.name = backend->name.c_str();  // from here on nothing reads the plugin's own
    backend->version = bounded(api.version, kNameCapacity - 1);
    if (api.probe == nullptr) {
        return refuse(backend, QUIRE_E_BACKEND, "its table has no probe function");
    }
}

void query(quire_instance *instance, Backend *backend) {
    char why[480] = "";
    void *symbol = os::load_symbol(backend->path.c_str(), QUIRE_BACKEND_ENTRY, why, sizeof why);
    if (symbol == nullptr) return refuse(backend, QUIRE_E_BACKEND, why);
    quire_backend_query_fn entry = nullptr;
    std::memcpy(&entry, &symbol, sizeof entry);
    const quire_backend_api *table = nullptr;
    std::string words;
    quire_status status = contained(QUIRE_BACKEND_ENTRY, &words, [&](quire_error *error) {
        return entry(instance->host_info, &table, error);
    });
    if (status < 0) return refuse(backend, status, words);
    keep_table(backend, table);
}

bool known_name(const quire_instance *instance, const Backend *fresh) {
    for (const auto &backend : instance->backends) {
        if (backend->status >= 0 && backend->name == fresh->name) return true;
    }
    return false;
}

void visit(void *user, const char *path) {
    auto *instance = static_cast<quire_instance *>(user);
    for (const auto &backend : instance->backends) {
        if (backend->path == path || (backend->status >= 0 && backend->name == name_of(path)))
            return;
    }
    load_backend(instance, path);
}

void search_directory(quire_instance *instance, const std::string &directory) {
    auto &searched = instance->searched;
    if (directory.empty() || directory[0] != '/') return;
    if (std::find(searched.begin(), searched.end(), directory) != searched.end()) return;
    searched.push_back(directory);
    os::list_files(directory.c_str(), kPrefix, kSuffix, visit, instance);
}

void search_path(quire_instance *instance, const char *path) {
    if (path == nullptr) return;
    std::string rest = path;
    while (!rest.empty()) {
        size_t colon = rest.find(':');
        search_directory(instance, rest.substr(0, colon));
        rest = colon == std::string::npos ? std::string() : rest.substr(colon + 1);
    }
}

}  // namespace

Backend *load_backend(quire_instance *instance, const char *path) {
    auto backend = std::make_unique<Backend>();
    backend->path = path;
    backend->name = name_of(path);
    query(instance, backend.get());
    if (backend->status >= 0 && known_name(instance, backend.get())) {
        refuse(backend.get(), QUIRE_E_BACKEND, "a backend of the same name is already loaded");
    }
    instance->backends.push_back(std::move(backend));
    return instance->backends.back().get();
}

bool probe(Backend *backend) {
    if (backend->status < 0 || backend->is_probed) return true;
    backend->is_probed = true;
    std::string why;
    uint32_t count = 0;
    quire_status probed = contained(
        "probe", &why, [&](quire_error *error) { return backend->api.probe(&count, error); });
    if (probed >= 0 && count > kMostDevices) {
        probed = QUIRE_E_BACKEND;
        why = "its probe reports " + std::to_string(count) + " devices; the limit is " +
              std::to_string(kMostDevices);
    }
    if (probed >= 0) {
        backend->device_count = count;
        if (count == 0) backend->message = why;
        return true;
    }
    refuse(backend, probed, why);
    return false;
}

void discover(quire_instance *instance, const char *plugin_path) {
    search_path(instance, plugin_path);
    search_path(instance, os::environment("QUIRE_PLUGIN_PATH"));
    char directory[4096];
    if (os::own_directory(directory, sizeof directory)) {
        search_directory(instance, std::string(directory) + "/quire/backends-0");
    }
    search_directory(instance, QUIRE_BACKEND_DIR);
}

}  // namespace quire::abi
