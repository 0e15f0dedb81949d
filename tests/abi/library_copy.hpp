// SPDX-License-Identifier: Apache-2.0
//
// library_copy: a copy of libquire's file, which the dynamic linker loads as a separate library.
//
// Threads: none.
#pragma once

#include <dlfcn.h>
#include <quire/quire.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace quire::test {

inline std::string library_path() {
    const char *path = std::getenv("QUIRE_LIBRARY");
    return path != nullptr ? path : "libquire.so.0";
}

class LibraryCopy {
 public:
    LibraryCopy() {
        std::string form = (std::filesystem::temp_directory_path() / "quire_copy_XXXXXX").string();
        if (mkdtemp(form.data()) == nullptr) std::abort();
        folder_ = form;
        path_ = folder_ / "libquire.so.0";
        std::filesystem::copy_file(library_path(), path_);
    }
    ~LibraryCopy() { std::filesystem::remove_all(folder_); }
    LibraryCopy(const LibraryCopy &) = delete;
    LibraryCopy &operator=(const LibraryCopy &) = delete;

    const char *path() const { return path_.c_str(); }

 private:
    std::filesystem::path folder_, path_;
};

// The functions of a library; nullptr if it is not libquire. `handle` gets the result of dlopen.
inline const quire_api *functions_of(const char *path, void **handle) {
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*handle == nullptr) return nullptr;
    auto get = reinterpret_cast<quire_get_api_fn>(dlsym(*handle, "quire_get_api"));
    const quire_api *api = nullptr;
    if (get == nullptr || get(QUIRE_VERSION_MAJOR, QUIRE_VERSION_MINOR, &api, nullptr) < 0) {
        return nullptr;
    }
    return api;
}

}  // namespace quire::test
