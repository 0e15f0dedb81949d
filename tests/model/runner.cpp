// SPDX-License-Identifier: Apache-2.0

#include "player.hpp"
#include "tests/whole_state.hpp"

namespace quire::model {

void Player::configure(const std::vector<int> &args) {
    Config config;
    config.block_tokens = args[0];
    config.host_blocks = args[1];
    config.watermark = args[2];
    config.prefix_off = (args[3] & 1) != 0;
    config.by_priority = (args[3] & 2) != 0;
    config.max_sequences = kSlots;
    std::vector<quire_group_desc> groups;
    for (size_t i = 4; i + 3 < args.size(); i += 4) {
        config.groups.push_back(
            GroupShape{static_cast<Kind>(args[i]), args[i + 1], args[i + 2], args[i + 3]});
        auto group = described<quire_group_desc>();
        group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        group.kind = static_cast<uint32_t>(args[i]);
        group.window = static_cast<uint32_t>(args[i + 1]);
        group.sink_tokens = static_cast<uint32_t>(args[i + 2]);
        group.blocks = static_cast<uint32_t>(args[i + 3]) + 1;
        has_cross_ = has_cross_ || group.kind == QUIRE_GROUP_CROSS;
        groups.push_back(group);
        first_blocks_.push_back(args[i + 3]);
    }
    auto desc = described<quire_cache_desc>();
    bool leads = (args[3] & 4) == 0;
    desc.flags = QUIRE_CACHE_AUDIT | (leads ? uint32_t{QUIRE_CACHE_LOG} : 0u) |
                 (config.prefix_off ? uint32_t{QUIRE_CACHE_NO_PREFIX} : 0u);
    desc.groups = groups.data();
    desc.group_count = static_cast<uint32_t>(groups.size());
    desc.group_stride = sizeof(quire_group_desc);
    desc.block_tokens = static_cast<uint32_t>(args[0]);
    desc.host_blocks = static_cast<uint32_t>(args[1]);
    desc.watermark_blocks = static_cast<uint32_t>(args[2]);
    desc.victim = config.by_priority ? QUIRE_VICTIM_PRIORITY : QUIRE_VICTIM_NEWEST;
    desc.max_sequences = kSlots;
    if (api_.cache_create(instance_, &desc, &cache_, &error_) < 0) return differ(error_.message);
    if (leads) {
        followed_ = std::make_unique<Followed>(api_);
        expect_followed(followed_->create(instance_, desc));
    }
    auto ns = described<quire_namespace_desc>();
    for (int i = 1; i < kNamespaces; ++i) {
        if (api_.namespace_create(cache_, &ns, &namespaces_[i], &error_) < 0)
            differ(error_.message);
    }
    reference_.emplace_back(config);
}

std::vector<uint32_t> Player::tokens(int slot, int content, int count) const {
    std::vector<uint32_t> out;
    int known = static_cast<int>(reference_[0].seq(slot).tokens.size());
    for (int i = 0; i < count; ++i) out.push_back(token_of(content, known + i));
    return out;
}

// Where the library keeps the next sequence: the place freed last, or the lowest.
int Player::next_index() {
    if (free_indices_.empty()) return used_indices_++;
    int index = free_indices_.back();
    free_indices_.pop_back();
    return index;
}

void Player::create(const std::vector<int> &args) {
    int slot = args[0];
    if (seqs_[slot] != 0) return;
    uint32_t salt = static_cast<uint32_t>(args[2]);
    quire_key key{QUIRE_KEY_SALT, sizeof salt, &salt, 0, 0};
    auto desc = described<quire_seq_desc>();
    desc.ns = namespaces_[args[1]];
    desc.priority = args[3];
    desc.keys = &key;
    desc.key_count = args[2] != 0 ? 1 : 0;
    desc.key_stride = sizeof key;
    int cross = has_cross_ ? args[4] : 0;
    desc.cross_tokens = static_cast<uint32_t>(cross);
    if (api_.seq_create(cache_, &desc, &seqs_[slot], &error_) < 0) return differ(error_.message);
    std::string root = std::to_string(args[1]) + "/" + std::to_string(args[2]);
    int index = next_index();
    indices_[slot] = index;
    tenants_.insert(args[1]);
    on_reference(
        [=](Reference &r) { return r.create(slot, root, args[1], args[3], cross, index), true; });
}

void Player::add(const std::vector<int> &args) {
    int slot = args[0];
    if (step_ == 0 || seqs_[slot] == 0) return;
    Item item;
    item.seq = slot;
    item.tokens = tokens(slot, args[1], args[2]);
    if (args[6] != 0 && !item.tokens.empty()) item.tokens.back() = kUnknown;
    item.max_compute = args[3];
    item.drafts = args[4];
    item.lookahead = args[5];
    item.max_hits = args[8];
    item.is_tree = args[7] != 0 && item.drafts != 0;
    for (int i = 0; i < item.drafts; ++i) item.parents.push_back(parent_of(args[7], i));
    quire_step_item given{};
    given.seq = seqs_[slot];
    given.token_count = static_cast<uint32_t>(item.tokens.size());
    given.max_compute = static_cast<uint32_t>(item.max_compute);
    given.draft_count = static_cast<uint32_t>(item.drafts);
    given.lookahead = static_cast<uint32_t>(item.lookahead);
    given.max_hit_tokens = static_cast<uint32_t>(item.max_hits);  // -1 is QUIRE_NO_HITS
    std::vector<uint32_t> words = item.tokens;
    if (item.is_tree) {
        given.mask_kind = QUIRE_MASK_PARENTS;
        given.mask_offset = given.token_count;
        given.mask_rows = given.draft_count;
        for (int parent : item.parents) words.push_back(static_cast<uint32_t>(parent));
    }
    quire_step_result result{};
    quire_status status =
        api_.step_add(cache_, step_, &given, 1, sizeof given, words.data(),
                      static_cast<uint32_t>(words.size()), &result, sizeof result, &error_);
    AddResult wanted = reference_[0].add(item);
    if (!agree(status, wanted.outcome != Outcome::error)) return;
    expect("outcome", result.outcome, wanted.outcome == Outcome::run ? 1 : 0);
    expect("reason", result.reason, wanted.reason);
    expect("hit_tokens", result.hit_tokens, wanted.hit_tokens);
    expect("first_position", result.first_position, wanted.first_position);
    expect("compute_count", result.compute_count, wanted.compute_count);
    expect("blocks_short", result.blocks_short, wanted.blocks_short);
    bool begins = wanted.outcome == Outcome::run && wanted.begins;
    expect("cross_tokens", result.cross_tokens, begins ? reference_[0].seq(slot).cross : 0);
    if (wanted.outcome == Outcome::run) {
        events_.push_back(Event{true, item, {}});
        ++tally_->runs;
        tally_->hits += wanted.hit_tokens != 0 ? 1 : 0;
    } else {
        ++tally_->waits;
    }
    quire_preemption who[kSlots];
    uint32_t count = 0;
    api_.step_preempted(cache_, step_, who, kSlots, sizeof who[0], &count, &error_);
    if (count != 0) preempted_ = true;
}

// The reference takes an item back by starting the step again without it. For the newest item that
// gives the same result, as long as the step evicted and preempted nothing. (Others:
// tests/unit/drop_test.cpp.)
void Player::drop(int slot) {
    if (step_ == 0 || seqs_[slot] == 0 || preempted_ || published_) return;
    if (reference_[0].evicted_in_step()) return;
    bool in_step = reference_[0].seq(slot).in_step;
    if (in_step && reference_[0].step().rows.back() != slot) return;
    quire_seq dropped[kSlots];
    uint32_t count = 0;
    quire_status status =
        api_.step_drop(cache_, step_, seqs_[slot], dropped, kSlots, &count, &error_);
    if (!agree(status, in_step)) return;
    ++tally_->drops;
    reference_[0].abort();
    reference_[0].begin(queue_, may_preempt_, how_);
    std::vector<Event> kept;
    for (const Event &event : events_) {
        bool gone = event.is_item &&
                    std::find(dropped, dropped + count, seqs_[event.item.seq]) != dropped + count;
        if (gone) continue;
        kept.push_back(event);
        if (!event.is_item) {
            event.operation(reference_[0]);
        } else if (reference_[0].add(event.item).outcome != Outcome::run) {
            differ("a kept item does not run again");
        }
    }
    events_ = kept;
    reference_[0].note_drop();
}

void Player::finish(int which, bool failed) {
    if (committed_.empty()) return;
    auto it = committed_.begin();
    std::advance(it, std::min<size_t>(static_cast<size_t>(which), committed_.size() - 1));
    if (failed && step_ != 0) return;  // BUSY, see quire_step_finish
    quire_status status = api_.step_finish(cache_, it->second, nullptr,
                                           failed ? QUIRE_STEP_FAILED : QUIRE_STEP_OK, &error_);
    if (!agree(status, true)) return;
    if (followed_ != nullptr) expect_followed(followed_->finish(it->second));
    int64_t number = it->first;
    on_reference([=](Reference &r) { return r.finish(number, failed), true; });
    if (failed && tenants_.size() > 1) take_back();
    committed_.erase(it);
    tally_->failures += failed ? 1 : 0;
}

// Takes back in the order of the library's own indices, which decides what is cached last.
void Player::take_back() {
    std::map<int, int> slots;
    for (int slot = 0; slot < kSlots; ++slot) {
        if (seqs_[slot] != 0) slots[indices_[slot]] = slot;
    }
    for (auto [index, slot] : slots) {
        auto info = described<quire_seq_info>();
        if (api_.seq_get_info(cache_, seqs_[slot], &info, &error_) < 0) return;
        int computed = static_cast<int>(info.computed_tokens);
        int lookahead = static_cast<int>(info.lookahead_tokens), of = slot;
        on_reference([=](Reference &r) { return r.take_back(of, computed, lookahead), true; });
    }
}

void Player::fork(const std::vector<int> &args) {
    int slot = args[0], child = args[1];
    if (seqs_[slot] == 0 || seqs_[child] != 0) return;
    int known = static_cast<int>(reference_[0].seq(slot).tokens.size());
    int count = std::min(args[2], known);
    quire_seq handle = 0;
    quire_status status =
        api_.seq_fork(cache_, seqs_[slot], static_cast<uint32_t>(count), &handle, &error_);
    int index = next_index();
    bool forked = on_reference([=](Reference &r) { return r.fork(slot, child, count, index); });
    if (!forked) free_indices_.push_back(index);
    if (!agree(status, forked)) return;
    seqs_[child] = handle;
    indices_[child] = index;
    ++tally_->forks;
}

// Accepts a path down the tree of the last item's drafts; some choices spoil its end.
void Player::accept_path(int slot, int choice) {
    const Seq &s = reference_[0].seq(slot);
    std::vector<int> path;
    for (int i = 0; i < s.drafts; ++i) {
        int parent = s.draft_parents[static_cast<size_t>(i)];
        bool follows = parent == (path.empty() ? -1 : path.back());
        if (follows && (choice >> (i % 4) & 1) == 0) path.push_back(i);
    }
    if (choice % 7 == 3 && !path.empty()) path.back() += 1;
    if (choice % 9 == 4) path.push_back(path.empty() ? 0 : path.back());
    std::vector<uint32_t> given(path.begin(), path.end());
    published_ = true;
    quire_status status = api_.seq_accept_path(cache_, seqs_[slot], given.data(),
                                               static_cast<uint32_t>(given.size()), &error_);
    bool did = on_reference([=](Reference &r) { return r.accept_path(slot, path); });
    if (agree(status, did)) tally_->moves += reference_[0].seq(slot).moves.size();
}

void Player::set_tokens(const std::vector<int> &args) {
    int slot = args[0];
    if (seqs_[slot] == 0) return;
    const Seq &s = reference_[0].seq(slot);
    auto first = std::find(s.tokens.begin(), s.tokens.end(), kUnknown);
    if (first == s.tokens.end()) return;
    int position = static_cast<int>(first - s.tokens.begin());
    int count = 0;
    while (count < args[1] && first + count != s.tokens.end() && first[count] == kUnknown) ++count;
    std::vector<uint32_t> named;
    for (int i = 0; i < count; ++i) named.push_back(token_of(args[2], position + i));
    quire_token_span span{seqs_[slot], static_cast<uint32_t>(position), 0,
                          static_cast<uint32_t>(count), 0};
    quire_status status = api_.seq_set_tokens(cache_, &span, 1, sizeof span, named.data(),
                                              static_cast<uint32_t>(count), &error_);
    published_ = true;
    agree(status, on_reference([=](Reference &r) { return r.set_tokens(slot, position, named); }));
}

void Player::probe(const std::vector<int> &args) {
    int slot = args[0];
    if (seqs_[slot] == 0) return;
    std::vector<uint32_t> more = tokens(slot, args[1], args[2]);
    uint32_t hits = 0;
    quire_status status = api_.prefix_probe(cache_, seqs_[slot], more.data(),
                                            static_cast<uint32_t>(more.size()), &hits, &error_);
    if (agree(status, true)) expect("probe", hits, reference_[0].probe(slot, more));
}

void Player::perform_in_step(const Op &op) {
    if (step_ == 0) return;
    // The result of publishing by set and accept depends on the step's contents, so undoing it by
    // going back would give another result.
    if (op.name == "abort" && !published_) {
        if (!agree(api_.step_abort(cache_, step_, &error_), true)) return;
        if (!at_begin_.empty()) {
            ++tally_->aborts_compared;
            std::string wrong =
                test::difference(at_begin_, test::undone_state(test::whole_state(api_, cache_)));
            if (!wrong.empty()) differ("an abort left another state\n" + wrong);
        }
        reference_[0].abort();
        step_ = 0;
        for (const Event &event : events_) {
            if (!event.is_item) event.operation(reference_[0]);
        }
    } else if (op.name == "commit" || op.name == "abort") {
        if (!agree(api_.step_commit(cache_, step_, nullptr, &error_), true)) return;
        committed_[reference_[0].step().number] = step_;
        if (followed_ != nullptr) {
            expect_followed(followed_->commit(cache_, step_, static_cast<uint64_t>(queue_)));
            for (quire_seq seq : seqs_) {
                if (seq != 0) expect_followed(followed_->compare(cache_, seq));
            }
        }
        reference_[0].commit();
        step_ = 0;
    } else if (op.name == "preempt" && seqs_[op.args[0]] != 0) {
        uint32_t freed = 0;
        quire_status status = api_.step_preempt(cache_, step_, seqs_[op.args[0]],
                                                static_cast<uint32_t>(op.args[1]), &freed, &error_);
        int wanted = reference_[0].preempt(op.args[0], op.args[1]);
        if (agree(status, wanted >= 0)) expect("preempt", status == QUIRE_S_NO_BLOCKS, wanted == 0);
        preempted_ = true;
        ++tally_->preemptions;
    }
}

void Player::perform(const Op &op) {
    const std::vector<int> &a = op.args;
    static const std::set<std::string> of_the_step = {"begin",  "add",     "drop", "abort",
                                                      "commit", "preempt", "probe"};
    if (of_the_step.count(op.name) == 0) at_begin_.clear();  // what else is done stays
    if (op.name == "config") return configure(a);
    if (op.name == "create") return create(a);
    if (op.name == "add") return add(a);
    if (op.name == "drop") return drop(a[0]);
    if (op.name == "finish") return finish(a[0], a[1] != 0);
    if (op.name == "fork") return fork(a);
    if (op.name == "set") return set_tokens(a);
    if (op.name == "probe") return probe(a);
    if (op.name == "migrate") return migrate(a[0], a[1]);
    if (op.name == "abort" || op.name == "commit" || op.name == "preempt")
        return perform_in_step(op);
    if (op.name == "begin") {
        auto desc = described<quire_step_desc>();
        desc.queue_tag = static_cast<uint64_t>(a[0]);
        desc.flags = a[1] != 0 ? uint32_t{QUIRE_STEP_MAY_PREEMPT} : 0u;
        desc.preempt = static_cast<uint32_t>(a[2]);
        quire_step step = 0;
        // The dump takes time: one step in sixteen.
        const bool looks = step_ == 0 && ++begins_ % 16 == 3;
        std::string before = looks ? test::undone_state(test::whole_state(api_, cache_)) : "";
        quire_status status = api_.step_begin(cache_, &desc, nullptr, 0, sizeof(quire_step_item),
                                              nullptr, 0, nullptr, 0, &step, &error_);
        if (!agree(status, reference_[0].begin(a[0], a[1] != 0, a[2]))) return;
        step_ = step;
        at_begin_ = before;
        queue_ = a[0], may_preempt_ = a[1] != 0, how_ = a[2], preempted_ = published_ = false;
        events_.clear();
    } else if (op.name == "reset") {
        if (!agree(api_.cache_reset(cache_, &error_), !reference_[0].open())) return;
        reference_[0].reset();
    } else if (seqs_[a[0]] != 0) {
        int slot = a[0];
        if (op.name == "end") {
            const Seq &s = reference_[0].seq(slot);
            bool may = !s.in_step && !s.gave_up;
            bool drop =
                a[1] != 0 && step_ == 0;  // who else uses a block depends on the step's fate
            uint32_t flags = drop ? uint32_t{QUIRE_END_DROP_PREFIX} : 0u;
            if (!agree(api_.seq_end(cache_, seqs_[slot], flags, &error_), may)) return;
            on_reference([=](Reference &r) { return r.end(slot, drop), true; });
            seqs_[slot] = 0;
            free_indices_.push_back(indices_[slot]);
        } else if (op.name == "truncate") {
            agree(api_.seq_truncate(cache_, seqs_[slot], static_cast<uint32_t>(a[1]), &error_),
                  on_reference([=, n = a[1]](Reference &r) { return r.truncate(slot, n); }));
        } else if (op.name == "path") {
            accept_path(slot, a[1]);
        } else if (op.name == "accept") {
            published_ = true;
            agree(api_.seq_accept(cache_, seqs_[slot], static_cast<uint32_t>(a[1]), &error_),
                  on_reference([=, n = a[1]](Reference &r) { return r.accept(slot, n); }));
        }
    }
}

void Player::compare_sequence(int slot, std::vector<std::map<int, int>> *names) {
    const Seq &s = reference_[0].seq(slot);
    auto info = described<quire_seq_info>();
    if (api_.seq_get_info(cache_, seqs_[slot], &info, &error_) < 0) return differ(error_.message);
    expect("known", info.known_tokens, static_cast<int64_t>(s.tokens.size()));
    expect("computed", info.computed_tokens, s.computed);
    expect("drafts", info.draft_tokens, s.drafts);
    expect("lookahead", info.lookahead_tokens, s.lookahead);
    expect("swapped", (info.flags & QUIRE_SEQ_SWAPPED) != 0, s.swapped);
    expect("lost", (info.flags & QUIRE_SEQ_LOST) != 0, s.lost);
    expect("preempted", (info.flags & QUIRE_SEQ_PREEMPTED) != 0, s.preempted);
    expect("unpublished", (info.flags & QUIRE_SEQ_UNPUBLISHED) != 0, s.unpublished);
    for (size_t g = 0; g < s.tables.size() && !s.swapped; ++g) {
        int32_t ids[128];
        uint32_t count = 0;
        if (api_.step_blocks(cache_, 0, seqs_[slot], static_cast<uint32_t>(g), 0, ids, 128, &count,
                             &error_) != QUIRE_OK) {
            return differ("step_blocks failed");
        }
        expect("table length", count, static_cast<int64_t>(s.tables[g].size()));
        for (uint32_t i = 0; i < count && difference_.empty(); ++i) {
            int wanted = s.tables[g][i];
            expect("null block", ids[i] == 0, wanted < 0);
            if (wanted < 0) continue;
            auto [it, fresh] = (*names)[g].emplace(wanted, ids[i]);
            if (!fresh) expect("shared block", ids[i], it->second);
        }
    }
}

void Player::compare() {
    const Reference &reference = reference_[0];
    if (api_.cache_check(cache_, &error_) < 0) return differ(error_.message);
    auto stats = described<quire_cache_stats>();
    api_.cache_get_stats(cache_, &stats, &error_);
    std::vector<std::map<int, int>> names(8);
    int64_t held = 0, free = 0, cached = 0;
    uint32_t groups = 0;
    auto info = described<quire_cache_info>();
    api_.cache_get_info(cache_, &info, &error_);
    for (; groups < info.group_count; ++groups) {
        held += reference.count_held(static_cast<int>(groups));
        free += reference.count_free(static_cast<int>(groups));
        cached += reference.count_cached(static_cast<int>(groups));
    }
    expect("blocks held", static_cast<int64_t>(stats.blocks_held), held);
    expect("blocks free", static_cast<int64_t>(stats.blocks_free), free);
    expect("blocks cached", static_cast<int64_t>(stats.blocks_cached), cached);
    expect("host blocks", static_cast<int64_t>(stats.host_blocks_used), reference.host_used());
    for (int slot = 0; slot < kSlots && difference_.empty(); ++slot) {
        if (seqs_[slot] != 0) compare_sequence(slot, &names);
    }
    // Different blocks of the reference must be different blocks of the library.
    for (const auto &group : names) {
        std::map<int, int> back;
        for (auto [wanted, id] : group) {
            if (!back.emplace(id, wanted).second) differ("two blocks became one");
        }
    }
    tally_->evictions = std::max<uint64_t>(tally_->evictions, stats.evictions);
    tally_->swaps_in = std::max<uint64_t>(tally_->swaps_in, stats.blocks_swapped_in);
    tally_->lost = std::max<uint64_t>(tally_->lost, stats.sequences_lost);
}

std::string play(const quire_api &api, const Script &script, Tally *tally) {
    Player player(api, tally);
    for (size_t i = 0; i < script.size(); ++i) {
        std::string difference = player.run(script[i]);
        if (!difference.empty()) {
            return "op " + std::to_string(i) + " (" + script[i].text() + "): " + difference;
        }
    }
    return {};
}

}  // namespace quire::model
