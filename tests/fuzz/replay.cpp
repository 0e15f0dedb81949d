// SPDX-License-Identifier: Apache-2.0
//
// replay: gives a target its kept inputs, one after another, where there is no fuzzer.
//
//   TARGET FILE_OR_FOLDER...
//
// It names each input before its run; a broken promise ends the process, and the last name is the
// input. Without any input it fails: an empty folder would prove nothing.
//
// Threads: none.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> inputs_of(int count, char **names) {
    std::vector<fs::path> inputs;
    for (int i = 0; i < count; ++i) {
        if (!fs::is_directory(names[i])) {
            inputs.emplace_back(names[i]);
            continue;
        }
        for (const auto &entry : fs::directory_iterator(names[i])) inputs.push_back(entry.path());
    }
    std::sort(inputs.begin(), inputs.end());
    return inputs;
}

bool replay(const fs::path &input) {
    std::ifstream file(input, std::ios::binary);
    std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) return false;
    std::fprintf(stderr, "%s\n", input.filename().c_str());
    bytes.shrink_to_fit();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
    return true;
}

}  // namespace

int main(int argc, char **argv) {
    std::vector<fs::path> inputs = inputs_of(argc - 1, argv + 1);
    for (const fs::path &input : inputs) {
        if (!replay(input)) {
            std::fprintf(stderr, "%s cannot be read\n", input.c_str());
            return 1;
        }
    }
    std::printf("%zu inputs\n", inputs.size());
    return inputs.empty() ? 1 : 0;
}
