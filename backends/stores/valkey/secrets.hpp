// SPDX-License-Identifier: Apache-2.0
//
// secrets: the texts that no message may show, taken out of whatever a node says.
//
// Why: a node, or a proxy in between, may repeat a login that it does not understand.
//
// Threads: any may read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::valkey {

class Secrets {
 public:
    // Throws std::bad_alloc; an empty text is no secret.
    void add(const std::string &text);

    // The text for a message: at most about 200 characters of printable ASCII, others as \x1b.
    // A secret, or eight of its characters in a row, is "***"; a repeated command is left out.
    std::string hidden(std::string_view text) const;

 private:
    size_t length_at(std::string_view text) const;
    std::vector<std::string> texts_;
};

}  // namespace quire::valkey
