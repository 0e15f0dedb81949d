// SPDX-License-Identifier: Apache-2.0

#include "trace.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "library.hpp"

namespace quire::cli {

namespace {

constexpr uint32_t kFirstUnique = 0x80000000u;  // ids made from hash ids are below this

constexpr uint64_t kMaxTokens = (uint64_t{1} << 31) - 2;  // as many as unique ids can name

// Hands out token ids that no other token has. REQUIRES: at most kMaxTokens in all.
class UniqueTokens {
 public:
    uint32_t take(uint64_t count) {
        uint64_t first = next_;
        next_ += count;
        return static_cast<uint32_t>(first);
    }

 private:
    uint64_t next_ = kFirstUnique;
};

void expand(Trace *trace) {
    trace->inputs.resize(trace->input_tokens);
    UniqueTokens unique;
    uint64_t at = 0;
    for (Request &request : trace->requests) {
        request.first_input = at;
        request.first_output = unique.take(request.output_length);
        bool shares = !request.hash_ids.empty();
        uint32_t own = shares ? 0 : unique.take(request.input_length);
        for (uint32_t i = 0; i < request.input_length; ++i) {
            trace->inputs[at++] =
                shares ? request.hash_ids[i / kTokensPerHash] * kTokensPerHash + i % kTokensPerHash
                       : own + i;
        }
    }
}

// The non-empty lines of a file, without their line ends. If the file cannot be read to its end,
// this throws instead of stopping early.
class Lines {
 public:
    explicit Lines(const std::string &path) : path_(path), file_(path) {
        if (!file_) throw Failure("cannot open " + path + ": " + std::strerror(errno), kUsage);
    }

    bool next() {
        while (read()) {
            ++number_;
            if (text_.ends_with('\r')) text_.pop_back();
            if (!text_.empty()) return true;
        }
        return false;
    }
    const std::string &text() const { return text_; }
    std::string place() const { return path_ + ":" + std::to_string(number_); }

 private:
    static constexpr size_t kLongest = 4u << 20;  // the ids of 2^24 tokens take less

    // Reads in pieces, so that a file without line ends does not fill the memory.
    bool read() {
        text_.clear();
        char part[4096];
        while (true) {
            file_.getline(part, sizeof part);
            auto taken = static_cast<size_t>(file_.gcount());
            if (file_.bad())
                throw Failure("cannot read " + path_ + ": " + std::strerror(errno), kUsage);
            bool has_end = file_.good();  // the line's end was taken too
            text_.append(part, has_end ? taken - 1 : taken);
            if (has_end) return true;
            if (file_.eof()) return !text_.empty();
            file_.clear();  // the line goes on
            if (text_.size() > kLongest)
                throw Failure(
                    place() + ": the next line has more than 4 MiB, so this is not a trace",
                    kUsage);
        }
    }

    std::string path_;
    std::ifstream file_;
    std::string text_;
    uint64_t number_ = 0;
};

}  // namespace

Trace read_requests(const std::string &path, uint64_t limit) {
    Lines lines(path);
    Trace trace;
    bool more = lines.next();
    auto *parse = &parse_mooncake;
    if (more && lines.text() == kAzureHeader) {
        parse = &parse_azure;
        more = lines.next();
    }
    while (more && (limit == 0 || trace.requests.size() < limit)) {
        try {
            trace.requests.push_back(parse(lines.text()));
        } catch (const std::runtime_error &reason) {
            throw Failure(lines.place() + ": not a trace line: " + reason.what(), kUsage);
        }
        trace.input_tokens += trace.requests.back().input_length;
        trace.output_tokens += trace.requests.back().output_length;
        if (trace.input_tokens + trace.output_tokens > kMaxTokens) {
            throw Failure(lines.place() +
                              ": more than 2^31 tokens so far: replay only the first requests "
                              "with --limit",
                          kUsage);
        }
        more = lines.next();
    }
    if (trace.requests.empty()) throw Failure(path + " holds no request", kUsage);
    return trace;
}

Trace read_trace(const std::string &path, uint64_t limit) {
    Trace trace = read_requests(path, limit);
    expand(&trace);
    return trace;
}

}  // namespace quire::cli
