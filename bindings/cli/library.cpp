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
    for (const char *place : {"../../abi/libquire.so.0", "../lib/libquire.so.0",
                              "../lib/x86_64-linux-gnu/libquire.so.0", "libquire.so.0"}) {
        fs::path candidate = directory / place;
        if (fs::exists(candidate, failed)) return candidate.lexically_normal();
    }
    return {};
}

const quire_api *load() {
    const quire_api *api = nullptr;
    char why[1024] = "";
    std::string path;
    if (std::getenv("QUIRE_LIBRARY") == nullptr) path = beside_this_program();
    if (quire_dyn_load(path.empty() ? nullptr : path.c_str(), &api, why, sizeof why) < 0) {
        throw Failure(why, kFailed);
    }
    return api;
}

}  // namespace

const quire_api &library() {
    static const quire_api *api = load();
    return *api;
}

}  // namespace quire::cli
