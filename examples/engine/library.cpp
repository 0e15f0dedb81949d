// SPDX-License-Identifier: Apache-2.0

#include "library.hpp"

#include "failure.hpp"
#include "quire/dyn.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace engine {
namespace {

// Empty if the file is in neither place, or QUIRE_LIBRARY is set.
std::string neighbour() {
    const char *chosen = std::getenv("QUIRE_LIBRARY");
    if (chosen != nullptr && chosen[0] != '\0') {
        return "";
    }
    std::error_code error;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
    for (const char *folder : {".", "../abi", "../../abi", "../lib"}) {
        const auto file = program.parent_path() / folder / "libquire.so.0";
        if (std::filesystem::exists(file, error)) {
            return file.lexically_normal().string();
        }
    }
    return "";
}

}  // namespace

const quire_api &load_library() {
    const quire_api *api = nullptr;
    std::array<char, 512> why{};
    const std::string path = neighbour();
    if (quire_dyn_load(path.empty() ? nullptr : path.c_str(), &api, why.data(), why.size()) < 0) {
        throw Failure(why.data());
    }
    return *api;
}

}  // namespace engine
