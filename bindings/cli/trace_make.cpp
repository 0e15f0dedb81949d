// SPDX-License-Identifier: Apache-2.0
//
// A Mooncake-like trace consists of chats: half of the requests continue a recent chat with a
// longer prompt, and the others begin a new one with one of a few system prompts. An Azure-like
// trace has lengths only. Lengths are log-uniform: as many prompts between 1 k and 2 k tokens as
// between 2 k and 4 k, which gives the long tail that both published traces show.

#include "trace_make.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <vector>

#include "library.hpp"
#include "trace.hpp"

namespace quire::cli {

namespace {

constexpr uint64_t kMaxRequests = 10'000'000;
constexpr uint32_t kSystemPrompts = 8;
constexpr uint32_t kOpenChats = 64;
constexpr uint32_t kMaxPrompt = 1 << 17;

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
class Random {
 public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    uint32_t below(uint64_t bound) { return static_cast<uint32_t>(next() % bound); }
    // From 2^low up to 2^high; each doubling is equally likely.
    uint32_t length(uint32_t low, uint32_t high) {
        uint32_t base = 1u << (low + below(high - low));
        return base + below(base);
    }

 private:
    uint64_t state_;
};

struct Chat {
    uint32_t length = 0;  // tokens of its last prompt and answer
    std::vector<uint32_t> hash_ids;
};

class Chats {
 public:
    explicit Chats(uint64_t seed) : random_(seed) {}

    std::string next_line() {
        Chat &chat = chats_[random_.below(kOpenChats)];
        bool goes_on = chat.length != 0 && chat.length < kMaxPrompt && random_.below(2) == 0;
        if (!goes_on) begin(&chat);
        uint32_t input = chat.length + random_.length(5, 13);
        uint32_t output = random_.length(4, 11);
        while (chat.hash_ids.size() * kTokensPerHash < input) chat.hash_ids.push_back(next_id_++);
        clock_ms_ += random_.below(600);
        std::string line = "{\"timestamp\": " + std::to_string(clock_ms_) +
                           ", \"input_length\": " + std::to_string(input) +
                           ", \"output_length\": " + std::to_string(output) + ", \"hash_ids\": [";
        for (size_t i = 0; i < chat.hash_ids.size(); ++i) {
            line += (i == 0 ? "" : ", ") + std::to_string(chat.hash_ids[i]);
        }
        // The tokens after the last whole id get a new id next time: the answer is part of them.
        chat.hash_ids.resize(input / kTokensPerHash);
        chat.length = input + output;
        return line + "]}\n";
    }

 private:
    void begin(Chat *chat) {
        uint32_t system = random_.below(kSystemPrompts);
        chat->hash_ids = {2 * system, 2 * system + 1};
        chat->length = 2 * kTokensPerHash;
    }

    Random random_;
    std::array<Chat, kOpenChats> chats_;
    uint32_t next_id_ = 2 * kSystemPrompts;
    uint64_t clock_ms_ = 0;
};

class Lengths {
 public:
    explicit Lengths(uint64_t seed) : random_(seed) {}

    // One day from midnight on, in ten-millionths of a second as in the published traces.
    std::string next_line() {
        clock_ += random_.below(4'000'000);
        uint64_t seconds = clock_ / 10'000'000;
        char text[96];
        std::snprintf(text, sizeof text, "2024-01-%02u %02u:%02u:%02u.%07u,%u,%u\r\n",
                      static_cast<unsigned>(1 + seconds / 86'400 % 31),
                      static_cast<unsigned>(seconds / 3600 % 24),
                      static_cast<unsigned>(seconds / 60 % 60), static_cast<unsigned>(seconds % 60),
                      static_cast<unsigned>(clock_ % 10'000'000), random_.length(5, 13),
                      random_.length(3, 10));
        return text;
    }

 private:
    Random random_;
    uint64_t clock_ = 0;
};

template <typename Maker>
void write(const TraceOptions &options, std::ostream &out) {
    Maker maker(options.seed);
    for (uint64_t i = 0; i < options.requests && out; ++i) out << maker.next_line();
    out.flush();
    if (!out)
        throw Failure("cannot write the trace: " + std::string(std::strerror(errno)), kFailed);
}

}  // namespace

void make_trace(const TraceOptions &options) {
    if (options.requests == 0 || options.requests > kMaxRequests) {
        throw Failure("--requests " + std::to_string(options.requests) + ": needs 1 to " +
                          std::to_string(kMaxRequests),
                      kUsage);
    }
    bool azure = options.kind == "azure";
    if (!azure && options.kind != "mooncake")
        throw Failure("--kind " + options.kind + " is not known: mooncake or azure", kUsage);
    std::ofstream file;
    if (!options.output.empty()) {
        file.open(options.output, std::ios::binary);
        if (!file) {
            throw Failure("cannot write " + options.output + ": " + std::strerror(errno), kUsage);
        }
    }
    std::ostream &out = options.output.empty() ? std::cout : file;
    if (azure) out << kAzureHeader << "\r\n";
    azure ? write<Lengths>(options, out) : write<Chats>(options, out);
}

}  // namespace quire::cli
