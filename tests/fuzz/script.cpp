// SPDX-License-Identifier: Apache-2.0
//
// script: any text as a script of operations, of tests/model and of tests/sim. What is accepted
// must mean the same after it was written and read again.
//
// Threads: none.

#include "tests/model/script.hpp"

#include <stdexcept>
#include <string>

#include "require.hpp"
#include "tests/sim/runner.hpp"

namespace {

using namespace quire::fuzz;

// Calls `use`; false if it refused the text. Both parsers throw words, or what std::stoull throws.
template <typename Use>
bool accepted(Use use) {
    try {
        use();
    } catch (const std::string &why) {
        require(!why.empty(), "a refusal says why");
        return false;
    } catch (const std::logic_error &) {
        return false;
    }
    return true;
}

template <typename Parse, typename Print>
void read_twice(const std::string &text, Parse parse, Print print) {
    std::string once, twice;
    if (!accepted([&] { once = print(parse(text)); })) return;
    require(accepted([&] { twice = print(parse(once)); }), "what was written can be read",
            once.c_str());
    require(once == twice, "a script means the same when it is read again", once.c_str());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    std::string text(reinterpret_cast<const char *>(data), size_bytes);
    read_twice(text, quire::model::parse_script, quire::model::script_text);
    read_twice(text, sim::parse_script,
               [](const sim::Script &script) { return sim::to_text(script); });
    return 0;
}
