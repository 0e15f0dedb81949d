// SPDX-License-Identifier: Apache-2.0
//
// address: where a node listens.
//
// Threads: any.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::valkey {

struct Address {
    std::string host;
    uint16_t port = 0;

    std::string text() const { return host + ":" + std::to_string(port); }
    auto operator<=>(const Address &) const = default;
};

// "host:port"; a host may hold colons itself, as in IPv6, also in brackets. An empty host stays
// empty. False: it is no such text.
bool read_address(std::string_view text, Address *out);
// True for 127.0.0.1 and ::1, false for names.
bool is_numeric(const std::string &host);

}  // namespace quire::valkey
