// SPDX-License-Identifier: Apache-2.0
//
// main: conformance_tests --backend=NAME [--readme=FILE] [GoogleTest's options]
//
// QUIRE_PLUGIN_PATH  the folder of quire_backend_NAME.so
// QUIRE_TEST_SHORT   if set and not 0: fewer shapes

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "subject.hpp"

int main(int argc, char **argv) {
    using namespace quire::conformance;
    testing::InitGoogleTest(&argc, argv);
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--backend=", 10) == 0) {
            options().backend = argv[i] + 10;
        } else if (std::strncmp(argv[i], "--readme=", 9) == 0) {
            options().readme = argv[i] + 9;
        } else {
            std::fprintf(stderr, "unknown option %s; known: --backend=NAME --readme=FILE\n",
                         argv[i]);
            return 2;
        }
    }
    const char *is_short = std::getenv("QUIRE_TEST_SHORT");
    options().is_short = is_short != nullptr && std::strcmp(is_short, "0") != 0;
    std::string reason = load_subject();
    if (!reason.empty()) {
        std::fprintf(stderr, "%s\n", reason.c_str());
        return 1;
    }
    return RUN_ALL_TESTS();
}
