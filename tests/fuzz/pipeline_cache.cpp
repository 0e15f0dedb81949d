// SPDX-License-Identifier: Apache-2.0
//
// pipeline_cache: any bytes as the file in which the vulkan backend keeps compiled kernels. Only a
// whole file of this device and driver may reach the driver.
//
// The first byte: bit 0 puts the right head in front; bit 1 lets the data begin as the driver's.
//
// Threads: none.

#include "vulkan/pipeline_cache.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "in_memory.hpp"
#include "shared/checks.hpp"

const char quire::kBackendName[] = "vulkan";

namespace {

using namespace quire::fuzz;

struct Head {  // pipeline_cache.hpp, "Format"
    uint64_t magic, size_bytes, checksum;
};

quire::vulkan::Adapter one_adapter() {
    quire::vulkan::Adapter adapter{};
    adapter.properties.vendorID = 1;
    adapter.properties.deviceID = 2;
    adapter.properties.pipelineCacheUUID[3] = 4;
    return adapter;
}

VkPipelineCacheHeaderVersionOne head_of(const quire::vulkan::Adapter &adapter) {
    VkPipelineCacheHeaderVersionOne head{};
    head.headerSize = sizeof head;
    head.headerVersion = VK_PIPELINE_CACHE_HEADER_VERSION_ONE;
    head.vendorID = adapter.properties.vendorID;
    head.deviceID = adapter.properties.deviceID;
    std::copy_n(adapter.properties.pipelineCacheUUID, VK_UUID_SIZE, head.pipelineCacheUUID);
    return head;
}

template <typename T>
void put_first(const T &value, std::vector<uint8_t> *bytes) {
    const auto *from = reinterpret_cast<const uint8_t *>(&value);
    bytes->insert(bytes->begin(), from, from + sizeof value);
}

Head sealed_head(const std::vector<uint8_t> &data) {
    Head head = {0x3145484341434b51, data.size(), 0xcbf29ce484222325};
    for (uint8_t byte : data) head.checksum = (head.checksum ^ byte) * 0x100000001b3;
    return head;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static const quire::vulkan::Adapter adapter = one_adapter();
    Bytes input(data, size_bytes);
    uint8_t how = input.byte();
    std::vector<uint8_t> bytes = input.rest();
    if (how & 2) put_first(head_of(adapter), &bytes);
    std::vector<uint8_t> inside = bytes;
    if (how & 1) put_first(sealed_head(inside), &bytes);
    // A file may claim 256 MiB, which are then taken; that is stated, and too slow to try often.
    Head head{};
    if (!bytes.empty()) std::memcpy(&head, bytes.data(), std::min(sizeof head, bytes.size()));
    if (head.size_bytes > (1u << 20) && head.size_bytes <= (256u << 20)) return 0;
    InMemory file(bytes.data(), bytes.size());
    std::vector<char> read = quire::vulkan::read_pipeline_cache(file.path(), adapter);
    if ((how & 3) == 3) require(read.size() == inside.size(), "a whole file of its own is taken");
    if (!read.empty()) {
        VkPipelineCacheHeaderVersionOne taken{};
        require(read.size() >= sizeof taken, "the driver gets at least its head");
        std::memcpy(&taken, read.data(), sizeof taken);
        require(taken.vendorID == 1 && taken.deviceID == 2, "the driver gets only its own data");
    }
    return 0;
}
