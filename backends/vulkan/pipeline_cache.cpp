// SPDX-License-Identifier: Apache-2.0

#include "pipeline_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/spirv.hpp"
#include "loader.hpp"

namespace quire::vulkan {

namespace {

constexpr uint64_t kMagic = 0x3145484341434b51;  // "QKCACHE1"
constexpr uint64_t kLargestBytes = uint64_t{256} << 20;

struct Head {
    uint64_t magic;
    uint64_t size_bytes;
    uint64_t checksum;
};

struct CloseFile {
    void operator()(std::FILE *file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// FNV-1a (Fowler, Noll, Vo), 64 bits.
uint64_t hash(const void *bytes, size_t size_bytes, uint64_t from = 0xcbf29ce484222325) {
    const auto *at = static_cast<const unsigned char *>(bytes);
    for (size_t i = 0; i < size_bytes; ++i) from = (from ^ at[i]) * 0x100000001b3;
    return from;
}

std::string folder() {
    const char *named = environment("QUIRE_VULKAN_CACHE");
    if (named != nullptr) return std::strcmp(named, "0") == 0 ? "" : named;
    const char *cache = environment("XDG_CACHE_HOME");
    if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/quire";
    const char *home = environment("HOME");
    return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/quire" : "";
}

// A regular file of bounded size, opened for reading; NULL: there is none.
File open_file(const std::string &path) {
    // Only the descriptor shows what is not a file; O_NONBLOCK keeps a pipe from blocking.
    int descriptor = path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) return nullptr;
    struct stat what{};
    bool is_file = fstat(descriptor, &what) == 0 && S_ISREG(what.st_mode) &&
                   static_cast<uint64_t>(what.st_size) <= kLargestBytes;
    File file(is_file ? fdopen(descriptor, "rb") : nullptr);
    if (file == nullptr) close(descriptor);
    return file;
}

// True if Vulkan's own header is version one and belongs to this device and driver.
bool is_of(const std::vector<char> &data, const Adapter &adapter) {
    VkPipelineCacheHeaderVersionOne head;
    if (data.size() < sizeof head) return false;
    // Not loaded as the enum that it is: a file may hold any number there.
    uint32_t version = 0;
    static_assert(sizeof version == sizeof head.headerVersion);
    std::memcpy(&version, data.data() + offsetof(VkPipelineCacheHeaderVersionOne, headerVersion),
                sizeof version);
    std::memcpy(&head, data.data(), sizeof head);
    const VkPhysicalDeviceProperties &properties = adapter.properties;
    return version == VK_PIPELINE_CACHE_HEADER_VERSION_ONE && head.headerSize >= sizeof head &&
           head.vendorID == properties.vendorID && head.deviceID == properties.deviceID &&
           std::memcmp(head.pipelineCacheUUID, properties.pipelineCacheUUID, VK_UUID_SIZE) == 0;
}

}  // namespace

std::string pipeline_cache_path(const Adapter &adapter) {
    std::string path = folder();
    if (path.empty()) return path;
    const VkPhysicalDeviceProperties &properties = adapter.properties;
    uint64_t name = hash(properties.pipelineCacheUUID, VK_UUID_SIZE);
    name = hash(&properties.driverVersion, sizeof properties.driverVersion, name);
    name = hash(adapter.uuid, sizeof adapter.uuid, name);
    for (uint32_t i = 0; i < static_cast<uint32_t>(KernelName::count); ++i) {
        Spirv code = spirv_of(static_cast<KernelName>(i));
        name = hash(code.words, code.size_bytes, name);
    }
    char file[48];
    std::snprintf(file, sizeof file, "/vulkan-%016llx.bin", static_cast<unsigned long long>(name));
    return path + file;
}

std::vector<char> read_pipeline_cache(const std::string &path, const Adapter &adapter) {
    File file = open_file(path);
    Head head{};
    if (file == nullptr || std::fread(&head, sizeof head, 1, file.get()) != 1) return {};
    if (head.magic != kMagic || head.size_bytes > kLargestBytes) return {};
    std::vector<char> data(head.size_bytes);
    bool is_whole = std::fread(data.data(), 1, data.size(), file.get()) == data.size() &&
                    std::fgetc(file.get()) == EOF &&
                    hash(data.data(), data.size()) == head.checksum && is_of(data, adapter);
    if (!is_whole) data.clear();
    return data;
}

void write_pipeline_cache(const std::string &path, const std::vector<char> &data) {
    if (path.empty() || data.empty() || data.size() > kLargestBytes - sizeof(Head)) return;
    std::string where = path.substr(0, path.rfind('/'));
    mkdir(where.substr(0, where.rfind('/')).c_str(), 0700);
    mkdir(where.c_str(), 0700);
    // Another process may be reading: the file is replaced whole or not at all.
    std::string beside = path + ".XXXXXX";
    int descriptor = mkostemp(beside.data(), O_CLOEXEC);
    if (descriptor < 0) return;
    File file(fdopen(descriptor, "wb"));
    Head head = {kMagic, data.size(), hash(data.data(), data.size())};
    bool is_written = file != nullptr && std::fwrite(&head, sizeof head, 1, file.get()) == 1 &&
                      std::fwrite(data.data(), 1, data.size(), file.get()) == data.size() &&
                      std::fflush(file.get()) == 0;
    if (file == nullptr) close(descriptor);
    file.reset();
    if (!is_written || std::rename(beside.c_str(), path.c_str()) != 0) unlink(beside.c_str());
}

}  // namespace quire::vulkan
