// SPDX-License-Identifier: Apache-2.0
//
// link: a stream of bytes between two processes: a Unix socket, or TCP for an address HOST:PORT.
//
// Every wait ends: when the other end has closed, or after a number of seconds without a byte.
//
// Threads: one.

#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace engine {

class Link {
 public:
    // Errors   all throw Failure, which says what the other end did.
    static Link listen(const std::string &address, double seconds);  // for one other end
    static Link connect(const std::string &address, double seconds);
    Link(Link &&other) noexcept;
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
    ~Link();

    void write(std::span<const char> bytes);
    // Returns at least one byte's count; 0: the other end has closed.
    size_t read(std::span<char> bytes);

 private:
    Link(int socket, double seconds) : socket_(socket), seconds_(seconds) {}
    void wait(short events) const;

    int socket_;
    double seconds_;
};

}  // namespace engine
