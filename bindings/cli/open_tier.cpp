// SPDX-License-Identifier: Apache-2.0

#include "open_tier.hpp"

namespace quire::cli {

Settings parse_settings(const std::string &option, const std::vector<std::string> &texts) {
    Settings out;
    for (const std::string &text : texts) {
        size_t at = text.find('=');
        if (at == 0 || at == std::string::npos)
            throw Failure(option + " takes NAME=VALUE, not " + text, kUsage);
        out.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
    return out;
}

quire_tier *open_tier(quire_instance *instance, const std::string &store, const Settings &settings,
                      uint32_t flags) {
    std::vector<quire_store_option> options;
    for (const auto &[name, value] : settings) options.push_back({name.c_str(), value.c_str()});
    auto desc = described<quire_tier_desc>();
    desc.flags = flags;
    desc.store = store.c_str();
    desc.options = options.data();
    desc.option_count = static_cast<uint32_t>(options.size());
    desc.option_stride = sizeof(quire_store_option);
    Error error;
    quire_tier *tier = nullptr;
    quire_status status = library().tier_open(instance, &desc, &tier, &error);
    if (status < 0) throw Failure(error.message, status == QUIRE_E_ARG ? kUsage : kFailed);
    return tier;
}

}  // namespace quire::cli
