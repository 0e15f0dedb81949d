// SPDX-License-Identifier: Apache-2.0
//
// ranks: see ranks.hpp. The end of a game is in ranks_end.cpp.
#include "ranks.hpp"

#include <algorithm>

#include "clock.hpp"
#include "ranks_game.hpp"

namespace sim {

RanksShape draw_ranks(uint64_t seed, Rng &rng) {
    RanksShape shape;
    shape.block_tokens = 2u << rng.below(3);
    shape.blocks = rng.range(10, 26);
    shape.host_blocks = rng.range(6, 24);
    shape.groups.resize(rng.range(1, 2));
    shape.groups[0].layers = rng.range(1, 2);
    if (shape.groups.size() == 2 && rng.percent(40)) shape.groups[1].window = rng.range(3, 12);
    const uint32_t ranks = rng.range(2, 3);
    const uint32_t layers = shape.layers();
    shape.host_prefixes = rng.percent(35);
    shape.partial = Rng(mix(seed, 0x9A272A)).percent(50);
    const uint32_t how = rng.below(4);
    if (how == 0) {  // each has all
        shape.heads = rng.range(1, 2);
        shape.ranks.assign(ranks, {{0, layers, 0, shape.heads}});
    } else if (how == 1 && layers >= ranks) {
        shape.heads = rng.range(1, 2);
        for (uint32_t r = 0; r < ranks; ++r)
            shape.ranks.push_back({{r * layers / ranks, (r + 1) * layers / ranks, 0, shape.heads}});
    } else if (how == 2) {  // two shards each
        shape.heads = 2 * ranks;
        for (uint32_t r = 0; r < ranks; ++r)
            shape.ranks.push_back(
                {{0, layers, 2 * r, 2 * r + 1}, {0, layers, 2 * r + 1, 2 * r + 2}});
    } else {
        shape.heads = ranks;
        for (uint32_t r = 0; r < ranks; ++r) shape.ranks.push_back({{0, layers, r, r + 1}});
    }
    return shape;
}

RanksGame::RanksGame(const quire_api *api, quire_instance *instance, uint64_t seed,
                     RanksTally *tally)
    : q_(api), rng_(mix(seed, 0x4A2C)), tally_(tally), shape_(draw_ranks(seed, rng_)) {
    const bool is_short = rng_.percent(30);
    desc_.struct_size = sizeof desc_;
    const Digest print = rank_fingerprint();
    memcpy(desc_.fingerprint, print.data(), sizeof desc_.fingerprint);
    desc_.write = rng_.range(QUIRE_TIER_WRITE_THROUGH, QUIRE_TIER_WRITE_BACK);
    desc_.load_timeout_ns = (is_short ? 20 : 200) * kMillisecond;
    desc_.load_expiry_ns = rng_.range(20, 400) * kMillisecond;
    desc_.min_load_tokens = rng_.percent(20) ? 2 * shape_.block_tokens : 0;
    desc_.max_load_bytes = rng_.percent(30) ? 1 : 0;
    desc_.followers = static_cast<uint32_t>(shape_.ranks.size()) - 1;
    for (uint32_t r = 0; r < shape_.ranks.size(); ++r) {
        ranks_.push_back(std::make_unique<Rank>(api, instance, shape_, r));
        ranks_[r]->open_store();
        attach(r);
    }
    documents_ = rng_.range(2, 5);
    turn_ = rng_.below(5) * shape_.block_tokens;
    // Documents differ from any place on.
    Rng apart(mix(seed, 0x9A272A4));
    if (shape_.partial) turn_ += apart.below(shape_.block_tokens);
    tally_->partial_games += shape_.partial;
    add_tenants();
}

// The default tenant, two with keys, and one that no store may keep.
void RanksGame::add_tenants() {
    tenants_.push_back({});
    for (const char *key : {"a", "b", ""}) {
        Tenant tenant;
        quire_namespace_desc desc{};
        desc.struct_size = sizeof desc;
        desc.key = key;
        desc.key_size_bytes = static_cast<uint32_t>(strlen(key));
        leader().need(q_->namespace_create(leader().cache, &desc, &tenant.handle, &leader().error),
                      "quire_namespace_create");
        tenant.is_named = *key != 0;
        if (tenant.is_named) tenant.digest = sha256({static_cast<uint8_t>(*key)});
        tenants_.push_back(tenant);
    }
}

void RanksGame::attach(uint32_t rank) {
    quire_cache_tier_desc desc = desc_;
    if (rank != 0) desc.followers = 0;
    // On a follower: written unless it is NONE.
    if (rank != 0 && rng_.percent(10)) desc.write = QUIRE_TIER_WRITE_NONE;
    ranks_[rank]->attach(desc);
    if (rank != 0) return;
    for (RanksSeq &seq : seqs_) seq.load = {};
}

uint32_t RanksGame::token(uint32_t doc, uint32_t at) const {
    return static_cast<uint32_t>(mix(at < turn_ ? doc % 2 : doc + 100, at) % 40);
}

void RanksGame::create() {
    if (seqs_.size() >= 6) return;
    const uint32_t tenant =
        rng_.percent(55) ? 0 : rng_.below(static_cast<uint32_t>(tenants_.size()));
    add_sequence(tenant, rng_.below(documents_));
}

void RanksGame::end(size_t at) {
    const uint32_t flags = rng_.percent(8) ? QUIRE_END_DROP_PREFIX : 0;
    leader().need(q_->seq_end(leader().cache, seqs_[at].handle, flags, &leader().error),
                  "quire_seq_end");
    seqs_.erase(seqs_.begin() + static_cast<ptrdiff_t>(at));
}

uint64_t RanksGame::chain_after(const RanksSeq &seq, uint64_t before, uint32_t value) const {
    return mix(before ^ mix(seq.tenant, 0x7E), value + 1);
}

// Names the sequence's full blocks, which may be stored from now on.
void RanksGame::name_blocks(const RanksSeq &seq) {
    const Tenant &tenant = tenants_[seq.tenant];
    if (!tenant.is_named) return;
    Digest name = first_name(tenant.digest);
    const uint32_t size = shape_.block_tokens;
    for (uint32_t p = 0; p + size <= seq.computed; p += size) {
        name = next_name(name, &seq.tokens[p]);
        for (uint32_t g = 0; g < shape_.groups.size(); ++g) {
            RankBlock block;
            block.name = name;
            block.tenant = tenant.digest;
            block.group = g;
            block.position = p;
            block.tenant_number = seq.tenant + 1;
            block.tokens.assign(seq.tokens.begin() + p, seq.tokens.begin() + p + size);
            block.chain.assign(seq.chain.begin() + p, seq.chain.begin() + p + size);
            for (auto &rank : ranks_) rank->learn(block);
        }
    }
}

Digest RanksGame::first_name(const Digest &tenant) const {
    Hashed name;
    const char magic[16] = "quire tier 1";
    name.bytes.assign(magic, magic + 16);
    name.digest(rank_fingerprint());
    name.digest(tenant);
    name.word(shape_.block_tokens);
    name.word(1);
    name.word(0);
    return name.end();
}

Digest RanksGame::next_name(const Digest &before, const uint32_t *tokens) const {
    Hashed name;
    name.digest(before);
    name.word(0);
    name.word(0);
    for (uint32_t i = 0; i < shape_.block_tokens; ++i) name.word(tokens[i]);
    return name.end();
}

// Draws an item of the sequence; false: it has nothing to compute.
bool RanksGame::draw_item(const RanksSeq &seq, RanksItem *item) {
    item->handle = seq.handle;
    const uint32_t most = std::min((shape_.blocks - 1) * shape_.block_tokens * 2 / 3, 48u);
    const auto known = static_cast<uint32_t>(seq.tokens.size());
    uint32_t count = known == 0 ? rng_.range(1, most) : rng_.below(3);
    // Most often the same prompt again, so that a load is met.
    if (known == 0 && seq.wanted != 0 && rng_.percent(85)) count = seq.wanted;
    if (known + count > most) count = 0;
    if (count == 0 && known == seq.computed) return false;
    for (uint32_t i = 0; i < count; ++i) item->tokens.push_back(token(seq.doc, known + i));
    item->may_load = rng_.percent(85);
    item->max_compute = rng_.percent(20) ? rng_.range(1, 2 * shape_.block_tokens) : 0;
    item->max_hit = rng_.percent(8) ? rng_.range(1, most) : 0;
    return true;
}

std::vector<quire_step_result> RanksGame::begin(const std::vector<RanksItem> &items) {
    std::vector<quire_step_item> list;
    std::vector<quire_token> tokens;
    for (const RanksItem &item : items) {
        quire_step_item one{};
        one.seq = item.handle;
        one.token_offset = static_cast<uint32_t>(tokens.size());
        one.token_count = static_cast<uint32_t>(item.tokens.size());
        one.max_compute = item.max_compute;
        one.max_hit_tokens = item.max_hit;
        one.flags = item.may_load ? QUIRE_ITEM_MAY_LOAD : 0;
        list.push_back(one);
        tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    }
    std::vector<quire_step_result> results(items.size());
    const std::vector<quire_queue *> queues = leader().queues();
    quire_step_desc desc{};
    desc.struct_size = sizeof desc;
    desc.queues = queues.data();
    desc.queue_count = static_cast<uint32_t>(queues.size());
    begun_before_ = leader().attached ? leader().stats().loads_begun : 0;
    for (int tries = 0;; ++tries) {
        const quire_status status = q_->step_begin(
            leader().cache, &desc, list.data(), static_cast<uint32_t>(list.size()),
            sizeof(quire_step_item), tokens.data(), static_cast<uint32_t>(tokens.size()),
            results.data(), sizeof(quire_step_result), &step_, &leader().error);
        const bool is_full = status == QUIRE_E_LIMIT || status == QUIRE_E_BUSY;
        if (!is_full || tries != 0) {
            leader().need(status, "quire_step_begin");
            break;
        }
        while (!leader().unfinished.empty()) finish(QUIRE_STEP_OK);
        leader().work(0, 0);
    }
    for (size_t i = 0; i < items.size(); ++i) judge(items[i], results[i]);
    return results;
}

// An item may load only what a store may have, and not beyond its deadline.
void RanksGame::judge(const RanksItem &item, const quire_step_result &result) {
    RanksSeq &seq = find(item.handle);
    if (result.outcome == QUIRE_ITEM_RUN) {
        const auto known = static_cast<uint32_t>(seq.tokens.size() + item.tokens.size());
        if (result.first_position + result.compute_count > known || result.compute_count == 0)
            fail("rank-row", "a row of %u tokens from %u on; %u are known", result.compute_count,
                 result.first_position, known);
        if (item.max_hit != 0 && seq.computed == 0 && result.hit_tokens > item.max_hit)
            fail("rank-limit", "%u tokens are found, and at most %u may be", result.hit_tokens,
                 item.max_hit);
        return;
    }
    if (result.outcome != QUIRE_ITEM_LOADING) return;
    ++tally_->loading;
    const char *why = !item.may_load                   ? "it may not"
                      : !leader().attached             ? "the leader has no tier"
                      : leader().leaving               ? "the leader's tier is being detached"
                      : seq.computed != 0              ? "it has computed tokens"
                      : !tenants_[seq.tenant].is_named ? "its tenant has no name"
                                                       : nullptr;
    if (why != nullptr) fail("rank-loads", "an item loads, and %s", why);
    const uint64_t now = clock_watch.now_ns;
    // It is the load of before unless one began in this call.
    if (!seq.load.is_live || leader().stats().loads_begun != begun_before_) {
        seq.load = {true, now};
    } else if (now > seq.load.since_ns + desc_.load_timeout_ns + 2 * kMillisecond) {
        fail("rank-deadline", "an item still loads after %llu ms; a load may take %llu ms",
             static_cast<unsigned long long>((now - seq.load.since_ns) / kMillisecond),
             static_cast<unsigned long long>(desc_.load_timeout_ns / kMillisecond));
    }
}

void RanksGame::play_step() {
    std::vector<RanksItem> items;
    for (const RanksSeq &seq : seqs_) {
        RanksItem item;
        if (rng_.percent(55) && draw_item(seq, &item)) items.push_back(item);
    }
    for (const RanksItem &item : items) {
        RanksSeq &seq = find(item.handle);
        if (seq.tokens.empty()) seq.wanted = static_cast<uint32_t>(item.tokens.size());
    }
    const std::vector<quire_step_result> results = begin(items);
    if (rng_.percent(8)) {
        leader().need(q_->step_abort(leader().cache, step_, &leader().error), "quire_step_abort");
        return;
    }
    for (const RanksSeq &seq : seqs_) {
        const bool has_item = std::any_of(items.begin(), items.end(), [&](const RanksItem &item) {
            return item.handle == seq.handle;
        });
        if (has_item || seq.computed == 0 || !rng_.percent(8)) continue;
        uint32_t freed = 0;
        const quire_status status =
            q_->step_preempt(leader().cache, step_, seq.handle,
                             rng_.percent(70) ? QUIRE_PREEMPT_SWAP : QUIRE_PREEMPT_RECOMPUTE,
                             &freed, &leader().error);
        leader().need(status, "quire_step_preempt", QUIRE_S_NO_BLOCKS);
        ++tally_->swaps;
    }
    commit(items, results);
}

// The step is final: the model, the engine and the followers learn of it.
void RanksGame::commit(const std::vector<RanksItem> &items,
                       const std::vector<quire_step_result> &results) {
    leader().need(q_->step_commit(leader().cache, step_, nullptr, &leader().error),
                  "quire_step_commit");
    auto log = std::make_shared<RankLog>();
    log->step = static_cast<uint32_t>(++tally_->steps);
    for (size_t i = 0; i < items.size(); ++i) {
        if (results[i].outcome != QUIRE_ITEM_RUN) continue;
        RanksSeq &seq = find(items[i].handle);
        for (const uint32_t value : items[i].tokens) {
            seq.chain.push_back(chain_after(seq, seq.chain.empty() ? 0 : seq.chain.back(), value));
            seq.tokens.push_back(value);
        }
        seq.computed = results[i].first_position + results[i].compute_count;
        seq.load = {};
        note_hit(results[i], log.get());
        ++tally_->rows;
        RankRow row;
        row.seq = seq.handle;
        row.first = results[i].first_position;
        row.tenant = seq.tenant + 1;
        row.chain.assign(seq.chain.begin(), seq.chain.begin() + seq.computed);
        log->rows.push_back(row);
        name_blocks(seq);
    }
    look_at_sequences(false);
    uint64_t size = 0;
    leader().need(q_->step_log(leader().cache, step_, nullptr, 0, &size, &leader().error),
                  "quire_step_log", QUIRE_S_INCOMPLETE);
    log->bytes.resize(size);
    leader().need(
        q_->step_log(leader().cache, step_, log->bytes.data(), size, &size, &leader().error),
        "quire_step_log");
    for (const RanksSeq &seq : seqs_) log->states.push_back(leader().look(seq.handle));
    check_copies(&leader(), *log, step_);
    leader().compute(log->step, log->rows);
    leader().unfinished.push_back(step_);
    for (size_t r = 1; r < ranks_.size(); ++r) ranks_[r]->logs.push_back(log);
    if (rng_.percent(75)) finish(rng_.percent(4) ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
}

// A hit that ends within a block copies it, in each group.
void RanksGame::note_hit(const quire_step_result &result, RankLog *log) {
    tally_->hits += result.hit_tokens;
    const uint32_t part = result.hit_tokens % shape_.block_tokens;
    if (part == 0) return;
    if (!shape_.partial || part < shape_.least_part())
        fail("rank-partial", "%u tokens are found; a hit may have %u of a block of %u at least",
             result.hit_tokens, shape_.partial ? shape_.least_part() : shape_.block_tokens,
             shape_.block_tokens);
    ++log->partial_hits;
    ++tally_->partial_hits;
    tally_->partial_tokens += part;
}

void RanksGame::check_copies(Rank *rank, const RankLog &log, quire_step step) {
    const uint32_t copies = rank->copies_on_write(step);
    if (copies < log.partial_hits * shape_.groups.size())
        fail("rank-partial", "rank %u copies %u blocks in a step of %u hits within a block",
             rank->number, copies, log.partial_hits);
}

// What the library says that each sequence has; `may_lose`: a step has failed.
void RanksGame::look_at_sequences(bool may_lose) {
    for (RanksSeq &seq : seqs_) {
        quire_seq_info info{};
        info.struct_size = sizeof info;
        leader().need(q_->seq_get_info(leader().cache, seq.handle, &info, &leader().error),
                      "quire_seq_get_info");
        const bool was_given_up = info.preemptions != seq.preemptions && info.computed_tokens == 0;
        seq.preemptions = info.preemptions;
        const bool is_less = info.computed_tokens < seq.computed && (may_lose || was_given_up);
        if ((info.computed_tokens != seq.computed && !is_less) ||
            info.known_tokens != seq.tokens.size())
            fail("rank-sequence", "a sequence has %u computed of %u tokens; the model %u of %zu",
                 info.computed_tokens, info.known_tokens, seq.computed, seq.tokens.size());
        seq.computed = info.computed_tokens;
    }
}

// Finishes the leader's first unfinished step.
void RanksGame::finish(uint32_t outcome) {
    if (leader().unfinished.empty()) return;
    leader().need(q_->step_finish(leader().cache, leader().unfinished.front(), nullptr, outcome,
                                  &leader().error),
                  "quire_step_finish");
    leader().unfinished.erase(leader().unfinished.begin());
    tally_->failed_steps += outcome == QUIRE_STEP_FAILED;
    if (outcome == QUIRE_STEP_FAILED) look_at_sequences(true);
}

RanksSeq &RanksGame::find(quire_seq handle) {
    for (RanksSeq &seq : seqs_)
        if (seq.handle == handle) return seq;
    fail("rank-sequence", "the game has no such sequence");
}

}  // namespace sim
