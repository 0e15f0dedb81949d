// SPDX-License-Identifier: Apache-2.0
//
// ranks: tensor parallelism: which heads a rank computes, and ranks as processes of their own.
//
// Rank 0 leads: it schedules, and sends each of its steps to the others: the log that its cache
// wrote, and the tokens to compute. They apply the log and run the same network, each with the
// attention of its own heads. After every layer rank 0 puts the heads of all ranks side by side and
// sends them back to all. So every rank has the same numbers, to the bit, and only rank 0 decides.
//
// Why fork and not threads: this matches machines whose ranks share nothing. The children are
// forked before any device is opened; they inherit the model, which is never written.
//
// A rank ends when its channel closes, so no child outlives its parent by more than a layer takes.
//
// Threads: one per process.

#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace engine {

// A rank's part of attention: query heads, and the KV heads that they look at.
struct HeadRange {
    uint32_t q_begin = 0;
    uint32_t q_count = 0;
    uint32_t kv_begin = 0;
    uint32_t kv_count = 0;
};

// Errors   throws Failure if the heads cannot be divided evenly.
HeadRange heads_of(uint32_t rank, uint32_t rank_count, uint32_t q_heads, uint32_t kv_heads);

// One end of a connection to another process; the destructor closes it.
class Channel {
 public:
    explicit Channel(int descriptor) : descriptor_(descriptor) {}
    ~Channel();
    Channel(Channel &&other) noexcept;
    Channel &operator=(Channel &&) = delete;
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    // Errors   both throw Failure if the other side has ended.
    void send(const void *bytes, size_t size_bytes);
    void receive(void *bytes, size_t size_bytes);
    // Waits for the next byte, without reading it. True if there will be no more.
    bool ended();

    template <typename T>
    void send(std::span<const T> values) {
        send(values.data(), values.size_bytes());
    }
    template <typename T>
    void receive(std::span<T> values) {
        receive(values.data(), values.size_bytes());
    }

 private:
    int descriptor_;
};

// A row of a step, as it is sent: it has token_count of the step's tokens.
struct RankRow {
    uint32_t token_count = 0;
    uint32_t first_position = 0;
};

struct RankStep {
    std::vector<uint8_t> log;
    std::vector<RankRow> rows;
    std::vector<uint32_t> tokens;  // of all rows, row after row
    bool waits = false;            // of a report: for loads to end
};

// Test aids: what happens to one of the leader's logs.
enum class LogFault { none, damage, repeat, drop };

// The other ranks that a rank talks to: at rank 0 its followers, at the others their leader.
class Ranks {
 public:
    // Starts rank_count - 1 children, which run `follow` and end with its return value.
    using Follow = std::function<int(uint32_t rank, Ranks &leader)>;
    static Ranks lead(uint32_t rank_count, LogFault fault, const Follow &follow);
    ~Ranks();
    Ranks(Ranks &&) = default;
    Ranks(const Ranks &) = delete;
    Ranks &operator=(const Ranks &) = delete;

    // At rank 0: all steps were sent. Waits for the children, for at most ten seconds.
    // Errors   throws Failure if one of them failed.
    void finish();

    // At rank 0.
    void send_step(const RankStep &step);
    // Test aid: true if the leader must now make a log that is not sent.
    bool drops_next_log() const { return fault_ == LogFault::drop && sent_ == kFaultyStep - 1; }
    // At the others. False when the leader has ended. A step without a log is none: the leader asks
    // for a report, which send_report() answers.
    bool receive_step(RankStep &step);
    // At rank 0: what the others report of their loads; `waits`: once these have ended.
    std::vector<std::vector<uint8_t>> collect_reports(bool waits);
    void send_report(std::span<const uint8_t> report);

    // Puts the heads of all ranks side by side in `all`, [token][q_heads][head_dim], which already
    // holds those of this rank. ranges: of all ranks.
    void gather(std::span<float> all, std::span<const HeadRange> ranges, size_t head_dim);

 private:
    static constexpr size_t kFaultyStep = 3;

    struct Peer {
        uint32_t rank = 0;
        pid_t process = 0;  // 0: the leader
        Channel channel;
    };

    Ranks() = default;
    bool end_all();

    std::vector<Peer> peers_;
    uint32_t own_rank_ = 0;
    LogFault fault_ = LogFault::none;
    size_t sent_ = 0;
    std::vector<uint8_t> previous_log_;
    std::vector<float> part_;
};

}  // namespace engine
