// SPDX-License-Identifier: Apache-2.0
//
// devices: every backend that was found, and for each that did not load, where it was and why not.
#pragma once

namespace quire::cli {

void devices(bool json);

}  // namespace quire::cli
