// SPDX-License-Identifier: Apache-2.0
//
// ops: what an engine does beside its steps.

#include <algorithm>
#include <cstdarg>

#include "world.hpp"

namespace gpupaths {

namespace {

constexpr size_t kMostTexts = 7;

}  // namespace

World::World(Library &library, const Options &options, uint64_t seed, Tally *tally)
    : library_(library), options_(options), rng_(mix(seed, 0x9A7)), tally_(tally), q_(*library.q) {
    error_ = described<quire_error>();
    Shape shape = Shape::drawn(options.family, rng_);
    shape.faults = shape.faults && options.has_faults;
    for (Backend &backend : library.backends) backend.repair();
    strikes_settled_ = library.strikes();
    for (Backend &backend : library.backends) backend.dawdle(shape.dawdle_us);
    if (options.traces)
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), shape.text().c_str());
    stage_ = std::make_unique<Stage>(library, shape);
    set_up();
    if (options.defect.empty()) return;
    uint64_t nth = options.defect_nth + rng_.below(4);
    for (Backend &backend : library.backends) {
        backend.plant_defect(options.defect, nth, options.defect_count);
    }
}

void World::trace(const char *format, ...) {
    if (!options_.traces) return;
    va_list arguments;
    va_start(arguments, format);
    std::printf("  %llu: ", static_cast<unsigned long long>(tally_->ops));
    std::vprintf(format, arguments);
    std::printf("\n");
    va_end(arguments);
}

void World::set_up() {
    spaces_.assign(stage_->shape.spaces, 0);
    for (uint32_t i = 1; i < spaces_.size(); ++i) {
        auto desc = described<quire_namespace_desc>();
        quire_status status = q_.namespace_create(stage_->cache, &desc, &spaces_[i], &error_);
        if (status < 0) fail("works-without-faults", "namespace_create: %s", error_.message);
    }
}

quire_namespace World::space_of(uint32_t space) const { return spaces_[space]; }

Text *World::find(uint32_t id) {
    for (Text &text : texts_) {
        if (text.id == id) return &text;
    }
    return nullptr;
}

void World::play() {
    for (uint32_t i = 0; i < options_.ops; ++i) {
        ++tally_->ops;
        act();
        check_books();
        compare_infos("an operation");
        if (ops_to_settle_ != 0 && --ops_to_settle_ == 0) settle();
    }
    settle();
    drain();
    tally_->graphs += stage_->graph_launches;
    tally_->captures += stage_->captures;
    for (Backend &backend : library_.backends) backend.dawdle(0);
    if (!stage_->close()) fail("destroys", "something stays in use: %s", stage_->error.message);
    stage_.reset();
}

void World::act() {
    uint32_t what = rng_.below(100);
    size_t count = texts_.size();
    if (count < 2 || (what < 12 && count < kMostTexts)) return create();
    size_t index = rng_.below(static_cast<uint32_t>(count));
    if (what < 17) return end(index);
    if (what < 24 && count < kMostTexts) return fork(index);
    if (what < 29) return truncate(index);
    if (what < 35) return shut_gate();
    if (what < 38) return migrate();
    if (what < 43) return settle();
    if (what < 49 && stage_->shape.faults) return plant();
    if (what < 50 && stage_->shape.faults && rng_.percent(30)) return lose();
    step(false);
}

void World::create() {
    Text text;
    text.id = next_id_++;
    text.space = rng_.below(static_cast<uint32_t>(spaces_.size()));
    text.document = rng_.below(3);
    auto desc = described<quire_seq_desc>();
    desc.ns = space_of(text.space);
    quire_status status = q_.seq_create(stage_->cache, &desc, &text.seq, &error_);
    if (status < 0) fail("books-need-no-device", "seq_create: %s", error_.message);
    trace("create %u, tenant %u, document %u", text.id, text.space + 1, text.document);
    texts_.push_back(text);
}

void World::end(size_t index) {
    uint32_t flags = rng_.percent(15) ? uint32_t{QUIRE_END_DROP_PREFIX} : 0u;
    trace("end %u", texts_[index].id);
    quire_status status = q_.seq_end(stage_->cache, texts_[index].seq, flags, &error_);
    if (status < 0) fail("books-need-no-device", "seq_end: %d, %s", status, error_.message);
    texts_.erase(texts_.begin() + static_cast<std::ptrdiff_t>(index));
}

void World::fork(size_t index) {
    const Text &parent = texts_[index];
    if (parent.swapped || !parent.drafts.empty()) return;
    Text made = parent;
    auto known = static_cast<uint32_t>(parent.tokens.size());
    uint32_t kept = rng_.below(known + 1);
    if (parent.unmoved != UINT32_MAX) return;
    quire_status status = q_.seq_fork(stage_->cache, parent.seq, kept, &made.seq, &error_);
    if (status == QUIRE_E_LIMIT) return;
    if (status == QUIRE_E_BUSY && is_shaken()) return;
    if (status < 0) fail("books-need-no-device", "seq_fork: %d, %s", status, error_.message);
    made.id = next_id_++;
    made.tokens.resize(kept);
    made.cells.resize(kept);
    made.computed = std::min(made.computed, kept);
    if (rng_.percent(50)) made.document = rng_.below(3);
    trace("fork %u of %u, %u tokens", made.id, parent.id, kept);
    ++tally_->forks;
    texts_.push_back(made);
    // With a window the fork may have less.
    adopt_info(&texts_.back(), made.computed, stage_->shape.groups.size() == 1, "a fork");
}

void World::truncate(size_t index) {
    Text &text = texts_[index];
    if (!text.drafts.empty() || text.tokens.empty()) return;
    auto known = static_cast<uint32_t>(text.tokens.size());
    uint32_t kept = rng_.percent(70) ? known - rng_.below(std::min(known, 6u)) : rng_.below(known);
    quire_status status = q_.seq_truncate(stage_->cache, text.seq, kept, &error_);
    if (status == QUIRE_E_BUSY && is_shaken()) return;
    if (status < 0) fail("books-need-no-device", "seq_truncate: %d, %s", status, error_.message);
    trace("truncate %u to %u of %u", text.id, kept, known);
    text.tokens.resize(kept);
    text.cells.resize(kept);
    text.computed = std::min(text.computed, kept);
    if (text.unmoved >= kept) text.unmoved = UINT32_MAX;
    for (Step &step : steps_) step.rewritten.push_back(text.id);
    bool is_exact = stage_->shape.groups.size() == 1 && !text.swapped;
    adopt_info(&text, text.computed, is_exact, "a truncation");
}

void World::accept_drafts() {
    for (Text &text : texts_) {
        if (text.drafts.empty()) continue;
        std::vector<uint32_t> path;
        uint32_t at = QUIRE_MASK_ROOT;
        auto base = static_cast<uint32_t>(text.tokens.size());
        for (uint32_t i = 0; i < text.drafts.size(); ++i) {
            if (text.parents[i] != at || rng_.percent(40)) continue;
            path.push_back(i);
            at = i;
        }
        quire_status status = q_.seq_accept_path(stage_->cache, text.seq, path.data(),
                                                 static_cast<uint32_t>(path.size()), &error_);
        if (status < 0 && is_shaken()) {
            // A failure that is not in the account yet took the drafts.
            text.drafts.clear();
            text.cells.resize(base);
            text.computed = std::min(text.computed, base);
            continue;
        }
        if (status < 0) fail("books-need-no-device", "accept_path: %s", error_.message);
        std::vector<Cell> cells;
        for (uint32_t i = 0; i < path.size(); ++i) {
            if (path[i] != i && text.unmoved == UINT32_MAX) text.unmoved = base + i;
            tally_->moved += path[i] != i;
            text.tokens.push_back(text.drafts[path[i]]);
            cells.push_back(text.cells[base + path[i]]);
        }
        trace("accept %zu of %zu drafts of %u", path.size(), text.drafts.size(), text.id);
        text.cells.resize(base);
        text.cells.insert(text.cells.end(), cells.begin(), cells.end());
        text.drafts.clear();
        text.computed = static_cast<uint32_t>(text.tokens.size());
        for (Step &step : steps_) step.rewritten.push_back(text.id);
    }
}

void World::plant() {
    auto &shards = stage_->shards;
    Backend &backend = *shards[rng_.below(static_cast<uint32_t>(shards.size()))].backend;
    std::string what = backend.plant(rng_);
    trace("fault on %s: %s", backend.name().c_str(), what.c_str());
    ++tally_->planted;
    if (ops_to_settle_ == 0) ops_to_settle_ = rng_.range(1, 7);
    if (!is_loose_) shaken_from_ = steps_.empty() ? commits_ + 1 : steps_.front().number;
    is_loose_ = true;
}

void World::lose() {
    plant();
    auto &shards = stage_->shards;
    Backend &backend = *shards[rng_.below(static_cast<uint32_t>(shards.size()))].backend;
    trace("%s is lost", backend.name().c_str());
    backend.lose();
}

void World::shut_gate() {
    uint32_t queue = rng_.below(stage_->shape.queues);
    if (!stage_->shut_gate(queue)) return;
    trace("gate of queue %u is shut", queue);
    ++tally_->gates;
}

void World::migrate() {
    finish_all();
    accept_drafts();
    stage_->open_gates();
    if (!sync_all()) return;
    notice();
    if (is_shaken()) return;  // the target's device may be lost already
    std::vector<ShardShape> target = stage_->shape.other_shards(rng_);
    uint32_t flags = rng_.percent(50) ? uint32_t{QUIRE_MIGRATE_COPY_HOST_TIER} : 0u;
    uint32_t of_one = kMostText / stage_->shape.block_tokens + 2;
    uint32_t blocks = rng_.percent(40) ? of_one + rng_.range(2, 2 * of_one) : 0;
    auto info = described<quire_migrate_info>();
    quire_status status = stage_->migrate(target, blocks, flags, &info);
    trace("migrate to %s: %d %s", stage_->shape.text().c_str(), status,
          status < 0 ? stage_->error.message : "");
    if (status != QUIRE_OK) {
        if (status == QUIRE_S_NO_BLOCKS) return;
        error_ = stage_->error;
        bool is_busy = status == QUIRE_E_BUSY || status == QUIRE_S_TIMEOUT;
        if (is_busy && is_shaken()) return;
        may_fail(status, "cache_migrate_wait");
        compare_infos("a migration that failed");
        return;
    }
    ++tally_->migrations;
    steps_.clear();
    compare_infos("a migration");
    compare_pools("a migration");
}

void World::check_books() {
    quire_status status = q_.cache_check(stage_->cache, &error_);
    if (status != QUIRE_OK) fail("cache-check", "%d, %s", status, error_.message);
}

}  // namespace gpupaths
