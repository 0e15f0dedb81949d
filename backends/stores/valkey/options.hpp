// SPDX-License-Identifier: Apache-2.0
//
// options: the settings of a store as text, read and checked.
//
// A secret is never part of a message.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quire/plugin/store.h"
#include "valkey/address.hpp"

namespace quire::valkey {

struct Options {
    std::vector<Address> nodes;  // seeds, as they were given
    std::string username;
    std::string password;       // as of open()
    std::string password_file;  // where it came from; empty: from the option
    bool uses_tls = false;
    std::string tls_ca, tls_cert, tls_key, tls_name;
    std::string prefix = "quire:";
    uint64_t ttl_ms = 0;  // 0: values have no end
    uint64_t timeout_ns = 1'000'000'000;
    uint64_t connect_timeout_ns = 1'000'000'000;
    uint64_t max_value_bytes = uint64_t{64} << 20;
    uint32_t thread_count = 1;
    uint32_t failure_count = 3;  // in a row, after which a node is left alone
    uint64_t cooldown_ns = 1'000'000'000;
    uint64_t known_count = 200'000;
    uint64_t scan_ns = 0;  // 0: never
    bool is_read_only = false;
};

extern const char kHelp[];

// QUIRE_E_ARG: an option is unknown, given twice, missing or wrong; the message says which.
quire_status read_options(const quire_store_desc &desc, Options *out, quire_error *error);

// The password for a new connection: the file may hold another by now. Where it holds none, or is
// no file that can be read without waiting, it is the one of open().
std::string current_password(const Options &options);

}  // namespace quire::valkey
