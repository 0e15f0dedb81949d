// SPDX-License-Identifier: Apache-2.0
//
// features: see features.hpp.
#include "features.hpp"

namespace sim {
namespace {

constexpr const char *kNames[] = {
#define SIM_FEATURE(name) #name,
    SIM_FEATURES(SIM_FEATURE)
#undef SIM_FEATURE
};

}  // namespace

bool FeatureSet::apply(const std::string &names, bool on, std::string &unknown) {
    for (size_t begin = 0; begin <= names.size();) {
        size_t end = names.find(',', begin);
        if (end == std::string::npos) end = names.size();
        const std::string name = names.substr(begin, end - begin);
        uint32_t found = static_cast<uint32_t>(Feature::count);
        for (uint32_t i = 0; i < static_cast<uint32_t>(Feature::count); ++i)
            if (name == kNames[i]) found = i;
        if (found == static_cast<uint32_t>(Feature::count)) {
            unknown = name;
            return false;
        }
        set(static_cast<Feature>(found), on);
        begin = end + 1;
    }
    return true;
}

std::string FeatureSet::names() {
    std::string all;
    for (const char *name : kNames) all += (all.empty() ? "" : ",") + std::string(name);
    return all;
}

}  // namespace sim
