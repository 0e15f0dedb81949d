// SPDX-License-Identifier: Apache-2.0
//
// ops: operations that the fuzzer chooses, on the library and on the simulator of tests/sim, which
// was written without sight of the library. They must agree on every slot, answer and failure.
//
// The input is the tape from which the simulator draws its choices (tests/sim/rng.hpp): first the
// cache's shape, then one operation after another, until the tape ends.
//
// Threads: none; the simulated device has none either.

#include <cstdio>
#include <string>

#include "library.hpp"
#include "simulated.hpp"
#include "tests/sim/device.hpp"
#include "tests/sim/open_defects.hpp"
#include "tests/sim/runner.hpp"

namespace {

constexpr uint64_t kSeed = 1;  // decides what draws mean that no tape decides
constexpr uint32_t kMostOperations = 400;

quire_status create_recycling(const quire_instance_desc *desc, quire_instance **out,
                              quire_error *error) {
    quire_instance_desc with = *desc;
    with.allocate = quire::fuzz::Recycled::allocate;
    with.release = quire::fuzz::Recycled::release;
    return quire::fuzz::library().instance_create(&with, out, error);
}

sim::Runner *runner() {
    static sim::Runner *only = [] {
        static quire_api api = quire::fuzz::library();
        api.instance_create = create_recycling;
        auto *made = new sim::Runner(&api, quire::fuzz::simulated_plugin(sim::Device::table()));
        made->known = sim::kKnown;
        return made;
    }();
    return only;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    sim::Tape tape{data, size_bytes};
    sim::choice_tape = &tape;
    sim::FeatureSet features = sim::FeatureSet::all();
    features.set(sim::Feature::abandon, false);  // what is abandoned stays until the process ends
    sim::Outcome outcome = runner()->random(kSeed, kMostOperations, features);
    sim::choice_tape = nullptr;
    if (!outcome.finding) return 0;
    std::fprintf(stderr, "# %s\n%s", outcome.finding->text.c_str(),
                 to_text(outcome.script).c_str());
    quire::fuzz::broken(outcome.finding->promise.c_str(), outcome.finding->text.c_str());
}
