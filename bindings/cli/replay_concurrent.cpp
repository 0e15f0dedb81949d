// SPDX-License-Identifier: Apache-2.0
//
// The manager's time runs from the first call of a step to the return of its last, on this thread's
// CPU clock, so it includes the scheduler's few instructions in between.

#include "replay_concurrent.hpp"

#include <ctime>
#include <deque>

#include "progress.hpp"
#include "replay_cache.hpp"

namespace quire::cli {

namespace {

double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Active {
    uint64_t request = 0;
    quire_seq seq = 0;
    uint32_t made = 0;  // output tokens so far; the newest is not in the cache yet
};

class Server {
 public:
    Server(const ReplayOptions &options, const Trace &trace)
        : trace_(trace),
          limit_(options.running),
          // At most `running` requests are running or preempted; one more is being tried.
          cache_(options, options.running + 1) {
        running_.reserve(limit_);
        items_.resize(limit_);
        results_.resize(limit_);
        tokens_.resize(limit_);
    }

    ReplayCounts run(const ReplayOptions &options) {
        Progress progress("replaying request", trace_.requests.size());
        while (next_ < trace_.requests.size() || !running_.empty() || !preempted_.empty()) {
            if (running_.empty()) progress.at(next_);
            double begin = thread_seconds();
            step();
            counts_.seconds += thread_seconds() - begin;
            ++counts_.steps;
            progress.at(next_);
        }
        cache_.count(&counts_);
        cache_.write_dump(options);
        return counts_;
    }

 private:
    void step() {
        quire_step step = decode();
        bool all_decoded = preempted_now_ == 0;
        is_loading_ = false;
        if (all_decoded) admit(step);
        if (running_.empty() && !is_loading_) stuck();
        cache_.commit_and_finish(step);
        if (is_loading_) cache_.wait_for_load();
        leave();
    }

    quire_step decode() {
        auto count = static_cast<uint32_t>(running_.size());
        for (uint32_t i = 0; i < count; ++i) {
            const Active &active = running_[i];
            tokens_[i] = newest_token(active);
            items_[i] = {};
            items_[i].seq = active.seq;
            items_[i].token_offset = i;
            items_[i].token_count = 1;
        }
        preempted_now_ = 0;
        quire_step step =
            cache_.begin(items_.data(), count, tokens_.data(), count, results_.data());
        for (uint32_t i = 0; i < running_.size(); ++i) {
            // The blocks that an earlier item's victim gave up may suffice for this item too.
            if (preempted_now_ != 0) retry(step, i);
            while (i < running_.size() && results_[i].outcome != QUIRE_ITEM_RUN) {
                shortage_ = results_[i].blocks_short;
                preempt_last(step);
                if (i < running_.size()) retry(step, i);
            }
        }
        for (Active &active : running_) ++active.made;
        return step;
    }

    void retry(quire_step step, uint32_t i) {
        if (results_[i].outcome == QUIRE_ITEM_RUN) return;
        add(step, items_[i], tokens_.data(), static_cast<uint32_t>(tokens_.size()), &results_[i]);
        shortage_ = results_[i].blocks_short;
    }

    void preempt_last(quire_step step) {
        auto last = running_.size() - 1;
        const Active victim = running_[last];
        uint32_t count = 0, freed = 0;
        if (results_[last].outcome == QUIRE_ITEM_RUN) {
            quire_seq dropped[1];
            cache_.must(cache_.api().step_drop(cache_.get(), step, victim.seq, dropped, 1, &count,
                                               cache_.error()));
        }
        cache_.must(cache_.api().step_preempt(cache_.get(), step, victim.seq,
                                              QUIRE_PREEMPT_RECOMPUTE, &freed, cache_.error()));
        running_.pop_back();
        preempted_.push_front(victim);
        ++preempted_now_;
    }

    void admit(quire_step step) {
        while (running_.size() < limit_) {
            bool admitted = false;
            if (!preempted_.empty()) {
                admitted = admit_again(step);
            } else if (next_ < trace_.requests.size()) {
                admitted = admit_next(step);
            }
            if (!admitted) return;
        }
    }

    bool admit_again(quire_step step) {
        Active candidate = preempted_.front();
        uint32_t newest = newest_token(candidate);
        uint32_t hit = 0;
        if (!try_admit(step, candidate, &newest, 1, &hit)) return false;
        counts_.resumed_hit_tokens += hit;
        preempted_.pop_front();
        return true;
    }

    bool admit_next(quire_step step) {
        const Request &request = trace_.requests[next_];
        // If the request does not fit, its sequence is kept for the next attempt.
        if (next_seq_ == 0) next_seq_ = cache_.begin_sequence();
        const uint32_t *prompt = trace_.inputs.data() + request.first_input;
        uint32_t hit = 0;
        if (!try_admit(step, {next_, next_seq_, 0}, prompt, request.input_length, &hit))
            return false;
        counts_.hit_tokens += hit;
        next_seq_ = 0;
        ++next_;
        return true;
    }

    bool try_admit(quire_step step, Active candidate, const uint32_t *tokens, uint32_t token_count,
                   uint32_t *hit_tokens) {
        quire_step_item item{};
        item.seq = candidate.seq;
        item.token_count = token_count;
        item.flags = QUIRE_ITEM_MAY_LOAD;
        quire_step_result result;
        add(step, item, tokens, token_count, &result);
        shortage_ = result.blocks_short;
        is_loading_ = result.outcome == QUIRE_ITEM_LOADING;
        if (result.outcome != QUIRE_ITEM_RUN) return false;
        *hit_tokens = result.hit_tokens;
        ++candidate.made;
        running_.push_back(candidate);
        return true;
    }

    void add(quire_step step, const quire_step_item &item, const uint32_t *tokens,
             uint32_t token_count, quire_step_result *result) {
        cache_.must(cache_.api().step_add(cache_.get(), step, &item, 1, sizeof item, tokens,
                                          token_count, result, sizeof *result, cache_.error()));
    }

    // The token that was sampled last, which the next step computes.
    uint32_t newest_token(const Active &active) const {
        return trace_.requests[active.request].first_output + active.made - 1;
    }

    void leave() {
        size_t kept = 0;
        for (const Active &active : running_) {
            if (active.made >= trace_.requests[active.request].output_length) {
                cache_.end_sequence(active.seq);
            } else {
                running_[kept++] = active;
            }
        }
        running_.resize(kept);
    }

    // No request is running and the first in the queue does not fit, so it never will.
    [[noreturn]] void stuck() const {
        does_not_fit(preempted_.empty() ? next_ : preempted_.front().request, shortage_);
    }

    const Trace &trace_;
    uint64_t limit_;
    ReplayCache cache_;
    uint64_t next_ = 0;  // first request that was never admitted
    std::vector<Active> running_;
    std::deque<Active> preempted_;  // go before requests that were never admitted
    quire_seq next_seq_ = 0;        // of request next_, once it was tried
    uint32_t preempted_now_ = 0;
    uint32_t shortage_ = 0;
    bool is_loading_ = false;  // the request that was tried last
    std::vector<quire_step_item> items_;
    std::vector<quire_step_result> results_;
    std::vector<uint32_t> tokens_;
    ReplayCounts counts_;
};

}  // namespace

ReplayCounts replay_concurrent(const ReplayOptions &options, const Trace &trace) {
    return Server(options, trace).run(options);
}

}  // namespace quire::cli
