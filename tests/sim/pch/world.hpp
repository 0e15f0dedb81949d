// SPDX-License-Identifier: Apache-2.0
//
// What nearly every file of the simulator includes: precompiled once.
#include "../world.hpp"
