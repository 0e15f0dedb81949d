// SPDX-License-Identifier: Apache-2.0

#include "abi/loader.hpp"

#include <cstdio>
#include <cstring>

namespace quire::abi {

namespace {

constexpr const char *kPrefix = "quire_backend_";
constexpr const char *kSuffix = ".so";
constexpr uint32_t kSmallestTable = offsetof(quire_backend_api, device_open);

void refuse(Backend *backend, quire_status status, const std::string &why) {
    backend->status = status;
    backend->message = why;
}

// What the file's name says, for one that does not load.
std::string name_of(const std::string &path) {
    std::string name = path.substr(path.rfind('/') + 1);
    if (name.starts_with(kPrefix)) name = name.substr(std::strlen(kPrefix));
    if (name.ends_with(kSuffix)) name = name.substr(0, name.size() - std::strlen(kSuffix));
    return name;
}

// The plugin's text is not trusted to be terminated.
std::string bounded(const char *text, size_t capacity) {
    return text != nullptr ? std::string(text, strnlen(text, capacity)) : std::string();
}

// Takes the table over, zero-extended to the length that this library knows.
void adopt_table(Backend *backend, const quire_backend_api *table) {
    char words[256];
    if (table == nullptr || table->struct_size < kSmallestTable) {
        return refuse(backend, QUIRE_E_BACKEND, "its table of functions is missing or too short");
    }
    if (table->abi_major != QUIRE_BACKEND_ABI_MAJOR ||
        table->min_host_minor > QUIRE_BACKEND_ABI_MINOR) {
        std::snprintf(
            words, sizeof words,
            "it speaks plugin ABI %u.%u and needs at least minor %u; this library speaks %u.%u",
            table->abi_major, table->abi_minor, table->min_host_minor, QUIRE_BACKEND_ABI_MAJOR,
            QUIRE_BACKEND_ABI_MINOR);
        return refuse(backend, QUIRE_E_INCOMPATIBLE, words);
    }
    uint32_t size = table->struct_size < sizeof backend->api ? table->struct_size
                                                             : uint32_t{sizeof backend->api};
    std::memcpy(&backend->api, table, size);
    backend->name = bounded(backend->api.name, 31);
    backend->version = bounded(backend->api.version, 31);
    if (backend->name.empty()) return refuse(backend, QUIRE_E_BACKEND, "its table has no name");
    if (backend->api.probe == nullptr) {
        return refuse(backend, QUIRE_E_BACKEND, "its table has no probe function");
    }
    ErrorSink sink;
    quire_status probed = backend->api.probe(&backend->device_count, &sink.error);
    if (probed < 0) {
        refuse(backend, probed,
               "probe failed: " + bounded(sink.error.message, sizeof sink.error.message));
    }
}

void query(quire_instance *instance, Backend *backend) {
    char why[480] = "";
    void *symbol = os::load_symbol(backend->path.c_str(), QUIRE_BACKEND_ENTRY, why, sizeof why);
    if (symbol == nullptr) return refuse(backend, QUIRE_E_BACKEND, why);
    quire_backend_query_fn entry = nullptr;
    std::memcpy(&entry, &symbol, sizeof entry);
    const quire_backend_api *table = nullptr;
    ErrorSink sink;
    quire_status status = entry(instance->host_info, &table, &sink.error);
    if (status < 0) {
        std::string words = bounded(sink.error.message, sizeof sink.error.message);
        return refuse(backend, status, words.empty() ? "it refused without a reason" : words);
    }
    adopt_table(backend, table);
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
    if (!directory.empty() && directory[0] == '/') {
        os::list_files(directory.c_str(), kPrefix, kSuffix, visit, instance);
    }
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
        refuse(backend.get(), QUIRE_E_BACKEND, "a backend of the same name is loaded already");
    }
    instance->backends.push_back(std::move(backend));
    return instance->backends.back().get();
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

const char *missing_slot(const quire_backend_api &api) {
#define QUIRE_NEED(slot) \
    if (api.slot == nullptr) return #slot;
    QUIRE_NEED(device_open)
    QUIRE_NEED(device_close)
    QUIRE_NEED(device_props)
    QUIRE_NEED(query_attention)
    QUIRE_NEED(mem_alloc)
    QUIRE_NEED(mem_free)
    QUIRE_NEED(queue_bind)
    QUIRE_NEED(queue_release)
    QUIRE_NEED(fence_create)
    QUIRE_NEED(fence_destroy)
    QUIRE_NEED(fence_read)
    QUIRE_NEED(fence_signal_host)
    QUIRE_NEED(fence_wait_host)
    QUIRE_NEED(fence_signal)
    QUIRE_NEED(fence_wait)
    QUIRE_NEED(copy)
    QUIRE_NEED(kv_write)
    QUIRE_NEED(plan_create)
    QUIRE_NEED(plan_destroy)
    QUIRE_NEED(attention)
    QUIRE_NEED(quiesce)
#undef QUIRE_NEED
    return nullptr;
}

}  // namespace quire::abi
