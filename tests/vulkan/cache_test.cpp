// SPDX-License-Identifier: Apache-2.0
//
// The vulkan backend's files on disk, and that no content of a file can do harm.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "shared/checks.hpp"
#include "vulkan/pipeline_cache.hpp"

const char quire::kBackendName[] = "vulkan";

namespace quire::vulkan {

namespace {

namespace fs = std::filesystem;

class PipelineCache : public testing::Test {
 protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "quire-cache-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder_ = name;
        setenv("QUIRE_VULKAN_CACHE", (folder_ / "made" / "here").c_str(), 1);
        adapter_.properties.vendorID = 1;
        adapter_.properties.deviceID = 2;
        adapter_.properties.pipelineCacheUUID[3] = 4;
        path_ = pipeline_cache_path(adapter_);
    }
    void TearDown() override {
        unsetenv("QUIRE_VULKAN_CACHE");
        fs::remove_all(folder_);
    }
    // As a driver would return it.
    std::vector<char> data_of(const Adapter &adapter) const {
        VkPipelineCacheHeaderVersionOne head{};
        head.headerSize = sizeof head;
        head.headerVersion = VK_PIPELINE_CACHE_HEADER_VERSION_ONE;
        head.vendorID = adapter.properties.vendorID;
        head.deviceID = adapter.properties.deviceID;
        std::copy_n(adapter.properties.pipelineCacheUUID, VK_UUID_SIZE, head.pipelineCacheUUID);
        std::vector<char> data(1000, 7);
        std::memcpy(data.data(), &head, sizeof head);
        return data;
    }

    Adapter adapter_;
    fs::path folder_;
    std::string path_;
};

TEST_F(PipelineCache, comes_back_as_it_was_written) {
    EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty()) << "nothing is there yet";
    write_pipeline_cache(path_, data_of(adapter_));
    EXPECT_EQ(read_pipeline_cache(path_, adapter_), data_of(adapter_));
    EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path_).parent_path()), {}), 1)
        << "no other file is left";
}

TEST_F(PipelineCache, damaged_file_is_passed_over) {
    write_pipeline_cache(path_, data_of(adapter_));
    auto size = static_cast<int64_t>(fs::file_size(path_));
    for (int64_t at : {int64_t{0}, int64_t{9}, int64_t{17}, int64_t{30}, size - 1}) {
        write_pipeline_cache(path_, data_of(adapter_));
        std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(at);
        file.put('\x55');
        file.close();
        EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty()) << at;
    }
    for (int64_t kept : {int64_t{0}, int64_t{10}, int64_t{24}, size - 1}) {
        write_pipeline_cache(path_, data_of(adapter_));
        fs::resize_file(path_, static_cast<uintmax_t>(kept));
        EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty()) << kept;
    }
    write_pipeline_cache(path_, data_of(adapter_));
    std::ofstream(path_, std::ios::app) << "more";
    EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty());
}

TEST_F(PipelineCache, file_of_another_device_is_passed_over) {
    Adapter other = adapter_;
    other.properties.pipelineCacheUUID[5] = 6;
    EXPECT_NE(pipeline_cache_path(other), path_) << "and has another name";
    write_pipeline_cache(path_, data_of(other));
    EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty());
    Adapter newer = adapter_;
    newer.properties.driverVersion = 9;
    EXPECT_NE(pipeline_cache_path(newer), path_);
}

// A hang fails the test.
TEST_F(PipelineCache, what_is_no_file_is_passed_over_and_replaced) {
    fs::create_directories(fs::path(path_).parent_path());
    ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
    EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty()) << "a pipe without a writer";
    write_pipeline_cache(path_, data_of(adapter_));
    EXPECT_TRUE(fs::is_regular_file(path_));
    EXPECT_EQ(read_pipeline_cache(path_, adapter_), data_of(adapter_));
    fs::remove(path_);
    fs::create_symlink("/dev/zero", path_);
    EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty()) << "a device";
    fs::remove(path_);
    fs::create_directory(path_);
    EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty()) << "a folder";
}

TEST_F(PipelineCache, file_that_is_too_large_is_passed_over) {
    write_pipeline_cache(path_, data_of(adapter_));
    fs::resize_file(path_, (uintmax_t{256} << 20) + 1);  // a hole: it takes no space on disk
    EXPECT_TRUE(read_pipeline_cache(path_, adapter_).empty());
}

TEST_F(PipelineCache, folder_that_cannot_be_written_is_no_error) {
    std::string nowhere = "/proc/nothing/vulkan.bin";
    write_pipeline_cache(nowhere, data_of(adapter_));
    EXPECT_TRUE(read_pipeline_cache(nowhere, adapter_).empty());
    setenv("QUIRE_VULKAN_CACHE", "0", 1);
    EXPECT_EQ(pipeline_cache_path(adapter_), "");
}

}  // namespace

}  // namespace quire::vulkan
