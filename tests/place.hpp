// SPDX-License-Identifier: Apache-2.0
//
// place: files that a test program opens, named relative to the program's own folder.
//
// The names are relative so that compile commands are the same in every checkout and one compiler
// cache serves them all, and so that a program run by hand finds the same files as under Meson.
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
