// SPDX-License-Identifier: Apache-2.0
//
// Plugins that another user could have placed where the library looks are not loaded; the same file
// in the same place is loaded once no other user can write there.

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;
namespace fs = std::filesystem;

constexpr uid_t kStranger = 65534;

class Planted : public testing::Test {
 protected:
    void SetUp() override {
        unsetenv("QUIRE_HOSTILE");
        path_of_environment_ = take_environment("QUIRE_PLUGIN_PATH");
        std::string form = testing::TempDir() + "quire_planted_XXXXXX";
        ASSERT_NE(mkdtemp(form.data()), nullptr);
        root_ = fs::canonical(form);
        fs::permissions(root_, fs::perms(0755));
        before_ = fs::current_path();
    }
    void TearDown() override {
        fs::current_path(before_);
        setenv("QUIRE_PLUGIN_PATH", path_of_environment_.c_str(), 1);
        fs::remove_all(root_);
    }

    static std::string take_environment(const char *name) {
        const char *value = std::getenv(name);
        std::string copy = value != nullptr ? value : "";
        unsetenv(name);
        return copy;
    }
    // A folder below the test's own, with a working plugin in it.
    fs::path plant(const std::string &folder) {
        fs::path where = root_ / folder;
        fs::create_directories(where);
        for (fs::path at = where; at != root_; at = at.parent_path()) chmod(at.c_str(), 0755);
        const char *built = std::getenv("QUIRE_HOSTILE_DIR");
        fs::path file = where / "quire_backend_hostile.so";
        fs::copy_file(fs::path(built != nullptr ? built : ".") / file.filename(), file);
        chmod(file.c_str(), 0755);
        return file;
    }
    // Empty if the file was loaded, by its own path and by a search of its folder; else the reason.
    std::string reason(const fs::path &file) {
        std::string direct = load(file), found = search(file.parent_path());
        EXPECT_EQ(direct.empty(), found.empty()) << direct << " / " << found;
        return direct;
    }
    std::string load(const fs::path &file) {
        quire_error error = described<quire_error>();
        quire_instance *instance = create("/nowhere");
        uint32_t index = 0;
        quire_status status = library().backend_load(instance, file.c_str(), &index, &error);
        library().instance_destroy(instance, nullptr);
        return status == QUIRE_OK ? "" : error.message;
    }
    // Why the search found nothing that loads; empty if it did.
    std::string search(const fs::path &folder) {
        quire_instance *instance = create(folder.c_str());
        uint32_t count = 0;
        library().backend_count(instance, &count, nullptr);
        std::string why = count == 0 ? "nothing was found" : "";
        for (uint32_t i = 0; i < count; ++i) {
            auto info = described<quire_backend_info>();
            library().backend_get_info(instance, i, &info, nullptr);
            why = info.status < 0 ? info.message : "";
            if (why.empty()) break;
        }
        library().instance_destroy(instance, nullptr);
        return why;
    }
    static quire_instance *create(const char *plugin_path) {
        auto desc = described<quire_instance_desc>();
        desc.plugin_path = plugin_path;
        quire_instance *instance = nullptr;
        EXPECT_EQ(library().instance_create(&desc, &instance, nullptr), QUIRE_OK);
        return instance;
    }
    void expect_only_right(const fs::path &file, const fs::path &changed, mode_t wrong,
                           const std::string &words) {
        ASSERT_EQ(chmod(changed.c_str(), wrong), 0);
        EXPECT_NE(reason(file).find(words), std::string::npos) << reason(file);
        ASSERT_EQ(chmod(changed.c_str(), 0755), 0);
        EXPECT_EQ(reason(file), "");
    }

    fs::path root_, before_;
    std::string path_of_environment_;
};

TEST_F(Planted, in_the_working_directory_is_not_found) {
    fs::path file = plant("here");
    fs::current_path(file.parent_path());
    for (const char *path : {"", ".", "./", ":", "::.", ".:"}) {
        EXPECT_EQ(search(path), "nothing was found") << path;
        setenv("QUIRE_PLUGIN_PATH", path, 1);
        EXPECT_EQ(search("/nowhere"), "nothing was found") << path;
        unsetenv("QUIRE_PLUGIN_PATH");
    }
    EXPECT_NE(load("quire_backend_hostile.so").find("not absolute"), std::string::npos);
    EXPECT_NE(load("./quire_backend_hostile.so").find("not absolute"), std::string::npos);
    setenv("QUIRE_PLUGIN_PATH", file.parent_path().c_str(), 1);
    EXPECT_EQ(search("/nowhere"), "") << "it is found by its full path";
}

TEST_F(Planted, in_a_relative_directory_is_passed_over_and_the_refusal_says_what_to_set) {
    fs::path file = plant("here");
    fs::current_path(file.parent_path().parent_path());
    EXPECT_EQ(search("here"), "nothing was found");
    quire_instance *instance = create("here");
    auto desc = described<quire_device_desc>();
    auto error = described<quire_error>();
    quire_device *device = nullptr;
    EXPECT_EQ(library().device_open(instance, &desc, &device, &error), QUIRE_E_BACKEND);
    EXPECT_NE(std::strstr(error.message, "absolute path"), nullptr) << error.message;
    library().instance_destroy(instance, nullptr);
}

TEST_F(Planted, in_a_directory_that_everybody_writes) {
    fs::path file = plant("open");
    expect_only_right(file, file.parent_path(), 0777, "its directory is writable by others");
    expect_only_right(file, file.parent_path(), 01777, "its directory is writable by others");
}

TEST_F(Planted, below_a_directory_that_everybody_writes) {
    fs::path file = plant("open/within/deep");
    expect_only_right(file, root_ / "open", 0777, "a parent directory");
    expect_only_right(file, root_ / "open/within", 0773, "a parent directory");
    chmod((root_ / "open").c_str(), 01777);
    EXPECT_EQ(reason(file), "") << "in a sticky one, as /tmp is, others cannot replace it";
}

TEST_F(Planted, as_a_file_that_everybody_writes) {
    fs::path file = plant("file");
    expect_only_right(file, file, 0777, "it is writable");
    expect_only_right(file, file, 0646, "it is writable");
}

TEST_F(Planted, behind_a_link_to_a_directory_that_everybody_writes) {
    fs::path file = plant("open");
    fs::create_directory_symlink(file.parent_path(), root_ / "link");
    fs::path linked = root_ / "link" / file.filename();
    expect_only_right(linked, file.parent_path(), 0777, "its directory is writable by others");
    fs::path deep = plant("wide/within");
    fs::create_directory_symlink(deep.parent_path(), root_ / "deep_link");
    expect_only_right(root_ / "deep_link" / deep.filename(), root_ / "wide", 0777,
                      "a parent directory");
}

TEST_F(Planted, as_a_link) {
    fs::path file = plant("real");
    fs::path linked = root_ / "quire_backend_hostile.so";
    fs::create_symlink(file, linked);
    EXPECT_NE(reason(linked).find("symbolic link"), std::string::npos) << reason(linked);
    EXPECT_EQ(reason(file), "");
}

TEST_F(Planted, as_something_that_is_no_file) {
    fs::path file = plant("odd");
    fs::remove(file);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    EXPECT_NE(reason(file).find("not a regular file"), std::string::npos) << reason(file);
    fs::remove(file);
    fs::create_directory(file);
    EXPECT_NE(reason(file).find("not a regular file"), std::string::npos) << reason(file);
}

TEST_F(Planted, by_a_group_or_another_user) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give files to another group or user";
    fs::path file = plant("given");
    fs::path folder = file.parent_path();
    for (const fs::path &changed : {file, folder}) {
        ASSERT_EQ(chown(changed.c_str(), 0, kStranger), 0);
        expect_only_right(file, changed, 0775, "others");
        ASSERT_EQ(chown(changed.c_str(), kStranger, kStranger), 0);
        EXPECT_NE(reason(file).find("belongs to another user"), std::string::npos) << reason(file);
        ASSERT_EQ(chown(changed.c_str(), 0, 0), 0);
        EXPECT_EQ(reason(file), "");
        chmod(changed.c_str(), 0775);  // root's own group
        EXPECT_EQ(reason(file), "");
        chmod(changed.c_str(), 0755);
    }
    chown(root_.c_str(), 0, kStranger);
    expect_only_right(file, root_, 0775, "a parent directory");
}

}  // namespace
