// SPDX-License-Identifier: Apache-2.0
//
// Loading: the query is pure, and gives a reason for what it cannot serve.

#include <cstring>

#include "subject.hpp"

namespace quire::stores {

TEST(Load, query_gives_the_same_table_every_time) {
    quire_host_info host = host_info();
    for (int i = 0; i < 3; ++i) {
        const quire_store_api *again = nullptr;
        Error error;
        ASSERT_EQ(query_function()(&host, &again, &error), QUIRE_OK) << error.message;
        EXPECT_EQ(again, table());
    }
}

TEST(Load, table_names_itself_its_version_and_its_options) {
    EXPECT_EQ(api().abi_major, QUIRE_STORE_ABI_MAJOR);
    EXPECT_LE(api().abi_minor, QUIRE_STORE_ABI_MINOR);
    EXPECT_LE(api().min_host_minor, QUIRE_STORE_ABI_MINOR);
    ASSERT_NE(api().name, nullptr);
    ASSERT_NE(api().version, nullptr);
    ASSERT_NE(api().help, nullptr);
    size_t length = std::strlen(api().name);
    EXPECT_GE(length, 1u);
    EXPECT_LE(length, 31u);
    EXPECT_EQ(std::strspn(api().name, "abcdefghijklmnopqrstuvwxyz0123456789_-"), length);
    EXPECT_LE(std::strlen(api().version), 31u);
    if (!promised_name().empty()) {
        EXPECT_EQ(api().name, promised_name()) << "the name of the file";
    }
}

TEST(Load, every_function_that_a_library_needs_is_there) {
    EXPECT_NE(api().open, nullptr);
    EXPECT_NE(api().close_wait, nullptr);
    EXPECT_NE(api().get_info, nullptr);
    EXPECT_NE(api().get_stats, nullptr);
    EXPECT_NE(api().submit, nullptr);
    EXPECT_NE(api().reap, nullptr);
    EXPECT_NE(api().cancel, nullptr);
    EXPECT_NE(api().find, nullptr);
    EXPECT_NE(api().shutdown, nullptr);
}

TEST(Load, newer_host_is_served_as_the_plugins_own_minor) {
    quire_host_info host = host_info();
    host.abi_minor += 7;
    const quire_store_api *newer = nullptr;
    Error error;
    ASSERT_EQ(query_function()(&host, &newer, &error), QUIRE_OK) << error.message;
    EXPECT_LE(newer->abi_minor, QUIRE_STORE_ABI_MINOR);
}

TEST(Load, other_major_is_refused) {
    quire_host_info host = host_info();
    host.abi_major += 1;
    const quire_store_api *other = nullptr;
    Error error;
    expect_refused(query_function()(&host, &other, &error), error, QUIRE_E_INCOMPATIBLE);
    EXPECT_EQ(other, nullptr);
}

TEST(Load, short_host_struct_and_null_pointers_are_refused) {
    quire_host_info host = host_info();
    const quire_store_api *other = nullptr;
    Error error;
    expect_refused(query_function()(nullptr, &other, &error), error, QUIRE_E_ARG);
    expect_refused(query_function()(&host, nullptr, &error), error, QUIRE_E_ARG);
    host.struct_size = 8;
    expect_refused(query_function()(&host, &other, &error), error, QUIRE_E_STRUCT);
}

TEST(Load, error_is_written_up_to_its_size_only) {
    quire_host_info host = host_info();
    host.abi_major += 1;
    unsigned char bytes[sizeof(quire_error)];
    std::memset(bytes, 0x5A, sizeof bytes);
    constexpr uint32_t kSmall = offsetof(quire_error, message) + 8;
    quire_error head{};
    head.struct_size = kSmall;
    std::memcpy(bytes, &head, kSmall);
    const quire_store_api *other = nullptr;
    EXPECT_EQ(query_function()(&host, &other, reinterpret_cast<quire_error *>(bytes)),
              QUIRE_E_INCOMPATIBLE);
    EXPECT_NE(bytes[kSmall - 8], 0) << "a message was begun";
    for (size_t i = kSmall; i < sizeof bytes; ++i) ASSERT_EQ(bytes[i], 0x5A) << i;
}

}  // namespace quire::stores
