// SPDX-License-Identifier: Apache-2.0
//
// plugin_copy: a plugin, or an emulated driver, copied to another file, which the dynamic linker
// loads as another library: it has not found a driver yet.
//
// Threads: none.
#pragma once

#include <unistd.h>

#include <fstream>
#include <iterator>

#include "driver_rig.hpp"

namespace quire::gpu_tests {

class LibraryCopy {
 public:
    // Hides the functions of this name; NULL: hides none.
    explicit LibraryCopy(const std::string &path, const char *without = nullptr) {
        std::string form = (std::filesystem::temp_directory_path() / "quire_copy_XXXXXX").string();
        if (mkdtemp(form.data()) == nullptr) std::abort();
        std::filesystem::path folder = form;
        path_ = folder / std::filesystem::path(path).filename();
        std::filesystem::copy_file(path, path_);
        if (without != nullptr) rename(without);
        handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_ == nullptr) std::abort();
    }
    // The library stays loaded.
    ~LibraryCopy() { std::filesystem::remove_all(path_.parent_path()); }
    LibraryCopy(const LibraryCopy &) = delete;
    LibraryCopy &operator=(const LibraryCopy &) = delete;

    const char *path() const { return path_.c_str(); }
    template <typename Function>
    Function symbol(const char *name) const {
        return reinterpret_cast<Function>(dlsym(handle_, name));
    }
    // REQUIRES: the library is a plugin.
    const quire_backend_api *api() const { return test::plugin_table(path_.string()); }

 private:
    // Names are looked up as strings, so one with another last letter is not found.
    void rename(const std::string &name) const {
        std::ifstream from(path_, std::ios::binary);
        std::string bytes(std::istreambuf_iterator<char>(from), {});
        for (size_t at = 0; (at = bytes.find(name + '\0', at)) != std::string::npos;) {
            bytes[at + name.size() - 1] = '?';
        }
        std::ofstream(path_, std::ios::binary) << bytes;
    }

    std::filesystem::path path_;
    void *handle_ = nullptr;
};

}  // namespace quire::gpu_tests
