// SPDX-License-Identifier: Apache-2.0
//
// Every script in this folder gives the reference's results: one for each bug that a script can
// show.

#include <gtest/gtest.h>
#include <quire/dyn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/model/runner.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::model;

std::vector<std::string> scripts() {
    std::vector<std::string> paths;
    for (const auto &entry :
         std::filesystem::directory_iterator(quire::tests::place(QUIRE_SCRIPTS))) {
        if (entry.path().extension() == ".script") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::string contents(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

class Regress : public testing::TestWithParam<std::string> {};

TEST_P(Regress, gives_what_the_reference_says) {
    const quire_api *api = nullptr;
    char why[512] = "";
    ASSERT_EQ(quire_dyn_load(nullptr, &api, why, sizeof why), QUIRE_OK) << why;
    Script script = parse_script(contents(GetParam()));
    ASSERT_FALSE(script.empty());
    Tally tally;
    EXPECT_EQ(play(*api, script, &tally), "");
}

INSTANTIATE_TEST_SUITE_P(Script, Regress, testing::ValuesIn(scripts()), [](const auto &info) {
    std::string name = std::filesystem::path(info.param).stem().string();
    return name;
});

}  // namespace
