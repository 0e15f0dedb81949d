// SPDX-License-Identifier: Apache-2.0

#include "valkey/address.hpp"

#include <arpa/inet.h>

#include "shared/numbers.hpp"

namespace quire::valkey {

bool read_address(std::string_view text, Address *out) {
    const size_t at = text.rfind(':');
    uint64_t port = 0;
    if (at == std::string_view::npos || !read_count(text.substr(at + 1), &port)) return false;
    if (port == 0 || port > UINT16_MAX) return false;
    std::string_view host = text.substr(0, at);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    }
    *out = {std::string(host), static_cast<uint16_t>(port)};
    return true;
}

bool is_numeric(const std::string &host) {
    unsigned char bytes[sizeof(in6_addr)];
    return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
           inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

}  // namespace quire::valkey
