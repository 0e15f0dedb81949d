// SPDX-License-Identifier: Apache-2.0
//
// The headers that most test programs include and that take longest to compile: precompiled once
// per program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
