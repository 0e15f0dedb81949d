// SPDX-License-Identifier: Apache-2.0
//
// link: a stream of bytes between two processes: a Unix socket, named by a path with a slash, or
// TCP for an address HOST:PORT or [HOST]:PORT.
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
    static Link connect(const std::string &address, double seconds);
    Link(Link &&other) noexcept;
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
    ~Link();

    void write(std::span<const char> bytes);
    // Returns at least one byte's count; 0: the other end has closed.
    size_t read(std::span<char> bytes);

 private:
    friend class Door;

    Link(int socket, double seconds) : socket_(socket), seconds_(seconds) {}
    void wait(short events) const;

    int socket_;
    double seconds_;
};

// Where one other end connects to. The path of a Unix socket goes with it.
class Door {
 public:
    // Errors   throws Failure: it is no address, or a file lies there that is no socket, or it
    //          cannot be listened on.
    Door(const std::string &address, double seconds);
    Door(const Door &) = delete;
    Door &operator=(const Door &) = delete;
    ~Door();

    // Errors   throws Failure: no one connects in time.
    Link accept();

 private:
    std::string path_;  // of the socket, once it is there
    Link socket_;
};

}  // namespace engine
