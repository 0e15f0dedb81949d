// SPDX-License-Identifier: Apache-2.0
//
// Loading: the query is pure, and gives a reason for what it cannot serve.

#include <cstring>

#include "subject.hpp"

namespace quire::conformance {

TEST(Load, query_gives_the_same_table_every_time) {
    quire_host_info host = host_info();
    Error error;
    for (int i = 0; i < 3; ++i) {
        const quire_backend_api *table = nullptr;
        ASSERT_EQ(query_function()(&host, &table, &error), QUIRE_OK) << error.message;
        EXPECT_EQ(table, quire::conformance::table());
    }
}

TEST(Load, table_names_itself_and_its_version) {
    EXPECT_GE(api().struct_size, offsetof(quire_backend_api, features));
    EXPECT_EQ(api().abi_major, QUIRE_BACKEND_ABI_MAJOR);
    EXPECT_LE(api().abi_minor, QUIRE_BACKEND_ABI_MINOR);
    EXPECT_LE(api().min_host_minor, QUIRE_BACKEND_ABI_MINOR);
    ASSERT_NE(api().name, nullptr);
    EXPECT_LE(std::strlen(api().name), 31u);
    if (!promised_name().empty()) {
        EXPECT_EQ(api().name, promised_name()) << "the name of the file";
    }
    ASSERT_NE(api().version, nullptr);
    EXPECT_LE(std::strlen(api().version), 31u);
}

TEST(Load, newer_host_is_served_as_the_plugins_own_minor) {
    quire_host_info host = host_info();
    host.abi_minor += 7;
    Error error;
    const quire_backend_api *table = nullptr;
    ASSERT_EQ(query_function()(&host, &table, &error), QUIRE_OK) << error.message;
    EXPECT_LE(table->abi_minor, QUIRE_BACKEND_ABI_MINOR);
}

TEST(Load, other_major_is_refused) {
    quire_host_info host = host_info();
    host.abi_major += 1;
    Error error;
    const quire_backend_api *table = nullptr;
    expect_refused(query_function()(&host, &table, &error), error, QUIRE_E_INCOMPATIBLE);
    EXPECT_EQ(table, nullptr);
}

TEST(Load, short_host_struct_and_null_pointers_are_refused) {
    quire_host_info host = host_info();
    const quire_backend_api *table = nullptr;
    Error error;
    host.struct_size = 8;
    expect_refused(query_function()(&host, &table, &error), error, QUIRE_E_STRUCT);
    host.struct_size = sizeof host;
    expect_refused(query_function()(&host, nullptr, &error), error, QUIRE_E_ARG);
    expect_refused(query_function()(nullptr, &table, &error), error, QUIRE_E_ARG);
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
    const quire_backend_api *table = nullptr;
    EXPECT_EQ(query_function()(&host, &table, reinterpret_cast<quire_error *>(bytes)),
              QUIRE_E_INCOMPATIBLE);
    EXPECT_NE(bytes[kSmall - 8], 0) << "a message was begun";
    for (size_t i = kSmall; i < sizeof bytes; ++i) ASSERT_EQ(bytes[i], 0x5A) << i;
}

TEST(Load, probe_counts_the_same_devices_every_time) {
    ASSERT_NE(api().probe, nullptr);
    Error error;
    uint32_t first = 99;
    uint32_t second = 98;
    ASSERT_EQ(api().probe(&first, &error), QUIRE_OK) << error.message;
    ASSERT_EQ(api().probe(&second, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(first, second);
}

}  // namespace quire::conformance
