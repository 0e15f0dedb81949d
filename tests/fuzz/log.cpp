// SPDX-License-Identifier: Apache-2.0
//
// log: a follower that gets its leader's logs, damaged, before the right ones
// (docs/follower-log.md).
//
// The input chooses what the leader does, and for each log which of its bytes are changed, cut or
// added; most are sealed again, because no random change would pass the checksum. A refused log
// changes nothing, and the right one is still accepted. A log that was accepted although it was
// changed says what the leader never did; the cache must still be sound. A log that leads to
// another state stops the follower, in words.
//
// Threads: none.

#include <algorithm>
#include <vector>

#include "bytes.hpp"
#include "library.hpp"
#include "sealed.hpp"
#include "tests/whole_state.hpp"

namespace {

using namespace quire::fuzz;
using Log = std::vector<uint8_t>;

constexpr uint32_t kBlockTokens = 4, kMostSequences = 6, kMostSteps = 12;

quire_cache *new_cache(uint32_t flags, bool has_window) {
    quire_group_desc groups[2];
    for (quire_group_desc &group : groups) {
        group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = 1;
        group.k_head_dim = group.v_head_dim = 8;
        group.blocks = 14;
    }
    groups[1].kind = QUIRE_GROUP_WINDOW;
    groups[1].window = 6;
    groups[1].sink_tokens = 3;
    auto desc = described<quire_cache_desc>();
    desc.flags = flags | QUIRE_CACHE_FIXED_HASH;
    desc.groups = groups;
    desc.group_count = has_window ? 2 : 1;
    desc.group_stride = sizeof groups[0];
    desc.block_tokens = kBlockTokens;
    desc.max_sequences = kMostSequences;
    desc.max_sequence_tokens = 64;
    desc.host_blocks = 8;
    quire_cache *cache = nullptr;
    quire_error error = new_error();
    require(library().cache_create(shared_instance(), &desc, &cache, &error) == QUIRE_OK,
            "a cache is made", error.message);
    return cache;
}

class Pair {
 public:
    explicit Pair(Bytes *input)
        : input_(*input),
          has_window_(input->one_in(2)),
          leader_(new_cache(QUIRE_CACHE_LOG, has_window_)),
          follower_(new_cache(QUIRE_CACHE_FOLLOWER, has_window_)) {}
    ~Pair() {
        for (quire_cache *cache : {leader_, follower_}) {
            require(library().cache_destroy(cache, &error_) == QUIRE_OK, "a cache goes",
                    error_.message);
        }
    }

    // One step of the leader and its log here; false: the follower has stopped.
    bool step() {
        change_sequences();
        quire_step step = run_step();
        if (step == 0) return true;
        Log log = log_of(step);
        bool goes_on = true;
        for (uint32_t tries = input_.below(4); goes_on && tries != 0; --tries) {
            goes_on = send_damaged(log);
        }
        if (!goes_on) {
            finish(leader_, step);
            return false;
        }
        quire_step applied = 0;
        require(apply(log, &applied) == QUIRE_OK, "the right log is accepted", error_.message);
        finish(follower_, applied);
        finish(leader_, step);
        return true;
    }

 private:
    void change_sequences() {
        if (sequences_.empty() || (sequences_.size() < kMostSequences && input_.one_in(2))) {
            auto desc = described<quire_seq_desc>();
            desc.priority = static_cast<int32_t>(input_.byte());
            quire_seq seq = 0;
            if (library().seq_create(leader_, &desc, &seq, nullptr) == QUIRE_OK) {
                sequences_.push_back(seq);
            }
            return;
        }
        size_t at = input_.byte() % sequences_.size();
        quire_seq fork = 0;
        switch (input_.below(6)) {
            case 0:
                library().seq_end(leader_, sequences_[at], 0, nullptr);
                sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(at));
                break;
            case 1:
                library().seq_truncate(leader_, sequences_[at], input_.byte() & 15, nullptr);
                break;
            case 2:
                if (library().seq_fork(leader_, sequences_[at], input_.byte() & 15, &fork,
                                       nullptr) == QUIRE_OK) {
                    sequences_.push_back(fork);
                }
                break;
            default:
                break;
        }
    }

    quire_step run_step() {
        std::vector<quire_step_item> items;
        std::vector<quire_token> tokens;
        for (quire_seq seq : sequences_) {
            uint32_t count = input_.byte() & 7;
            if (count == 0) continue;
            quire_step_item item{};
            item.seq = seq;
            item.token_offset = static_cast<uint32_t>(tokens.size());
            item.token_count = count;
            item.draft_count = input_.one_in(8) ? count / 2 : 0;
            items.push_back(item);
            for (uint32_t i = 0; i < count; ++i) tokens.push_back(input_.byte() & 3);
        }
        auto desc = described<quire_step_desc>();
        desc.flags = input_.one_in(2) ? QUIRE_STEP_MAY_PREEMPT : 0;
        desc.queue_tag = input_.one_in(4) ? 1 : 0;
        std::vector<quire_step_result> results(items.size());
        quire_step step = 0;
        if (library().step_begin(leader_, &desc, items.data(), static_cast<uint32_t>(items.size()),
                                 sizeof(quire_step_item), tokens.data(),
                                 static_cast<uint32_t>(tokens.size()), results.data(),
                                 sizeof(quire_step_result), &step, &error_) != QUIRE_OK) {
            return 0;
        }
        if (library().step_commit(leader_, step, nullptr, &error_) == QUIRE_OK) return step;
        library().step_abort(leader_, step, nullptr);
        return 0;
    }

    Log log_of(quire_step step) {
        uint64_t size_bytes = 0;
        library().step_log(leader_, step, nullptr, 0, &size_bytes, &error_);
        Log log(size_bytes);
        require(library().step_log(leader_, step, log.data(), log.size(), &size_bytes, &error_) ==
                    QUIRE_OK,
                "a committed step has a log", error_.message);
        return log;
    }

    void damage(Log *log) {
        for (uint32_t count = 1 + input_.below(3); count != 0; --count) {
            size_t at = input_.raw(2) % log->size();
            switch (input_.below(5)) {
                case 0:
                    log->resize(at + 1);
                    break;
                case 1:
                    log->insert(log->end(), input_.byte(), input_.byte());
                    break;
                case 2:
                    (*log)[at] = input_.byte();
                    break;
                default:  // a whole number, small or large
                    at &= ~size_t{3};
                    uint32_t value = input_.number32();
                    std::memcpy(log->data() + at, &value, std::min(sizeof value, log->size() - at));
            }
        }
    }

    uint32_t word_of(const Log &log, size_t at) {
        uint32_t word = 0;
        std::memcpy(&word, log.data() + at, sizeof word);
        return word;
    }
    // Adds orders, which this leader without a tier never has, before the sequences.
    void add_orders(Log *log) {
        const size_t at = 88 + 4 * size_t{word_of(*log, 60)} + 24 * size_t{word_of(*log, 64)} +
                          32 * size_t{word_of(*log, 68)} + 4 * size_t{word_of(*log, 76)};
        Log orders;
        uint32_t count = 1 + input_.below(4);
        for (uint32_t i = 0; i < count; ++i) {
            // kind, group, serial, index, block, count, 0
            const uint32_t head[8] = {1 + input_.below(4), input_.below(2), 1 + input_.below(3), 0,
                                      input_.below(4),     input_.below(9), input_.below(4),     0};
            uint32_t order[24 + kBlockTokens] = {};
            std::memcpy(order, head, sizeof head);
            const size_t words = head[0] == 3 ? 24 : 24 + kBlockTokens;
            const auto *from = reinterpret_cast<const uint8_t *>(order);
            orders.insert(orders.end(), from, from + words * 4);
        }
        std::memcpy(log->data() + 80, &count, sizeof count);
        log->insert(log->begin() + static_cast<std::ptrdiff_t>(at), orders.begin(), orders.end());
    }

    // False: the follower has stopped, or went on from what no leader did.
    bool send_damaged(const Log &right) {
        Log log = right;
        const bool adds = input_.one_in(3);
        if (adds) add_orders(&log);
        if (!adds || input_.one_in(2)) damage(&log);
        if (!input_.one_in(8)) seal(&log, kLogSeal);
        if (log == right) return true;
        std::string before = state();
        quire_step applied = 0;
        quire_status status = apply(log, &applied);
        require_words(status, error_);
        if (status == QUIRE_E_INTERNAL) {
            require(apply(right, &applied) == QUIRE_E_INTERNAL, "a stopped follower stays so");
            return false;
        }
        check();
        if (status >= 0) {
            finish(follower_, applied);
            check();
            report();
            return false;
        }
        require(before == state(), "a refused log changes nothing");
        return true;
    }

    // A follower without a store reports loads that its leader never began, which are ignored.
    void report() {
        uint8_t bytes[2048];
        uint64_t size_bytes = 0;
        require(library().cache_report_loads(follower_, bytes, sizeof bytes, &size_bytes,
                                             &error_) == QUIRE_OK,
                "a follower can report", error_.message);
        if (size_bytes == 0) return;
        error_ = new_error();
        quire_status taken = library().cache_take_report(leader_, bytes, size_bytes, &error_);
        require_words(taken, error_);
    }

    quire_status apply(const Log &log, quire_step *applied) {
        auto desc = described<quire_step_desc>();
        error_ = new_error();
        return library().log_apply(follower_, log.data(), log.size(), &desc, nullptr, applied,
                                   &error_);
    }

    // What a refused call must not change (tests/whole_state.hpp): all but the number of calls.
    std::string state() {
        std::string text = quire::test::whole_state(library(), follower_);
        constexpr char kCalls[] = ",\"calls\":";
        size_t at = text.find(kCalls);
        require(at != std::string::npos, "a dump counts calls");
        at += sizeof kCalls - 1;
        return text.replace(at, text.find_first_not_of("0123456789", at) - at, "-");
    }

    void check() {
        require(library().cache_check(follower_, &error_) == QUIRE_OK, "the follower is sound",
                error_.message);
    }

    void finish(quire_cache *cache, quire_step step) {
        quire_status status = library().step_finish(cache, step, nullptr, QUIRE_STEP_OK, &error_);
        require(status == QUIRE_OK, "a step can be finished", error_.message);
    }

    Bytes &input_;
    bool has_window_;
    quire_cache *leader_, *follower_;
    std::vector<quire_seq> sequences_;
    quire_error error_ = new_error();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    Bytes input(data, size_bytes);
    Pair pair(&input);
    for (uint32_t steps = 0; steps < kMostSteps && !input.ended(); ++steps) {
        if (!pair.step()) break;
    }
    return 0;
}
