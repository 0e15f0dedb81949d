// SPDX-License-Identifier: Apache-2.0

#include "opened_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

namespace quire::bench {

std::string path_of_opened(const char *stem) {
    struct Search {
        const char *stem;
        std::string path;
    } search = {stem, ""};
    auto look = [](dl_phdr_info *info, size_t, void *user) {
        auto *of = static_cast<Search *>(user);
        std::filesystem::path path = info->dlpi_name;
        if (!path.filename().string().starts_with(of->stem)) return 0;
        of->path = path.string();
        return 1;
    };
    dl_iterate_phdr(look, &search);
    return search.path;
}

void *find_opened(const char *stem) {
    std::string path = path_of_opened(stem);
    return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

}  // namespace quire::bench
