// SPDX-License-Identifier: Apache-2.0
//
// engine_fixture: a fixture with an engine; skips the test if there is no Vulkan device.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include "engine.hpp"

namespace quire::test {

inline const quire_chain *chain_of(const quire_vulkan_device &given) {
    return reinterpret_cast<const quire_chain *>(&given);
}

class VulkanEngine : public testing::Test {
 protected:
    void SetUp() override {
        if (!engine.is_there()) GTEST_SKIP() << "no Vulkan device here: mesa-vulkan-drivers";
    }
    Engine engine;
};

}  // namespace quire::test
