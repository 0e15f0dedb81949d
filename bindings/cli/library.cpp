// SPDX-License-Identifier: Apache-2.0

#include "library.hpp"

#include <filesystem>

namespace quire::cli {

namespace {

std::string beside_this_program() {
    namespace fs = std::filesystem;
    std::error_code failed;
    fs::path directory = fs::read_symlink("/proc/self/exe", failed).parent_path();
    if (failed) return {};
    return (directory / QUIRE_LIBRARY_FROM_BIN).lexically_normal();
}

const quire_api *load() {
    const quire_api *api = nullptr;
    char why[1024] = "";
    const char *named = std::getenv("QUIRE_LIBRARY");
    std::string path;
    if (named == nullptr || *named == '\0') path = beside_this_program();
    std::error_code failed;
    bool is_there = !path.empty() && std::filesystem::exists(path, failed);
    if (quire_dyn_load(is_there ? path.c_str() : nullptr, &api, why, sizeof why) < 0) {
        std::string missing = is_there || path.empty() ? "" : path + " does not exist; ";
        throw Failure(missing + why, kFailed);
    }
    return api;
}

}  // namespace

const quire_api &library() {
    static const quire_api *api = load();
    return *api;
}

std::string why_no_backend(quire_instance *instance) {
    auto desc = described<quire_device_desc>();
    Error error;
    quire_device *device = nullptr;
    if (library().device_open(instance, &desc, &device, &error) < 0) return error.message;
    library().device_close(device, nullptr);
    return "a backend was found";
}

}  // namespace quire::cli
