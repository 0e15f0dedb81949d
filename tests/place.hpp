// SPDX-License-Identifier: Apache-2.0
//
// place: files that a test program opens, named relative to the folder it lies in.
//
// The names are relative so that compile commands are the same in every checkout and a compiler
// cache serves them all; and the program runs by hand as it runs under Meson.
//
// Threads: any.
#pragma once

#include <filesystem>
#include <string>

namespace quire::tests {

inline std::string place(const char *from_program) {
    std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    return (program.parent_path() / from_program).lexically_normal().string();
}

}  // namespace quire::tests
