// SPDX-License-Identifier: Apache-2.0
//
// How a program gets the library and its backends, and which error it gets if it does not.

#include <dlfcn.h>
#include <quire/dyn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "library_copy.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

TEST(Api, every_entry_of_the_table_is_the_exported_function) {
    void *handle = dlopen(library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    const quire_api &api = library();
    uint32_t count = 0;
#define QUIRE_COMPARE(name, parameters)                                                    \
    EXPECT_EQ(reinterpret_cast<void *>(api.name), dlsym(handle, "quire_" #name)) << #name; \
    ++count;
    QUIRE_API_LIST(QUIRE_COMPARE)
#undef QUIRE_COMPARE
    EXPECT_EQ(api.struct_size, 16 + count * sizeof(void *));
    EXPECT_EQ(api.major, QUIRE_VERSION_MAJOR);
    EXPECT_EQ(api.minor, QUIRE_VERSION_MINOR);
}

TEST(Api, another_version_is_refused_with_both_numbers) {
    void *handle = dlopen(library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr);
    auto get_api = reinterpret_cast<quire_get_api_fn>(dlsym(handle, "quire_get_api"));
    const quire_api *api = nullptr;
    quire_error error{};
    error.struct_size = sizeof error;
    EXPECT_EQ(get_api(7, 0, &api, &error), QUIRE_E_INCOMPATIBLE);
    EXPECT_NE(std::string(error.message).find("7.0"), std::string::npos) << error.message;
    EXPECT_NE(std::string(error.message).find("0.1"), std::string::npos) << error.message;
    EXPECT_EQ(get_api(0, 99, &api, &error), QUIRE_E_INCOMPATIBLE);
    EXPECT_EQ(api, nullptr);
    EXPECT_EQ(get_api(0, 0, nullptr, &error), QUIRE_E_ARG);
}

TEST(Api, every_status_has_a_name) {
    void *handle = dlopen(library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    auto name = reinterpret_cast<const char *(*)(quire_status)>(dlsym(handle, "quire_status_name"));
    EXPECT_STREQ(name(QUIRE_E_STALE), "QUIRE_E_STALE");
    for (quire_status status = QUIRE_E_INTERNAL; status <= QUIRE_S_TIMEOUT; ++status) {
        EXPECT_STRNE(name(status), "unknown status") << status;
    }
    EXPECT_STREQ(name(-1000), "unknown status");
}

TEST(Dyn, a_missing_file_is_named) {
    const quire_api *api = nullptr;
    char why[512] = "";
    EXPECT_EQ(quire_dyn_load("/nowhere/libquire.so", &api, why, sizeof why), QUIRE_E_OS);
    EXPECT_NE(std::string(why).find("/nowhere/libquire.so"), std::string::npos) << why;
    EXPECT_NE(std::string(why).find("QUIRE_LIBRARY"), std::string::npos) << why;
    EXPECT_EQ(api, nullptr);
}

TEST(Dyn, a_library_of_somebody_else_is_told_apart) {
    const quire_api *api = nullptr;
    char why[512] = "";
    EXPECT_EQ(quire_dyn_load("libc.so.6", &api, why, sizeof why), QUIRE_E_INCOMPATIBLE);
    EXPECT_NE(std::string(why).find("not libquire"), std::string::npos) << why;
}

TEST(Dyn, a_library_whose_table_ends_before_the_headers_is_refused_with_both_sizes) {
    const char *path = std::getenv("QUIRE_SHORT_TABLE");
    ASSERT_NE(path, nullptr) << "tests/abi/meson.build sets it";
    const quire_api *api = &library();
    char why[512] = "";
    EXPECT_EQ(quire_dyn_load(path, &api, why, sizeof why), QUIRE_E_INCOMPATIBLE);
    EXPECT_EQ(api, nullptr) << "no table shorter than the headers'";
    std::string words = why;
    size_t size_bytes = sizeof(quire_api);
    EXPECT_NE(words.find(path), std::string::npos) << words;
    EXPECT_NE(words.find(std::to_string(size_bytes)), std::string::npos) << words;
    EXPECT_NE(words.find(std::to_string(size_bytes - sizeof(void *))), std::string::npos) << words;
}

TEST(Dyn, a_short_buffer_for_the_reason_is_not_overrun) {
    const quire_api *api = nullptr;
    char why[8] = "1234567";
    volatile size_t short_size = 5;  // a compiler that sees the value would rightly warn
    EXPECT_EQ(quire_dyn_load("/nowhere/libquire.so", &api, why, short_size), QUIRE_E_OS);
    EXPECT_EQ(why[4], '\0');
    EXPECT_EQ(why[5], '6');
}

struct Plugins : testing::Test {
    const quire_api &api = library();
    quire_instance *instance = nullptr;
    quire_error error{};
    uint32_t count = 0;

    void SetUp() override {
        error.struct_size = sizeof error;
        auto desc = described<quire_instance_desc>();
        ASSERT_EQ(api.instance_create(&desc, &instance, &error), QUIRE_OK);
        ASSERT_EQ(api.backend_count(instance, &count, &error), QUIRE_OK);
    }
    void TearDown() override { EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_OK); }

    // The message of the refusal.
    std::string refused(const char *path, quire_status expected) {
        uint32_t index = 77, after = 0;
        EXPECT_EQ(api.backend_load(instance, path, &index, &error), expected) << error.message;
        EXPECT_EQ(api.backend_count(instance, &after, &error), QUIRE_OK);
        EXPECT_EQ(after, count) << "something was added";
        EXPECT_EQ(index, 77u);
        return error.message;
    }
};

TEST_F(Plugins, a_path_that_does_not_exist_is_named) {
    std::string message = refused("/nowhere/quire_backend_x.so", QUIRE_E_BACKEND);
    EXPECT_NE(message.find("/nowhere/quire_backend_x.so"), std::string::npos) << message;
}

TEST_F(Plugins, a_file_that_is_no_plugin_is_refused_with_the_reason) {
    std::string path = testing::TempDir() + "quire_backend_text.so";
    std::ofstream(path) << "not a shared object\n";
    std::string message = refused(path.c_str(), QUIRE_E_BACKEND);
    EXPECT_NE(message.find("quire_backend_text.so"), std::string::npos) << message;
    std::remove(path.c_str());
}

TEST_F(Plugins, a_shared_object_without_the_entry_is_refused_with_its_name) {
    char path[4096];
    ASSERT_NE(realpath(library_path().c_str(), path), nullptr);
    std::string message = refused(path, QUIRE_E_BACKEND);
    EXPECT_NE(message.find("quire_backend_query_v0"), std::string::npos) << message;
}

TEST_F(Plugins, a_relative_path_is_refused) {
    std::string message = refused("quire_backend_cpu.so", QUIRE_E_BACKEND);
    EXPECT_NE(message.find("not absolute"), std::string::npos) << message;
    refused("", QUIRE_E_BACKEND);
    refused(nullptr, QUIRE_E_ARG);
}

TEST_F(Plugins, a_candidate_that_does_not_load_leaves_its_reason) {
    std::string folder = testing::TempDir() + "quire_plugins";
    ASSERT_EQ(std::system(("mkdir -p " + folder).c_str()), 0);
    std::string path = folder + "/quire_backend_broken.so";
    std::ofstream(path) << "nothing";
    auto desc = described<quire_instance_desc>();
    desc.plugin_path = folder.c_str();
    quire_instance *other = nullptr;
    ASSERT_EQ(api.instance_create(&desc, &other, &error), QUIRE_OK);
    uint32_t found = 0;
    ASSERT_EQ(api.backend_count(other, &found, &error), QUIRE_OK);
    EXPECT_EQ(found, count + 1);
    auto info = described<quire_backend_info>();
    ASSERT_EQ(api.backend_get_info(other, 0, &info, &error), QUIRE_OK);
    EXPECT_EQ(info.status, QUIRE_E_BACKEND);
    EXPECT_STREQ(info.name, "broken");
    EXPECT_STREQ(info.path, path.c_str());
    EXPECT_STRNE(info.message, "");
    EXPECT_EQ(api.backend_get_info(other, found, &info, &error), QUIRE_E_ARG);
    EXPECT_EQ(api.instance_destroy(other, &error), QUIRE_OK);
    std::remove(path.c_str());
}

TEST_F(Plugins, a_device_of_a_backend_that_is_not_there_is_refused) {
    auto desc = described<quire_device_desc>();
    desc.backend = "abacus";
    quire_device *device = nullptr;
    EXPECT_EQ(api.device_open(instance, &desc, &device, &error), QUIRE_E_BACKEND);
    EXPECT_NE(std::string(error.message).find("abacus"), std::string::npos) << error.message;
    desc.backend = "null";
    EXPECT_EQ(api.device_open(instance, &desc, &device, &error), QUIRE_E_ARG);
}

// Runs in the child; returns the status of a call on an object of the parent.
quire_status in_child(const std::function<quire_status()> &call) {
    pid_t child = fork();
    if (child == 0) _exit(call() == QUIRE_E_FORKED ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? QUIRE_E_FORKED : QUIRE_OK;
}

TEST_F(Plugins, a_forked_child_is_refused_what_needs_the_device_and_the_parent_goes_on) {
    auto desc = described<quire_device_desc>();
    desc.backend = "cpu";
    quire_device *device = nullptr;
    ASSERT_EQ(api.device_open(instance, &desc, &device, &error), QUIRE_OK) << error.message;
    quire_queue *queue = nullptr;
    ASSERT_EQ(api.queue_create(device, nullptr, &queue, &error), QUIRE_OK) << error.message;
    auto memory_desc = described<quire_memory_desc>();
    memory_desc.size_bytes = 64;
    quire_memory *memory = nullptr;
    EXPECT_EQ(in_child([&] { return api.queue_sync(queue, nullptr); }), QUIRE_E_FORKED);
    EXPECT_EQ(in_child([&] { return api.memory_create(device, &memory_desc, &memory, nullptr); }),
              QUIRE_E_FORKED);
    EXPECT_EQ(in_child([&] { return api.device_open(instance, &desc, &device, nullptr); }),
              QUIRE_E_FORKED);
    EXPECT_EQ(api.queue_sync(queue, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(api.device_close(device, &error), QUIRE_E_BUSY) << "its queue lives";
    EXPECT_EQ(api.instance_destroy(instance, &error), QUIRE_E_BUSY) << "its device is open";
    EXPECT_EQ(api.queue_destroy(queue, &error), QUIRE_OK);
    EXPECT_EQ(api.device_close(device, &error), QUIRE_OK);
}

TEST_F(Plugins, a_cache_that_keeps_books_only_works_in_a_forked_child) {
    pid_t child = fork();
    if (child == 0) {
        Manager m;
        m.compute(m.sequence(), tokens_from(1, 5));
        _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
