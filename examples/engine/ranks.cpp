// SPDX-License-Identifier: Apache-2.0

#include "ranks.hpp"

#include "failure.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace engine {
namespace {

constexpr std::chrono::seconds kLongestEnd{10};

// Sent before a step's parts.
struct StepSizes {
    uint64_t log_bytes = 0;
    uint64_t row_count = 0;
    uint64_t token_count = 0;
    uint64_t waits = 0;
};

// Copies rows of `count` floats each, `stride` apart in `all` and dense in `part`.
void copy_rows(std::span<float> all, std::span<float> part, size_t offset, size_t stride,
               size_t count, bool into_all) {
    for (size_t row = 0; row * stride < all.size(); ++row) {
        float *there = &all[row * stride + offset], *here = &part[row * count];
        std::memcpy(into_all ? there : here, into_all ? here : there, count * sizeof(float));
    }
}

}  // namespace

HeadRange heads_of(uint32_t rank, uint32_t rank_count, uint32_t q_heads, uint32_t kv_heads) {
    const bool even =
        q_heads % rank_count == 0 && (kv_heads % rank_count == 0 || rank_count % kv_heads == 0);
    if (!even) {
        throw Failure("--tp " + std::to_string(rank_count) + ": the model's " +
                      std::to_string(q_heads) + " query heads and " + std::to_string(kv_heads) +
                      " KV heads cannot be divided evenly. Give a divisor of both, or a multiple "
                      "of the KV heads.");
    }
    const uint32_t q_count = q_heads / rank_count, share = q_heads / kv_heads;
    const uint32_t q_begin = rank * q_count, kv_begin = q_begin / share;
    const uint32_t kv_end = (q_begin + q_count + share - 1) / share;
    return {q_begin, q_count, kv_begin, kv_end - kv_begin};
}

Channel::~Channel() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

Channel::Channel(Channel &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

void Channel::send(const void *bytes, size_t size_bytes) {
    const char *at = static_cast<const char *>(bytes);
    while (size_bytes > 0) {
        const ssize_t sent = ::send(descriptor_, at, size_bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            throw Failure("another rank ended");
        }
        at += sent;
        size_bytes -= static_cast<size_t>(sent);
    }
}

void Channel::receive(void *bytes, size_t size_bytes) {
    char *at = static_cast<char *>(bytes);
    while (size_bytes > 0) {
        const ssize_t received = ::recv(descriptor_, at, size_bytes, 0);
        if (received < 0 && errno == EINTR) {
            continue;
        }
        if (received <= 0) {
            throw Failure("another rank ended");
        }
        at += received;
        size_bytes -= static_cast<size_t>(received);
    }
}

bool Channel::ended() {
    char byte = 0;
    ssize_t peeked = 0;
    do {
        peeked = ::recv(descriptor_, &byte, 1, MSG_PEEK);
    } while (peeked < 0 && errno == EINTR);
    return peeked <= 0;
}

Ranks Ranks::lead(uint32_t rank_count, LogFault fault, const Follow &follow) {
    Ranks ranks;
    ranks.fault_ = fault;
    std::fflush(nullptr);  // or each child would print buffered output again
    for (uint32_t rank = 1; rank < rank_count; ++rank) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
            throw Failure(std::string("no socket for another rank: ") + std::strerror(errno));
        }
        Channel ours(ends[0]), theirs(ends[1]);
        const pid_t process = fork();
        if (process < 0) {
            throw Failure(std::string("no process for another rank: ") + std::strerror(errno));
        }
        if (process == 0) {
            // Close the leader's ends, or no rank would see that its leader is gone.
            ranks.peers_.clear();
            {
                const Channel closed = std::move(ours);
            }
            Ranks leader;
            leader.own_rank_ = rank;
            leader.peers_.push_back({0, 0, std::move(theirs)});
            _exit(follow(rank, leader));
        }
        ranks.peers_.push_back({rank, process, std::move(ours)});
    }
    return ranks;
}

Ranks::~Ranks() { end_all(); }

// Closes the channels, which ends the children. False if one of them failed.
bool Ranks::end_all() {
    std::vector<pid_t> children;
    for (const Peer &peer : peers_) {
        if (peer.process != 0) {
            children.push_back(peer.process);
        }
    }
    peers_.clear();
    bool all_well = true;
    const auto deadline = std::chrono::steady_clock::now() + kLongestEnd;
    for (const pid_t child : children) {
        int status = 0;
        while (waitpid(child, &status, WNOHANG) == 0) {
            if (std::chrono::steady_clock::now() > deadline) {
                kill(child, SIGKILL);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        all_well = all_well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return all_well;
}

void Ranks::finish() {
    if (!end_all()) {
        throw Failure("another rank failed; its message is above");
    }
}

void Ranks::send_step(const RankStep &step) {
    std::vector<uint8_t> log = step.log;
    if (++sent_ == kFaultyStep && fault_ == LogFault::damage) {
        log[log.size() / 2] ^= 1;
    }
    if (sent_ == kFaultyStep && fault_ == LogFault::repeat) {
        log = previous_log_;
    }
    previous_log_ = log;
    const StepSizes sizes{log.size(), step.rows.size(), step.tokens.size(), 0};
    for (Peer &peer : peers_) {
        peer.channel.send(&sizes, sizeof sizes);
        peer.channel.send(std::span<const uint8_t>(log));
        peer.channel.send(std::span<const RankRow>(step.rows));
        peer.channel.send(std::span<const uint32_t>(step.tokens));
    }
}

bool Ranks::receive_step(RankStep &step) {
    Channel &leader = peers_.front().channel;
    if (leader.ended()) {
        return false;
    }
    StepSizes sizes;
    leader.receive(&sizes, sizeof sizes);
    step.waits = sizes.waits != 0;
    step.log.resize(sizes.log_bytes);
    step.rows.resize(sizes.row_count);
    step.tokens.resize(sizes.token_count);
    leader.receive(std::span<uint8_t>(step.log));
    leader.receive(std::span<RankRow>(step.rows));
    leader.receive(std::span<uint32_t>(step.tokens));
    return true;
}

std::vector<std::vector<uint8_t>> Ranks::collect_reports(bool waits) {
    const StepSizes asks{0, 0, 0, waits ? 1U : 0U};
    for (Peer &peer : peers_) {
        peer.channel.send(&asks, sizeof asks);
    }
    std::vector<std::vector<uint8_t>> reports;
    for (Peer &peer : peers_) {
        uint64_t size_bytes = 0;
        peer.channel.receive(&size_bytes, sizeof size_bytes);
        reports.emplace_back(size_bytes);
        peer.channel.receive(std::span<uint8_t>(reports.back()));
    }
    return reports;
}

void Ranks::send_report(std::span<const uint8_t> report) {
    const uint64_t size_bytes = report.size();
    Channel &leader = peers_.front().channel;
    leader.send(&size_bytes, sizeof size_bytes);
    leader.send(report);
}

void Ranks::gather(std::span<float> all, std::span<const HeadRange> ranges, size_t head_dim) {
    const HeadRange &last = ranges.back();
    const size_t stride = (last.q_begin + last.q_count) * head_dim;
    const size_t row_count = all.size() / stride;
    const auto part_of = [&](uint32_t rank, bool into_all) {
        const size_t offset = ranges[rank].q_begin * head_dim;
        copy_rows(all, part_, offset, stride, ranges[rank].q_count * head_dim, into_all);
    };
    part_.resize(row_count * ranges[own_rank_].q_count * head_dim);  // the same at every rank
    if (own_rank_ != 0) {
        part_of(own_rank_, false);
        peers_.front().channel.send(std::span<const float>(part_));
        peers_.front().channel.receive(all);
        return;
    }
    for (Peer &peer : peers_) {
        peer.channel.receive(std::span<float>(part_));
        part_of(peer.rank, true);
    }
    for (Peer &peer : peers_) {
        peer.channel.send(std::span<const float>(all));
    }
}

}  // namespace engine
