// SPDX-License-Identifier: Apache-2.0

#include "link.hpp"

#include "failure.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace engine {
namespace {

Failure failed(const std::string &what) { return Failure(what + ": " + std::strerror(errno)); }

// Where a socket is bound or connected to.
struct Place {
    int family = AF_UNIX;
    sockaddr_storage address{};
    socklen_t size = 0;

    const sockaddr *pointer() const { return reinterpret_cast<const sockaddr *>(&address); }
};

Place place_of(const std::string &text) {
    Place place;
    const size_t colon = text.rfind(':');
    if (text.find('/') != std::string::npos) {
        sockaddr_un named{};
        if (text.size() >= sizeof named.sun_path) {
            throw Failure(text + " is too long for the path of a socket");
        }
        named.sun_family = AF_UNIX;
        std::memcpy(named.sun_path, text.c_str(), text.size());
        std::memcpy(&place.address, &named, sizeof named);
        place.size = sizeof named;
        return place;
    }
    std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    if (host.empty() || getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &found) != 0) {
        throw Failure(text + " is no address: HOST:PORT, or the path of a socket, with a slash");
    }
    place.family = found->ai_family;
    place.size = found->ai_addrlen;
    std::memcpy(&place.address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return place;
}

int open_socket(const Place &place) {
    const int opened = socket(place.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (opened < 0) {
        throw failed("no socket can be made");
    }
    return opened;
}

}  // namespace

// A socket that an earlier engine left there is replaced.
Door::Door(const std::string &address, double seconds)
    : socket_(open_socket(place_of(address)), seconds) {
    const Place place = place_of(address);
    const int yes = 1;
    setsockopt(socket_.socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct stat there{};
    if (place.family == AF_UNIX && lstat(address.c_str(), &there) == 0) {
        if (!S_ISSOCK(there.st_mode)) {
            throw Failure(address + " is a file that is no socket");
        }
        unlink(address.c_str());
    }
    if (bind(socket_.socket_, place.pointer(), place.size) != 0 ||
        listen(socket_.socket_, 1) != 0) {
        throw failed(address + " cannot be listened on");
    }
    if (place.family == AF_UNIX) {
        path_ = address;
    }
}

Door::~Door() {
    if (!path_.empty()) {
        unlink(path_.c_str());
    }
}

Link Door::accept() {
    socket_.wait(POLLIN);
    const int accepted = accept4(socket_.socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (accepted < 0) {
        throw failed("the other engine cannot be accepted");
    }
    return Link(accepted, socket_.seconds_);
}

// The other end may not listen yet.
Link Link::connect(const std::string &address, double seconds) {
    const Place place = place_of(address);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
        Link link(open_socket(place), seconds);
        if (::connect(link.socket_, place.pointer(), place.size) == 0) {
            return link;
        }
        if (std::chrono::steady_clock::now() > end) {
            throw failed("no one listens on " + address);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

Link::Link(Link &&other) noexcept
    : socket_(std::exchange(other.socket_, -1)), seconds_(other.seconds_) {}

Link::~Link() {
    if (socket_ >= 0) {
        close(socket_);
    }
}

void Link::wait(short events) const {
    pollfd one{socket_, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(seconds_ * 1000));
    if (ready == 0) {
        throw Failure("the other engine was silent for too long");
    }
    if (ready < 0) {
        throw failed("the other engine cannot be waited for");
    }
}

void Link::write(std::span<const char> bytes) {
    while (!bytes.empty()) {
        wait(POLLOUT);
        const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            throw failed("the other engine takes no more");
        }
        bytes = bytes.subspan(sent > 0 ? static_cast<size_t>(sent) : 0);
    }
}

size_t Link::read(std::span<char> bytes) {
    for (;;) {
        wait(POLLIN);
        const ssize_t got = recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got >= 0) {
            return static_cast<size_t>(got);
        }
        if (errno != EAGAIN && errno != EINTR) {
            throw failed("the other engine cannot be read");
        }
    }
}

}  // namespace engine
