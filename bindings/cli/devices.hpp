// SPDX-License-Identifier: Apache-2.0
//
// devices: lists every backend found, and for each that did not load, where it is and why not.
#pragma once

namespace quire::cli {

void devices(bool json);

}  // namespace quire::cli
