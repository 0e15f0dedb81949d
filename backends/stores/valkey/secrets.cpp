// SPDX-License-Identifier: Apache-2.0

#include "valkey/secrets.hpp"

#include <algorithm>

namespace quire::valkey {

namespace {

constexpr size_t kMostText = 200;
constexpr size_t kTelling = 8;  // a node that repeats a command cuts long words

}  // namespace

void Secrets::add(const std::string &text) {
    if (!text.empty()) texts_.push_back(text);
}

// How many characters at the start of the text belong to a secret.
size_t Secrets::length_at(std::string_view text) const {
    size_t longest = 0;
    for (const std::string &secret : texts_) {
        for (size_t from = 0; from < secret.size(); ++from) {
            const size_t most = std::min(text.size(), secret.size() - from);
            size_t length = 0;
            while (length < most && text[length] == secret[from + length]) ++length;
            const bool tells = length == secret.size() || length >= kTelling;
            if (tells) longest = std::max(longest, length);
        }
    }
    return longest;
}

std::string Secrets::hidden(std::string_view text) const {
    // "unknown command 'AUTH', with args beginning with: ..."
    text = text.substr(0, text.find(", with args beginning with"));
    std::string out;
    while (!text.empty()) {
        if (out.size() >= kMostText) return out + "...";
        const size_t length = length_at(text);
        const auto byte = static_cast<unsigned char>(text.front());
        if (length != 0) {
            out += "***";
        } else if (byte >= ' ' && byte <= '~') {
            out += text.front();
        } else {
            constexpr char kDigits[] = "0123456789abcdef";
            out += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
        }
        text.remove_prefix(std::max<size_t>(length, 1));
    }
    return out;
}

}  // namespace quire::valkey
