// SPDX-License-Identifier: Apache-2.0
//
// The reference's steps: the needs of an item, the choice of victims, commit and failure.

#include <algorithm>
#include <cstdint>

#include "reference.hpp"
#include "reference_plan.hpp"

namespace quire::model {

bool Reference::begin(int64_t queue, bool may_preempt, int how) {
    if (open_ || unfinished_.size() == 8) return false;
    saved_.clear();
    Reference copy = *this;
    saved_.push_back(copy);
    step_ = Step{};
    step_.number = next_step_;
    step_.queue = queue;
    step_.may_preempt = may_preempt;
    step_.how = how;
    open_ = true;
    return true;
}

void Reference::abort() {
    Reference copy = saved_.front();
    *this = copy;
}

bool Reference::tail_writable(int slot, int group, int position) const {
    const Seq &s = seq(slot);
    size_t g = static_cast<size_t>(group);
    int block = s.tables[g][static_cast<size_t>(position / config_.block_tokens)];
    if (block < 0) return false;
    const Block &b = blocks_[g][static_cast<size_t>(block)];
    if (b.node >= 0) return false;
    if (b.owner == slot && position % config_.block_tokens >= b.frozen) return true;
    return b.refs == 1 && usable(b.touch, step_.queue);
}

std::vector<int> Reference::passed(int slot, size_t group, int position) const {
    std::vector<int> out;
    const auto &table = seq(slot).tables[group];
    int past = position / config_.block_tokens;  // blocks before the position's own
    for (int i = 0; i < past && i < static_cast<int>(table.size()); ++i) {
        bool needed = is_cross(group) || needs(static_cast<int>(group), position, i);
        if (!needed && table[static_cast<size_t>(i)] >= 0) out.push_back(i);
    }
    return out;
}

Reference::Plan Reference::make_plan(int slot, const Item &item, bool reuses) {
    const Seq &s = seq(slot);
    Plan plan;
    plan.slot = slot;
    plan.reuses = reuses;
    plan.known = static_cast<int>(s.tokens.size());
    plan.position = s.computed;
    plan.swapped = s.swapped;
    plan.admission = s.computed == 0 || s.swapped;
    if (plan.admission && !config_.prefix_off && !s.unpublished && s.cross == 0) {
        int settled = std::min(s.swapped ? s.computed : plan.known - 1, first_unknown(s));
        settled = std::min(settled, plan.known - item.drafts);
        bool is_limited = item.max_hits != 0 && !s.swapped;
        if (is_limited) settled = std::min(settled, std::max(item.max_hits, 0));
        plan.matched = match(s, settled / config_.block_tokens, false);
        if (!s.swapped) {
            plan.matched.resize(static_cast<size_t>(best_hit(plan.matched)));
            plan.position = static_cast<int>(plan.matched.size()) * config_.block_tokens;
        }
    }
    int left = plan.known - plan.position;
    plan.compute = item.max_compute != 0 ? std::min(item.max_compute, left) : left;
    int end = plan.position + plan.compute;
    int reserved = end == plan.known ? end + item.lookahead : end;
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int group = static_cast<int>(g);
        int length = static_cast<int>(s.tables[g].size());
        int fresh = 0, from_cached = 0, found = 0;
        plan.passed.emplace_back();
        if (reuses) plan.passed[g] = passed(slot, g, plan.position);
        auto gives_back = [&](int i) {
            return std::count(plan.passed[g].begin(), plan.passed[g].end(), i) != 0;
        };
        bool copy_tail = false;
        int hits = is_cross(g) ? 0 : static_cast<int>(plan.matched.size());
        for (int i = 0; i < hits; ++i) {
            bool wanted = plan.swapped ? s.tables[g][static_cast<size_t>(i)] >= 0 && !gives_back(i)
                                       : needs(group, plan.position, i);
            int block = nodes_[static_cast<size_t>(plan.matched[static_cast<size_t>(i)])].blocks[g];
            if (!wanted || block < 0) continue;
            ++found;
            const Block &b = blocks_[g][static_cast<size_t>(block)];
            from_cached += b.refs == 0 && usable(b.touch, step_.queue);
        }
        if (plan.swapped) {
            for (int block : s.tables[g]) fresh += block >= 0;
            fresh -= found + static_cast<int>(plan.passed[g].size());
        } else if (plan.admission) {
            length = hits;
        } else if (plan.position % config_.block_tokens != 0 && !is_cross(g)) {
            copy_tail = !tail_writable(slot, group, plan.position);
        }
        int target = std::max(length, table_length(group, reserved, s));
        plan.length.push_back(target);
        plan.fresh.push_back(fresh + target - length);
        plan.from_cached.push_back(from_cached);
        plan.copy_tail.push_back(copy_tail);
    }
    return plan;
}

AddResult Reference::shortage(const Plan &plan) const {
    AddResult out;
    out.outcome = Outcome::wait;
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int need = plan.fresh[g] + (plan.copy_tail[g] ? 1 : 0);
        if (need == 0 && !plan.admission) continue;
        int have = available(static_cast<int>(g)) - plan.from_cached[g];
        for (int i : plan.passed[g]) {
            if (plan.swapped) break;
            const Block &b =
                blocks_[g][static_cast<size_t>(seq(plan.slot).tables[g][static_cast<size_t>(i)])];
            have += b.refs == 1 && usable(b.touch, step_.queue);
        }
        int reason = 1;
        if (need <= have && plan.admission && count_held(static_cast<int>(g)) != 0) {
            have = std::max(0, have - config_.watermark);
            reason = 2;
        }
        if (need - have > out.blocks_short) {
            out.blocks_short = need - have;
            out.reason = reason;
        }
    }
    return out;
}

int Reference::choose_victim(int slot) const {
    auto gives_way = [&](const Seq &a, const Seq &b) {
        if (config_.by_priority && a.priority != b.priority) return a.priority < b.priority;
        return a.admitted > b.admitted;
    };
    int best = -1;
    for (size_t i = 0; i < seqs_.size(); ++i) {
        const Seq &s = seqs_[i];
        bool holds = false;
        for (const auto &table : s.tables) {
            for (int block : table) holds |= block >= 0;
        }
        if (!s.live || s.in_step || s.gave_up || s.swapped || s.drafts != 0 || !holds) continue;
        if (still_written_elsewhere(s)) continue;
        if (static_cast<int>(i) == slot || !gives_way(s, seq(slot))) continue;
        bool resumed = s.resumed_step != 0 && s.resumed_step + 1 == next_step_;
        if (best >= 0) {
            const Seq &other = seq(best);
            bool other_resumed = other.resumed_step != 0 && other.resumed_step + 1 == next_step_;
            if (resumed != other_resumed ? resumed : !gives_way(s, other)) continue;
        }
        best = static_cast<int>(i);
    }
    return best;
}

int Reference::host_available(int group) const {
    int count = 0;
    for (const Block &b : host_[static_cast<size_t>(group)]) {
        count += b.refs == 0 && usable(b.touch, step_.queue);
    }
    return count;
}

int Reference::take_host(int group) {
    auto &blocks = host_[static_cast<size_t>(group)];
    int best = -1;
    int64_t best_touch = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const Block &b = blocks[i];
        int64_t touch = done(b.touch) ? 0 : b.touch;
        int since = waits_since(group, static_cast<int>(i), true);
        if (since != 0) touch = -since;
        if (b.refs != 0 || !usable(b.touch, step_.queue) || (best >= 0 && touch >= best_touch))
            continue;
        best = static_cast<int>(i);
        best_touch = touch;
    }
    blocks[static_cast<size_t>(best)].refs = 1;
    return best;
}

void Reference::let_go(int group, int block, bool is_host, bool waits_here, int64_t touch) {
    auto &blocks = (is_host ? host_ : blocks_)[static_cast<size_t>(group)];
    const Block &b = blocks[static_cast<size_t>(block)];
    bool is_first =
        waits_here && touch > b.touch && b.refs == 0 && b.node < 0 && usable(b.touch, step_.queue);
    step_.let_go.push_back({group, block, is_host, is_first, touch});
}

// When the open step let go of a block that will wait for it or its queue (from 1); 0: it did not.
int Reference::waits_since(int group, int block, bool is_host) const {
    for (size_t i = step_.let_go.size(); i-- > 0;) {
        const Step::LetGo &one = step_.let_go[i];
        if (one.group != group || one.block != block || one.is_host != is_host) continue;
        if (one.is_first) return static_cast<int>(i) + 1;
    }
    return 0;
}

bool Reference::host_room(int slot) const {
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int need = 0;
        for (int block : seq(slot).tables[g]) need += block >= 0;
        if (need > host_available(static_cast<int>(g))) return false;
    }
    return true;
}

void Reference::give_up(int slot, int how) {
    Seq &s = at(slot);
    bool elsewhere = still_written_elsewhere(s);
    if (!s.moves.empty() && s.move_begin == 0) how = 2;
    for (size_t g = 0; g < blocks_.size(); ++g) {
        for (size_t i = s.tables[g].size(); i-- > 0;) {
            int block = s.tables[g][i];
            if (block < 0) continue;
            drop_ref(static_cast<int>(g), block, elsewhere && how == 2 ? s.last_step : 0);
            let_go(static_cast<int>(g), block, false,
                   how == 1 || (!elsewhere && !done(s.last_step)),
                   how == 1 ? step_.number : s.last_step);
            if (how != 1) continue;
            s.tables[g][i] = take_host(static_cast<int>(g));
        }
        if (how == 2) s.tables[g].clear();
    }
    s.gave_up = true;
    s.preempted = true;
    ++s.preemptions;
    s.lookahead = 0;
    s.published = 0;
    s.cursor = -1;
    if (how == 1) {
        s.swapped = true;
        if (!s.moves.empty()) s.computed = s.move_begin;
    } else {
        s.computed = 0;
        s.unpublished = false;
    }
    s.moves.clear();
    trim_pending(slot);
}

bool Reference::make_room(Plan *plan, const Item &item, AddResult *missing) {
    std::vector<Reference> before{*this};
    while (missing->reason == 1) {
        int victim = choose_victim(plan->slot);
        if (victim < 0) break;
        int how = step_.how == 0 ? (host_room(victim) ? 1 : 2) : step_.how;
        if (how == 1 && !host_room(victim)) how = 2;
        give_up(victim, how);
        *plan = make_plan(plan->slot, item, plan->reuses);
        *missing = shortage(*plan);
    }
    if (missing->reason == 0) return true;
    Reference copy = before.front();
    *this = copy;
    return false;
}

namespace {

// Records the unfinished steps that the shared blocks depend on, with the first position of each.
// Blocks found in place of swapped ones hold [0, found): their dependencies replace those of the
// swapped ones.
void add_pending(Seq *s, const std::map<int64_t, int> &by_hits, int found, int position) {
    for (auto it = s->pending.begin(); found > 0 && it != s->pending.end();) {
        it->second = std::max(it->second, found);
        it = it->second < position ? std::next(it) : s->pending.erase(it);
    }
    for (auto [step, first] : by_hits) {
        auto [it, fresh] = s->pending.emplace(step, first);
        if (!fresh) it->second = std::min(it->second, first);
    }
}

}  // namespace

void Reference::give_back_passed(const Plan &plan, size_t group) {
    int g = static_cast<int>(group);
    for (int i : plan.passed[group]) {
        int &entry = at(plan.slot).tables[group][static_cast<size_t>(i)];
        if (plan.swapped) {
            host_[group][static_cast<size_t>(entry)].refs = 0;
        } else {
            drop_ref(g, entry, 0);
        }
        let_go(g, entry, plan.swapped, true, step_.number);
        entry = -1;
    }
}

void Reference::take_all(const Plan &plan) {
    Seq &s = at(plan.slot);
    std::map<int64_t, int> by_hits;
    int valid = plan.position, found = plan.swapped ? plan.position : 0;
    if (!s.moves.empty()) valid = std::min(valid, s.move_begin);
    s.moves.clear();
    for (size_t g = 0; g < blocks_.size(); ++g) {
        int group = static_cast<int>(g);
        auto &table = s.tables[g];
        int hits = is_cross(g) ? 0 : static_cast<int>(plan.matched.size());
        give_back_passed(plan, g);
        auto share = [&](int i) {
            int block = nodes_[static_cast<size_t>(plan.matched[static_cast<size_t>(i)])].blocks[g];
            if (block < 0) return -1;
            Block &b = blocks_[g][static_cast<size_t>(block)];
            int position = i * config_.block_tokens;
            for (int64_t step : b.depends) {
                if (step == step_.number)
                    valid = std::min(valid, position);
                else if (!done(step))
                    by_hits.emplace(step, position);
                if (by_hits.count(step) != 0) by_hits[step] = std::min(by_hits[step], position);
            }
            ++b.refs;
            return block;
        };
        auto fresh_block = [&] {
            int block = take(group);
            blocks_[g][static_cast<size_t>(block)].owner = plan.slot;
            return block;
        };
        if (plan.swapped) {
            for (size_t i = 0; i < table.size(); ++i) {
                if (table[i] < 0) continue;
                int block = static_cast<int>(i) < hits ? share(static_cast<int>(i)) : -1;
                int position = is_cross(g) ? 0 : static_cast<int>(i) * config_.block_tokens;
                if (block < 0) valid = std::min(valid, position);
                if (block < 0) found = std::min(found, position);
                Block &host_block = host_[g][static_cast<size_t>(table[i])];
                host_block.refs = 0;
                let_go(group, table[i], true, true, step_.number);
                table[i] = block >= 0 ? block : fresh_block();
            }
        } else if (plan.admission) {
            for (int i = 0; i < hits; ++i) {
                table.push_back(needs(group, plan.position, i) ? share(i) : -1);
            }
        } else if (plan.copy_tail[g]) {
            size_t index = static_cast<size_t>(plan.position / config_.block_tokens);
            int block = fresh_block();
            drop_ref(group, table[index], 0);
            let_go(group, table[index], false, true, step_.number);
            table[index] = block;
            valid = std::min(valid, static_cast<int>(index) * config_.block_tokens);
        } else if (plan.position % config_.block_tokens != 0 && !is_cross(g)) {
            Block &b = blocks_[g][static_cast<size_t>(
                table[static_cast<size_t>(plan.position / config_.block_tokens)])];
            bool own = b.owner == plan.slot && plan.position % config_.block_tokens >= b.frozen;
            if (!own) b.owner = plan.slot, b.frozen = 0;
        }
        while (static_cast<int>(table.size()) < plan.length[g]) table.push_back(fresh_block());
    }
    add_pending(&s, by_hits, found, plan.position);
    step_.valid[plan.slot] = valid;
    step_.first_position[plan.slot] = plan.position;
}

bool Reference::still_written_elsewhere(const Seq &s) const {
    for (const Step &step : unfinished_) {
        if (step.number == s.last_step && !step.complete && step.queue != step_.queue) return true;
    }
    return false;
}

AddResult Reference::add(const Item &item) {
    AddResult out;
    Seq &s = at(item.seq);
    int known = static_cast<int>(s.tokens.size() + item.tokens.size());
    if (!s.live || s.in_step || s.drafts != 0 || known == s.computed) return out;
    if (item.drafts > static_cast<int>(item.tokens.size())) return out;
    if (item.drafts != 0 && item.max_compute != 0 && item.max_compute < known - s.computed)
        return out;
    if (item.is_tree && item.max_compute != 0 && item.max_compute < known - s.computed) return out;
    if (still_written_elsewhere(s)) return out;  // BUSY
    if (s.gave_up) {
        out.outcome = Outcome::wait;
        out.reason = 4;
        return out;
    }
    std::vector<uint32_t> tokens = s.tokens;
    s.tokens.insert(s.tokens.end(), item.tokens.begin(), item.tokens.end());
    Plan plan = make_plan(item.seq, item, false);
    AddResult missing = shortage(plan);
    if (missing.reason != 0) {  // the blocks that it has passed may be enough
        plan = make_plan(item.seq, item, true);
        missing = shortage(plan);
    }
    bool preempts = missing.reason == 1 && !plan.admission && step_.may_preempt;
    if (preempts) make_room(&plan, item, &missing);
    Seq &same = at(item.seq);  // make_room may have replaced it by a copy
    if (missing.reason != 0) {
        same.tokens = tokens;
        return missing;
    }
    same.in_step = true;
    take_all(plan);
    if (plan.swapped) {
        same.published = 0;
        same.cursor = -1;
    } else if (!plan.matched.empty()) {
        same.published = static_cast<int>(plan.matched.size());
        same.cursor = plan.matched.back();
    }
    same.computed = plan.position + plan.compute;
    same.drafts = item.drafts;
    same.draft_parents = item.parents;
    same.lookahead = same.computed == known ? item.lookahead : 0;
    if (same.preempted) same.resumed_step = step_.number;
    same.swapped = same.preempted = same.lost = false;
    if (same.admitted == 0) same.admitted = ++admissions_;
    publish(item.seq, step_.number);
    step_.rows.push_back(item.seq);
    out.outcome = Outcome::run;
    out.hit_tokens =
        plan.swapped ? 0 : static_cast<int>(plan.matched.size()) * config_.block_tokens;
    out.first_position = plan.position;
    out.compute_count = plan.compute;
    out.begins = plan.admission && !plan.swapped;
    return out;
}

int Reference::preempt(int slot, int how) {
    Seq &s = at(slot);
    if (s.in_step || s.gave_up || s.drafts != 0) return -1;
    bool holds = false;
    for (const auto &table : s.tables) {
        for (int block : table) holds |= block >= 0;
    }
    if (s.swapped || !holds) return 1;
    if (still_written_elsewhere(s)) {
        if (how == 1) return -1;
        how = 2;
    }
    if (how == 1 && !host_room(slot)) return 0;
    if (how == 0) how = host_room(slot) ? 1 : 2;
    give_up(slot, how);
    return 1;
}

void Reference::commit() {
    saved_.clear();
    for (int node : evicted_) {
        if (nodes_[static_cast<size_t>(node)].hidden && nodes_[static_cast<size_t>(node)].alive)
            kill(node);
        free_if_bare(node);
    }
    for (auto [group, block] : parked_) {
        Block &b = blocks_[static_cast<size_t>(group)][static_cast<size_t>(block)];
        b.parked = false;
        b.node = -1;
        b.stamp = ++clock_;
    }
    evicted_.clear();
    parked_.clear();
    for (const Step::LetGo &one : step_.let_go) {
        auto &blocks = (one.is_host ? host_ : blocks_)[static_cast<size_t>(one.group)];
        Block &b = blocks[static_cast<size_t>(one.block)];
        b.touch = std::max(b.touch, one.touch);
    }
    for (Seq &s : seqs_) {
        if (s.in_step || s.gave_up) s.last_step = step_.number;
        if (s.gave_up && s.swapped) s.pending[step_.number] = 0;
        s.gave_up = false;
    }
    for (int slot : step_.rows) {
        Seq &s = at(slot);
        s.in_step = false;
        int &valid = s.pending.emplace(step_.number, INT32_MAX).first->second;
        valid = std::min(valid, step_.valid[slot]);
    }
    pass_windows();
    if (step_.dropped) publish_again();
    unfinished_.push_back(step_);
    ++next_step_;
    open_ = false;
}

bool Reference::reachable(int node) const {
    for (; node >= 0; node = nodes_[static_cast<size_t>(node)].parent) {
        const Node &n = nodes_[static_cast<size_t>(node)];
        if (!n.alive || n.hidden) return false;
    }
    return true;
}

// After a drop, sequences whose path in the tree is broken publish from the root on.
void Reference::publish_again() {
    for (int slot : step_.rows) {
        Seq &s = at(slot);
        if (reachable(s.cursor)) continue;
        for (size_t g = 0; g < blocks_.size(); ++g) {
            for (int block : s.tables[g]) {
                int node = block >= 0 ? blocks_[g][static_cast<size_t>(block)].node : -1;
                if (node >= 0 && !reachable(node)) kill(node);
            }
        }
        s.published = 0;
        s.cursor = -1;
        publish(slot, step_.number);
    }
}

// At commit a window group gives back blocks wholly before the first position's window.
void Reference::pass_windows() {
    for (int slot : step_.rows) {
        Seq &s = at(slot);
        for (size_t g = 0; g < blocks_.size(); ++g) {
            for (int i : passed(slot, g, step_.first_position[slot])) {
                int &block = s.tables[g][static_cast<size_t>(i)];
                drop_ref(static_cast<int>(g), block, step_.number);
                block = -1;
            }
        }
    }
}

void Reference::lose(int slot, int valid) {
    Seq &s = at(slot);
    if (!s.live || s.computed <= valid) return;
    s.lost = true;
    s.tokens.resize(s.tokens.size() - static_cast<size_t>(s.drafts));
    s.drafts = s.lookahead = 0;
    lower_computed(slot, std::min(valid, static_cast<int>(s.tokens.size())), valid);
}

// The reference does not know which blocks a step was to zero. If such a step failed, the library
// may take back the tokens of a partial block, or the lookahead: nothing else.
void Reference::take_back(int slot, int computed, int lookahead) {
    Seq &s = at(slot);
    if (computed == s.computed && lookahead == 0 && s.lookahead != 0) {
        s.lookahead = 0;
        lower_computed(slot, s.computed, -1);
        return;
    }
    if (computed >= s.computed) return;
    std::vector<int> starts = {s.computed / config_.block_tokens * config_.block_tokens};
    if (!s.moves.empty()) {
        starts.push_back(s.move_begin);
        starts.push_back(std::min(starts[0], s.move_begin));
    }
    if (s.cross != 0) starts.push_back(0);
    int firm = static_cast<int>(s.tokens.size()) - s.drafts;  // a loss forgets the drafts
    for (int start : starts) {
        bool is_so = start < s.computed && whole_windows(s, std::min(start, firm)) == computed;
        if (is_so) return lose(slot, start);
    }
}

void Reference::finish(int64_t number, bool failed) {
    auto step = std::find_if(unfinished_.begin(), unfinished_.end(),
                             [&](const Step &s) { return s.number == number; });
    if (failed) {
        std::map<int, int> slots;  // by index
        for (size_t i = 0; i < seqs_.size(); ++i) {
            if (seqs_[i].live) slots[seqs_[i].index] = static_cast<int>(i);
        }
        for (auto [index, slot] : slots) {
            auto pending = seq(slot).pending.find(number);
            if (pending != seq(slot).pending.end()) lose(slot, pending->second);
        }
        for (auto &blocks : blocks_) {
            for (Block &b : blocks) {
                if (b.node >= 0 && b.depends.count(number) != 0) kill(b.node);
            }
        }
    }
    step->complete = true;
    while (!unfinished_.empty() && unfinished_.front().complete)
        unfinished_.erase(unfinished_.begin());
}

}  // namespace quire::model
