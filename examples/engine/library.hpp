// SPDX-License-Identifier: Apache-2.0
//
// library: finds libquire and loads it. The engine links no part of Quire.

#pragma once

#include "quire/api.h"

namespace engine {

// The function table of libquire: the file that QUIRE_LIBRARY names, else libquire.so.0 beside this
// program or in ../abi (an installed and a build tree), else where the dynamic linker looks.
//
// Errors   throws Failure, which says what was tried.
const quire_api &load_library();

}  // namespace engine
