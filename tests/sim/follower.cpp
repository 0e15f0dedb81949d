// SPDX-License-Identifier: Apache-2.0
//
// follower: see follower.hpp.
#include "follower.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "device.hpp"
#include "records.hpp"

namespace sim {
namespace {

constexpr uint32_t kMostMoves = 4096;
constexpr const char *kFlags = "flags of sequence";

bool is_flags(const Word &word) { return word.what == kFlags; }

}  // namespace

Follower::Follower(World &leader, const quire_cache_desc &desc)
    : leader_(leader),
      q_(leader.q_),
      rng_(mix(leader.config.seed, 0xF0)),
      move_rng_(mix(leader.config.seed, 0xF0305E)) {
    error_.struct_size = sizeof error_;
    quire_cache_desc own = desc;
    own.flags =
        (desc.flags & ~static_cast<uint32_t>(QUIRE_CACHE_LOG | QUIRE_CACHE_ZERO_ON_FREE |
                                             QUIRE_CACHE_NO_PREFIX | QUIRE_CACHE_AUDIT |
                                             QUIRE_CACHE_PARTIAL_HITS | QUIRE_CACHE_LEASES_ONLY)) |
        QUIRE_CACHE_FOLLOWER;
    // It has no memory, whatever the leader has: "each describes the shards that it holds itself".
    own.shards = nullptr;
    own.shard_count = own.shard_stride = 0;
    own.host_bytes = 0;
    own.host_blocks = leader.host_blocks_;
    const quire_status status = q_->cache_create(leader.instance_, &own, &cache_, &error_);
    if (status < 0) fail("cache-create", "follower: %s", error_.message);
}

void Follower::look_at_sequence(quire_cache *cache, const Log &log, uint32_t at, Snapshot &words) {
    const quire_seq handle = log.handles[at];
    quire_seq_info got{};
    got.struct_size = sizeof got;
    if (q_->seq_get_info(cache, handle, &got, &error_) < 0)
        fail("follower", "the follower does not know sequence 0x%llx: %s",
             static_cast<unsigned long long>(handle), error_.message);
    words.push_back({"known tokens of sequence", at, got.known_tokens});
    words.push_back({"computed tokens of sequence", at, got.computed_tokens});
    words.push_back({"drafts of sequence", at, got.draft_tokens});
    words.push_back({"lookahead of sequence", at, got.lookahead_tokens});
    words.push_back({kFlags, at, got.flags});
    words.push_back({"blocks held by sequence", at, got.blocks_held});
    words.push_back({"preemptions of sequence", at, got.preemptions});
    words.push_back({"priority of sequence", at, static_cast<uint64_t>(got.priority)});
    for (uint32_t g = 0; g < leader_.blocks_.size(); ++g) {
        int32_t ids[1024];
        uint32_t count = 0;
        if (q_->step_blocks(cache, 0, handle, g, 0, ids, 1024, &count, &error_) < 0)
            fail("follower", "step_blocks: %s", error_.message);
        words.push_back({"table length of sequence", at, count});
        for (uint32_t i = 0; i < count; ++i)
            words.push_back({"table of sequence", at, static_cast<uint64_t>(ids[i])});
    }
}

Follower::Tables Follower::leases_of_leader() {
    Tables all;
    for (const auto &lease : leader_.leases)
        for (uint32_t g = 0; g < leader_.blocks_.size(); ++g) {
            std::set<int32_t> &ids = all[lease->handle].emplace_back();
            for (const quire_lease_block &b : leader_.blocks_of(*lease, g)) ids.insert(b.block);
        }
    return all;
}

// The device blocks of all that the follower has, by its dump.
Follower::Tables Follower::dumped() {
    uint64_t size = 0;
    quire_status status = q_->cache_dump(cache_, 0, dump_.data(), dump_.size(), &size, &error_);
    if (status == QUIRE_S_INCOMPLETE) {
        dump_.resize(size);
        status = q_->cache_dump(cache_, 0, dump_.data(), dump_.size(), &size, &error_);
    }
    leader_.expect(status, {QUIRE_OK}, "quire_cache_dump of a follower");
    Tables all;
    std::map<int64_t, uint64_t> handles;
    each_record({dump_.data(), size}, [&](std::string_view record) {
        const int64_t id = number_in(record, "id");
        if (has(record, "\"record\":\"sequence\"")) {
            handles[id] = bits_in(record, "handle");
            all[handles[id]].resize(leader_.blocks_.size());
        }
        if (!has(record, "\"record\":\"table\"")) return;
        const std::vector<int64_t> ids = blocks_in(record);
        all[handles.at(id)].at(static_cast<size_t>(number_in(record, "group"))) = {ids.begin(),
                                                                                   ids.end()};
    });
    return all;
}

// Each lease holds the leader's blocks, and nothing lives but what lives there.
void Follower::compare_leases(const Log &log) {
    const bool had = std::exchange(had_leases_, !log.leases.empty());
    if ((!had && log.leases.empty()) || q_->cache_dump == nullptr) return;
    Tables own = dumped();
    if (own.size() != log.leases.size() + log.handles.size())
        fail("follower", "%zu sequences and leases live; the leader has %zu and %zu", own.size(),
             log.handles.size(), log.leases.size());
    for (const auto &[handle, tables] : log.leases) {
        const auto at = own.find(handle);
        if (at == own.end())
            fail("follower", "the follower does not know lease 0x%llx",
                 static_cast<unsigned long long>(handle));
        for (uint32_t g = 0; g < tables.size(); ++g) {
            std::set<int32_t> &ids = at->second[g];
            if (!ids.empty() && leader_.makes(kFaultUnheard)) ids.erase(ids.begin());
            leader_.tally_->follower_leased += ids.size();
            if (ids != tables[g])
                fail("follower", "lease 0x%llx holds %zu blocks of group %u; the leader's %zu",
                     static_cast<unsigned long long>(handle), ids.size(), g, tables[g].size());
        }
    }
    leader_.tally_->follower_leases += log.leases.size();
}

Snapshot Follower::look(quire_cache *cache, const Log &log, quire_step step) {
    Snapshot words;
    for (uint32_t h = 0; h < log.handles.size(); ++h) look_at_sequence(cache, log, h, words);
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    if (q_->cache_get_stats(cache, &s, &error_) < 0) fail("follower", "stats: %s", error_.message);
    words.push_back({"blocks held of cache", 0, s.blocks_held});
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
    log.leases = leases_of_leader();
    log.state = look(leader_.cache_, log, step.handle);
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

// It is what the leader was when it had committed the step.
void Follower::compare(const Log &log, quire_step step) {
    const Snapshot own = look(cache_, log, step);
    for (size_t i = 0; i < own.size() && i < log.state.size(); ++i) {
        if (is_late(own[i], log, i)) continue;
        if (own[i].value != log.state[i].value || own[i].what != log.state[i].what)
            fail("follower", "%s %u is %llu; the leader's is %llu", own[i].what, own[i].who,
                 static_cast<unsigned long long>(own[i].value),
                 static_cast<unsigned long long>(log.state[i].value));
    }
    if (own.size() != log.state.size()) fail("follower", "it shows other things than the leader");
}

void Follower::check_ended(const Log &log) {
    for (const quire_seq handle : last_handles_) {
        if (std::find(log.handles.begin(), log.handles.end(), handle) != log.handles.end())
            continue;
        quire_seq_info got{};
        got.struct_size = sizeof got;
        if (q_->seq_get_info(cache_, handle, &got, &error_) != QUIRE_E_STALE)
            fail("follower", "the follower still knows sequence 0x%llx, which ended",
                 static_cast<unsigned long long>(handle));
    }
}

// "Each may be moved by itself, and the log continues": all of its blocks stay where they are.
void Follower::move() {
    std::vector<quire_block_move> moves(kMostMoves);
    quire_migrate_desc desc{};
    desc.struct_size = sizeof desc;
    desc.group_blocks = leader_.blocks_.data();
    desc.moves = moves.data();
    desc.move_capacity = kMostMoves;
    desc.move_stride = sizeof moves[0];
    quire_migrate_info got{};
    got.struct_size = sizeof got;
    leader_.expect(q_->cache_migrate(cache_, &desc, &got, &error_), {QUIRE_OK},
                   "quire_cache_migrate of a follower");
    if (got.blocks_dropped != 0)
        fail("follower", "a follower drops %llu blocks",
             static_cast<unsigned long long>(got.blocks_dropped));
    for (uint32_t i = 0; i < got.move_count; ++i)
        if (moves[i].src != moves[i].dst)
            fail("follower", "block %d of a follower becomes block %d", moves[i].src, moves[i].dst);
    ++leader_.tally_->follower_moves;
}

void Follower::apply() {
    Log log = std::move(logs_.front());
    logs_.front() = log;
    if (rng_.percent(5)) refuse_wrong(log);
    logs_.pop_front();
    while (unfinished_.size() >= QUIRE_UNFINISHED_STEPS ||
           (!unfinished_.empty() && rng_.percent(60)))
        finish_first();
    if (unfinished_.empty() && leader_.config.has(Feature::migrate) && move_rng_.percent(5)) move();
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
    compare(log, step);
    check_ended(log);
    compare_leases(log);
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
