// SPDX-License-Identifier: Apache-2.0
//
// open_tier: a store that the command line names, with its settings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "library.hpp"

namespace quire::cli {

using Settings = std::vector<std::pair<std::string, std::string>>;

// Splits NAME=VALUE texts, which were given by `option`. Throws a Failure that names it.
Settings parse_settings(const std::string &option, const std::vector<std::string> &texts);
// flags: QUIRE_STORE_OPEN_*. Throws a Failure with the store's words.
quire_tier *open_tier(quire_instance *instance, const std::string &store, const Settings &settings,
                      uint32_t flags);

}  // namespace quire::cli
