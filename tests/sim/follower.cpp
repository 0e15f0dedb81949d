// SPDX-License-Identifier: Apache-2.0
//
// follower: see follower.hpp.
#include "follower.hpp"

#include <algorithm>

namespace sim {
namespace {

constexpr const char *kFlags = "flags of sequence";

bool is_flags(const Word &word) { return word.what == kFlags; }

}  // namespace

Follower::Follower(World &leader, const quire_cache_desc &desc)
    : leader_(leader), q_(leader.q_), rng_(mix(leader.config.seed, 0xF0)) {
    error_.struct_size = sizeof error_;
    quire_cache_desc own = desc;
    own.flags = (desc.flags & ~static_cast<uint32_t>(QUIRE_CACHE_LOG | QUIRE_CACHE_ZERO_ON_FREE |
                                                     QUIRE_CACHE_NO_PREFIX | QUIRE_CACHE_AUDIT |
                                                     QUIRE_CACHE_PARTIAL_HITS)) |
                QUIRE_CACHE_FOLLOWER;
    // It has no memory, whatever the leader has: "each describes the shards that it holds itself".
    own.shards = nullptr;
    own.shard_count = own.shard_stride = 0;
    own.host_bytes = 0;
    own.host_blocks = leader.host_blocks_;
    const quire_status status = q_->cache_create(leader.instance_, &own, &cache_, &error_);
    if (status < 0) fail("cache-create", "follower: %s", error_.message);
}

Snapshot Follower::look(quire_cache *cache, const std::vector<quire_seq> &handles,
                        quire_step step) {
    Snapshot words;
    for (uint32_t h = 0; h < handles.size(); ++h) {
        quire_seq_info got{};
        got.struct_size = sizeof got;
        if (q_->seq_get_info(cache, handles[h], &got, &error_) < 0)
            fail("follower", "the follower does not know sequence 0x%llx: %s",
                 static_cast<unsigned long long>(handles[h]), error_.message);
        words.push_back({"known tokens of sequence", h, got.known_tokens});
        words.push_back({"computed tokens of sequence", h, got.computed_tokens});
        words.push_back({"drafts of sequence", h, got.draft_tokens});
        words.push_back({"lookahead of sequence", h, got.lookahead_tokens});
        words.push_back({kFlags, h, got.flags});
        words.push_back({"blocks held by sequence", h, got.blocks_held});
        words.push_back({"preemptions of sequence", h, got.preemptions});
        words.push_back({"priority of sequence", h, static_cast<uint64_t>(got.priority)});
        for (uint32_t g = 0; g < leader_.blocks_.size(); ++g) {
            int32_t ids[1024];
            uint32_t count = 0;
            if (q_->step_blocks(cache, 0, handles[h], g, 0, ids, 1024, &count, &error_) < 0)
                fail("follower", "step_blocks: %s", error_.message);
            words.push_back({"table length of sequence", h, count});
            for (uint32_t i = 0; i < count; ++i)
                words.push_back({"table of sequence", h, static_cast<uint64_t>(ids[i])});
        }
    }
    std::vector<quire_block_copy> copies(4096);
    uint32_t count = 0;
    if (q_->step_copies(cache, step, copies.data(), 4096, sizeof copies[0], &count, &error_) < 0)
        fail("follower", "step_copies: %s", error_.message);
    for (uint32_t i = 0; i < count; ++i) {
        const quire_block_copy &c = copies[i];
        words.push_back({"copy", i,
                         mix(mix(c.kind, c.group),
                             mix(static_cast<uint32_t>(c.src), static_cast<uint32_t>(c.dst)))});
        words.push_back({"places of copy", i, mix(c.src_place, c.dst_place)});
    }
    return words;
}

void Follower::take(const Step &step) {
    Log log;
    uint64_t size = 0;
    leader_.expect(q_->step_log(leader_.cache_, step.handle, nullptr, 0, &size, &error_),
                   {QUIRE_S_INCOMPLETE}, "quire_step_log");
    log.bytes.resize(size);
    leader_.expect(
        q_->step_log(leader_.cache_, step.handle, log.bytes.data(), size, &size, &error_),
        {QUIRE_OK}, "quire_step_log");
    for (const auto &seq : leader_.sequences) log.handles.push_back(seq->handle);
    log.state = look(leader_.cache_, log.handles, step.handle);
    log.queue = step.queue;
    log.rows = static_cast<uint32_t>(step.rows.size());
    logs_.push_back(std::move(log));
    while (logs_.size() > (leader_.config.lag == 0 ? 0 : rng_.below(leader_.config.lag + 1)))
        apply();
}

void Follower::finish_first() {
    leader_.expect(q_->step_finish(cache_, unfinished_.front(), nullptr, QUIRE_STEP_OK, &error_),
                   {QUIRE_OK}, "quire_step_finish of a follower");
    unfinished_.pop_front();
}

// A damaged, repeated or later log must be refused and change nothing.
void Follower::refuse_wrong(const Log &log) {
    quire_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.queue_tag = 100;
    quire_step out = 0;
    std::vector<uint8_t> wrong;
    switch (rng_.below(4)) {
        case 0:
            wrong = log.bytes;
            wrong[rng_.below(wrong.size())] ^= static_cast<uint8_t>(1u << rng_.below(8));
            break;
        case 1:
            wrong = last_log_;
            break;
        case 2:
            if (logs_.size() > 1) wrong = logs_[1].bytes;
            break;
        default:
            wrong = log.bytes;
            wrong.resize(rng_.below(wrong.size()));
            break;
    }
    if (wrong.empty()) return;
    const quire_status status =
        q_->log_apply(cache_, wrong.data(), wrong.size(), &desc, nullptr, &out, &error_);
    if (status != QUIRE_E_ARG && status != QUIRE_E_INCOMPATIBLE)
        fail("follower-refuses", "a wrong log was answered with %d: %s", status,
             status < 0 ? error_.message : "");
}

// QUIRE_SEQ_UNPUBLISHED "may reach it one log late": then it is what it was one log ago.
bool Follower::is_late(const Word &own, const Log &log, size_t i) {
    const Word &wanted = log.state[i];
    if (!is_flags(own) || !is_flags(wanted) || own.value == wanted.value) return false;
    if ((own.value ^ wanted.value) != QUIRE_SEQ_UNPUBLISHED) return false;
    const auto last = last_flags_.find(log.handles[wanted.who]);
    const uint64_t before = last == last_flags_.end() ? 0 : last->second;
    const bool late = ((own.value ^ before) & QUIRE_SEQ_UNPUBLISHED) == 0;
    leader_.tally_->late_unpublished += late;
    return late;
}

void Follower::apply() {
    Log log = std::move(logs_.front());
    logs_.front() = log;
    if (rng_.percent(5)) refuse_wrong(log);
    logs_.pop_front();
    while (unfinished_.size() >= QUIRE_UNFINISHED_STEPS ||
           (!unfinished_.empty() && rng_.percent(60)))
        finish_first();
    quire_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.queue_tag = 100 + log.queue;
    quire_step step = 0;
    quire_status status = QUIRE_OK;
    while (true) {
        status = q_->log_apply(cache_, log.bytes.data(), log.bytes.size(), &desc, nullptr, &step,
                               &error_);
        if (status != QUIRE_E_BUSY || unfinished_.empty()) break;
        ++leader_.tally_->busy_answers;
        finish_first();
    }
    if (status != QUIRE_OK) fail("follower", "a good log was refused: %s", error_.message);
    ++leader_.tally_->follower_logs;
    unfinished_.push_back(step);
    const Snapshot own = look(cache_, log.handles, step);
    for (size_t i = 0; i < own.size() && i < log.state.size(); ++i) {
        if (is_late(own[i], log, i)) continue;
        if (own[i].value != log.state[i].value || own[i].what != log.state[i].what)
            fail("follower", "%s %u is %llu; the leader's is %llu", own[i].what, own[i].who,
                 static_cast<unsigned long long>(own[i].value),
                 static_cast<unsigned long long>(log.state[i].value));
    }
    if (own.size() != log.state.size()) fail("follower", "it shows other things than the leader");
    for (const quire_seq handle : last_handles_) {
        if (std::find(log.handles.begin(), log.handles.end(), handle) != log.handles.end())
            continue;
        quire_seq_info got{};
        got.struct_size = sizeof got;
        if (q_->seq_get_info(cache_, handle, &got, &error_) != QUIRE_E_STALE)
            fail("follower", "the follower still knows sequence 0x%llx, which ended",
                 static_cast<unsigned long long>(handle));
    }
    leader_.expect(q_->cache_check(cache_, &error_), {QUIRE_OK}, "quire_cache_check of a follower");
    last_flags_.clear();
    for (const Word &word : log.state)
        if (is_flags(word)) last_flags_[log.handles[word.who]] = word.value;
    last_handles_ = std::move(log.handles);
    last_log_ = std::move(log.bytes);
}

void Follower::close() {
    while (!logs_.empty()) apply();
    while (!unfinished_.empty()) finish_first();
    leader_.expect(q_->cache_destroy(cache_, &error_), {QUIRE_OK}, "cache_destroy of a follower");
    cache_ = nullptr;
}

void Follower::abandon() {
    quire_abandon_info info{};
    info.struct_size = sizeof info;
    leader_.expect(q_->cache_abandon(cache_, &info, &error_), {QUIRE_OK}, "quire_cache_abandon");
    if (info.device_bytes + info.host_bytes + info.engine_bytes != 0)
        fail("abandon-info", "a follower without memory left some on a device");
    leader_.stale(q_->cache_check(cache_, &error_), "quire_cache_check of a follower");
}

}  // namespace sim
