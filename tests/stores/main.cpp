// SPDX-License-Identifier: Apache-2.0
//
// quire-conform-store: runs the conformance suite on one store.
//
//   quire-conform-store [STORE|path.so] [--option NAME=VALUE]... [GoogleTest's options]
//
// `{dir}` in a value stands for an empty folder of each case's own. A case that is not for this
// store, because of what get_info says of it, is skipped and says so.
//
// QUIRE_PLUGIN_PATH  the folder of quire_store_NAME.so
// QUIRE_TEST_EFFORT, QUIRE_TEST_SEED  tests/effort.hpp
//
// Exit status   0 passed, 1 failed, 2 wrong usage.

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "subject.hpp"

namespace {

// Empty, or what is wrong with one of them.
std::string read_settings(const std::vector<std::string> &texts) {
    for (const std::string &text : texts) {
        size_t at = text.find('=');
        if (at == std::string::npos || at == 0) return "--option takes NAME=VALUE, not " + text;
        quire::stores::options().settings.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
    return {};
}

}  // namespace

int main(int argc, char **argv) {
    using quire::stores::options;
    testing::InitGoogleTest(&argc, argv);
    CLI::App app{"Runs the conformance suite on a store of Quire."};
    std::vector<std::string> settings;
    app.add_option("store", options().store, "the store's name, or the path of its .so")
        ->capture_default_str();
    app.add_option("--option", settings, "NAME=VALUE, for the store; {dir} is an empty folder")
        ->allow_extra_args(false);
    app.add_option("--patience", options().patience_s, "seconds after which a store hangs")
        ->check(CLI::Range(1, 100'000))
        ->capture_default_str();
    app.footer(
        "example: quire-conform-store disk --option directory={dir} --option capacity=64MiB");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return app.exit(failure) == 0 ? 0 : 2;
    }
    std::string problem = read_settings(settings);
    if (problem.empty()) problem = quire::stores::load_subject();
    if (!problem.empty()) {
        std::fprintf(stderr, "quire-conform-store: %s\n", problem.c_str());
        return 2;
    }
    const int status = RUN_ALL_TESTS();
    const testing::UnitTest &tests = *testing::UnitTest::GetInstance();
    if (testing::GTEST_FLAG(list_tests) || tests.test_to_run_count() != 0) return status;
    std::fprintf(stderr, "quire-conform-store: no case matches the filter\n");
    return 2;
}
