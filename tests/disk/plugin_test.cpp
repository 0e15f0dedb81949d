// SPDX-License-Identifier: Apache-2.0
//
// The plugin as the library loads it: its table, refusals in words, and its directory as the reader
// in Python sees it.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "place.hpp"
#include "scene.hpp"

namespace quire::disk::tests {

namespace {

struct Error : quire_error {
    Error() : quire_error{} { struct_size = sizeof(quire_error); }
};

class DiskPlugin : public testing::Test {
 protected:
    void SetUp() override {
        void *handle = dlopen(quire::tests::place(QUIRE_STORE_DISK).c_str(), RTLD_NOW);
        ASSERT_NE(handle, nullptr) << dlerror();
        auto query = reinterpret_cast<quire_store_query_fn>(dlsym(handle, QUIRE_STORE_ENTRY));
        ASSERT_NE(query, nullptr);
        quire_host_info host{};
        host.struct_size = sizeof host;
        host.abi_major = QUIRE_STORE_ABI_MAJOR;
        host.abi_minor = QUIRE_STORE_ABI_MINOR;
        ASSERT_EQ(query(&host, &api, &error), QUIRE_OK) << error.message;
        host.abi_major = 7;
        const quire_store_api *none = nullptr;
        EXPECT_EQ(query(&host, &none, &error), QUIRE_E_INCOMPATIBLE);
    }
    void TearDown() override {
        uint64_t live = 1;
        EXPECT_EQ(api->shutdown(&live, &error), QUIRE_OK);
        EXPECT_EQ(live, 0u);
    }

    quire_status open(const std::vector<quire_store_option> &options, quire_store **out,
                      uint32_t flags = 0) {
        quire_store_desc desc{};
        desc.struct_size = sizeof desc;
        desc.flags = flags;
        desc.options = options.data();
        desc.option_count = static_cast<uint32_t>(options.size());
        desc.option_stride = sizeof(quire_store_option);
        return api->open(&desc, out, &error);
    }

    uint32_t put(quire_store *store, uint64_t number, uint64_t size) {
        Bytes value = value_of(number, 0, size);
        quire_store_piece piece{value.data(), value.size()};
        quire_store_request request{};
        request.kind = QUIRE_STORE_PUT;
        request.label = label_of(number);
        request.pieces = &piece;
        request.piece_count = 1;
        uint32_t count = 0;
        EXPECT_EQ(api->submit(store, &request, 1, sizeof request, &count, &error), QUIRE_OK)
            << error.message;
        quire_store_answer answer{};
        for (count = 0; count == 0;) {
            pollfd waiting{api->descriptor(store), POLLIN, 0};
            EXPECT_EQ(::poll(&waiting, 1, 10'000), 1);
            EXPECT_EQ(api->reap(store, &answer, 1, sizeof answer, &count, &error), QUIRE_OK);
            if (answer.outcome == QUIRE_STORE_NOTICE_GONE) count = 0;
        }
        return answer.outcome;
    }

    const quire_store_api *api = nullptr;
    Error error;
    Folder folder;
};

TEST_F(DiskPlugin, wrong_options_are_refused_in_words) {
    const char *directory = folder.path().c_str();
    std::vector<std::vector<quire_store_option>> wrong = {
        {},
        {{"directory", ""}},
        {{"directory", directory}, {"directory", directory}},
        {{"directory", directory}, {"colour", "red"}},
        {{"directory", directory}, {"capacity", "1KiB"}},
        {{"directory", directory}, {"capacity", "12 GiB"}},
        {{"directory", directory}, {"capacity", "99999999TiB"}},
        {{"directory", directory}, {"segment", "1GiB"}, {"capacity", "1GiB"}},
        {{"directory", directory}, {"segment", "4KiB"}},
        {{"directory", directory}, {"durability", "always"}},
        {{"directory", directory}, {"io", "fast"}},
        {{"directory", directory}, {"threads", "0"}},
        {{"directory", directory}, {"threads", "65"}},
        {{"directory", directory}, {"direct", "maybe"}},
        {{"directory", nullptr}},
    };
    for (const auto &options : wrong) {
        quire_store *store = nullptr;
        error = Error();
        EXPECT_EQ(open(options, &store), QUIRE_E_ARG);
        EXPECT_GT(std::strlen(error.message), 20u);
        EXPECT_STREQ(error.backend, "disk");
        EXPECT_EQ(store, nullptr);
    }
    quire_store *store = nullptr;
    EXPECT_EQ(open({{"directory", directory}}, &store, 1u << 9), QUIRE_E_STRUCT);
    EXPECT_EQ(open({{"directory", "/nowhere/at/all"}}, &store), QUIRE_E_OS);
    EXPECT_EQ(open({{"directory", "/nowhere/at/all"}}, &store, QUIRE_STORE_OPEN_EXISTING),
              QUIRE_E_ARG);
}

TEST_F(DiskPlugin, wrong_requests_are_refused_and_none_is_taken) {
    quire_store *store = nullptr;
    ASSERT_EQ(open({{"directory", folder.path().c_str()}, {"capacity", "1MiB"}}, &store), QUIRE_OK)
        << error.message;
    Bytes value(256 << 10);
    quire_store_piece fine{value.data(), 100}, null{nullptr, 100},
        large{value.data(), value.size()};
    quire_store_piece endless[2] = {{value.data(), UINT64_MAX}, {value.data(), 2}};
    auto request = [](uint32_t kind, const quire_store_piece *pieces, uint32_t count) {
        quire_store_request made{};
        made.kind = kind;
        made.pieces = pieces;
        made.piece_count = count;
        return made;
    };
    std::vector<quire_store_request> wrong = {
        request(0, nullptr, 0),
        request(7, nullptr, 0),
        request(QUIRE_STORE_PUT, nullptr, 0),
        request(QUIRE_STORE_PUT, nullptr, 1),
        request(QUIRE_STORE_PUT, &null, 1),
        request(QUIRE_STORE_PUT, &large, 1),
        request(QUIRE_STORE_GET, endless, 2),
        request(QUIRE_STORE_FIND, &fine, 1),
    };
    wrong.push_back(request(QUIRE_STORE_FLUSH, nullptr, 0));
    wrong.back().label = label_of(1);
    wrong.push_back(request(QUIRE_STORE_FIND, nullptr, 0));
    wrong.back().flags = 1;
    for (size_t i = 0; i < wrong.size(); ++i) {
        quire_store_request both[2] = {request(QUIRE_STORE_FIND, nullptr, 0), wrong[i]};
        uint32_t taken = 9;
        quire_status status = api->submit(store, both, 2, sizeof both[0], &taken, &error);
        EXPECT_EQ(status, i + 1 == wrong.size() ? QUIRE_E_STRUCT : QUIRE_E_ARG) << i;
        quire_store_answer answer{};
        uint32_t count = 9;
        EXPECT_EQ(api->reap(store, &answer, 1, sizeof answer, &count, &error), QUIRE_OK);
        EXPECT_EQ(count, 0u);
    }
    EXPECT_EQ(api->close_wait(store, UINT64_MAX, &error), QUIRE_OK);
    ASSERT_EQ(open({{"directory", folder.path().c_str()}}, &store, QUIRE_STORE_OPEN_READ_ONLY),
              QUIRE_OK);
    for (uint32_t kind : {QUIRE_STORE_PUT, QUIRE_STORE_REMOVE, QUIRE_STORE_COMPACT}) {
        bool is_put = kind == QUIRE_STORE_PUT;
        quire_store_request change = request(kind, is_put ? &fine : nullptr, is_put ? 1 : 0);
        uint32_t taken = 0;
        EXPECT_EQ(api->submit(store, &change, 1, sizeof change, &taken, &error),
                  QUIRE_E_UNSUPPORTED);
    }
    EXPECT_EQ(api->close_wait(store, UINT64_MAX, &error), QUIRE_OK);
}

// Runs the reader, and returns the lines that it printed.
std::vector<std::string> read_by_python(const std::string &folder, int *status) {
    std::string command =
        std::string("python3 ") + quire::tests::place(QUIRE_READ_STORE) + " " + folder + " 2>&1";
    std::vector<std::string> lines;
    FILE *pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return lines;
    char line[512];
    while (std::fgets(line, sizeof line, pipe) != nullptr) lines.emplace_back(line);
    *status = pclose(pipe);
    return lines;
}

TEST_F(DiskPlugin, a_reader_of_the_format_sees_what_list_says) {
    int status = 0;
    quire_store *store = nullptr;
    ASSERT_EQ(open({{"directory", folder.path().c_str()}, {"capacity", "1MiB"}}, &store), QUIRE_OK);
    for (uint64_t i = 0; i < 200; ++i) {
        EXPECT_EQ(put(store, i, 1 + i * 379 % 9000), uint32_t{QUIRE_STORE_DONE});
    }
    std::map<std::string, std::string> listed;
    uint64_t cursor = 0;
    quire_store_record record;
    uint32_t count = 0;
    while (api->list(store, &cursor, &record, 1, sizeof record, &count, &error) == QUIRE_OK &&
           count != 0) {
        std::string key;
        for (uint8_t byte : record.label.key) {
            char two[3];
            std::snprintf(two, sizeof two, "%02x", byte);
            key += two;
        }
        listed[key] = std::to_string(record.value_bytes) + " " + std::to_string(record.sequence);
    }
    EXPECT_EQ(api->close_wait(store, UINT64_MAX, &error), QUIRE_OK);
    std::map<std::string, std::string> read;
    for (const std::string &line : read_by_python(folder.path(), &status)) {
        ASSERT_EQ(line.find("damaged"), std::string::npos) << line;
        read[line.substr(0, 64)] = line.substr(65, line.size() - 66);
    }
    EXPECT_EQ(status, 0);
    EXPECT_GT(listed.size(), 40u);
    EXPECT_EQ(read, listed);
}

}  // namespace

}  // namespace quire::disk::tests
