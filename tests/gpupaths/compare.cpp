// SPDX-License-Identifier: Apache-2.0
//
// compare: what can be observed, against the account.

#include <algorithm>

#include "world.hpp"

namespace gpupaths {

quire_seq_info World::info(const Text &text) {
    auto got = described<quire_seq_info>();
    quire_status status = q_.seq_get_info(stage_->cache, text.seq, &got, &error_);
    if (status < 0) fail("books-need-no-device", "seq_get_info: %d, %s", status, error_.message);
    return got;
}

// Takes over `computed`, which is `bound`, or less unless it is exact.
void World::adopt_info(Text *text, uint32_t bound, bool is_exact, const char *after) {
    quire_seq_info got = info(*text);
    if (got.known_tokens != text->cells.size()) {
        bool are_drafts_lost = !is_exact && got.known_tokens == text->tokens.size();
        if (!are_drafts_lost) {
            fail("known", "after %s text %u knows %u tokens, not %zu", after, text->id,
                 got.known_tokens, text->cells.size());
        }
        text->drafts.clear();
        text->cells.resize(text->tokens.size());
        bound = std::min(bound, got.known_tokens);
    }
    bool is_right = is_exact ? got.computed_tokens == bound : got.computed_tokens <= bound;
    if (!is_right) {
        fail(got.computed_tokens > bound ? "computed-high" : "computed-low",
             "after %s text %u has %u computed tokens, not %u", after, text->id,
             got.computed_tokens, bound);
    }
    text->computed = got.computed_tokens;
    text->swapped = (got.flags & QUIRE_SEQ_SWAPPED) != 0;
    if (text->unmoved >= text->computed) text->unmoved = UINT32_MAX;
}

void World::compare_infos(const char *after) {
    for (Text &text : texts_) {
        bool may_fall = is_loose_ && text.touched >= shaken_from_;
        adopt_info(&text, text.computed, !may_fall, after);
    }
}

// Compares what the finished steps saw, whose work has run, and frees their slots.
void World::compare_seen() {
    while (!steps_.empty() && steps_.front().is_finished) {
        const Step &step = steps_.front();
        if (!step.is_dead) {
            stage_->compare_seen(step.slot, step.rows, step.tables);
            tally_->seen += step.rows.size();
        }
        steps_.pop_front();
    }
}

// Compares every computed place of every sequence. REQUIRES: nothing runs.
void World::compare_pools(const char *after) {
    char where[96];
    const Shape &shape = stage_->shape;
    uint32_t wanted_most = kMostText / shape.block_tokens + 2;
    for (uint32_t s = 0; s < stage_->shards.size(); ++s) {
        for (uint32_t g = 0; g < shape.groups.size(); ++g) {
            const quire_pool_info &pool = stage_->shards[s].pools[g];
            if (pool.layer_count == 0) continue;
            const unsigned char *bytes = stage_->read_pool(s, g);
            if (bytes == nullptr) {
                if (is_shaken()) return;
                fail("works-without-faults", "a pool cannot be read: %s", stage_->error.message);
            }
            for (const Text &text : texts_) {
                if (text.swapped) continue;
                std::vector<int32_t> ids(wanted_most);
                uint32_t count = 0;
                quire_status status = q_.step_blocks(stage_->cache, 0, text.seq, g, 0, ids.data(),
                                                     wanted_most, &count, &error_);
                if (status < 0) fail("books-need-no-device", "step_blocks: %s", error_.message);
                std::snprintf(where, sizeof where, "after %s: text %u on %s", after, text.id,
                              stage_->shards[s].shape.backend.c_str());
                const GroupShape &group = shape.groups[g];
                for (uint32_t place = 0; place < text.computed; ++place) {
                    if (place >= text.unmoved) break;
                    if (place < group.first_seen(text.computed) && place >= group.sinks) continue;
                    uint32_t block = place / shape.block_tokens;
                    if (block >= count || ids[block] == 0) {
                        fail("table", "%s: group %u has no block for place %u", where, g, place);
                    }
                    compare_place(shape, g, pool, bytes + ids[block] * pool.block_stride,
                                  place % shape.block_tokens, text.cells[place], where);
                    ++tally_->compared;
                }
            }
        }
    }
}

// Lets all work end, and demands all blocks back.
void World::drain() {
    trace("drain");
    uint32_t idle = 0;
    accept_drafts();
    while (!texts_.empty()) {
        uint64_t rows = tally_->rows;
        size_t count = texts_.size();
        step(true);
        if (!sync_all()) settle();
        for (size_t i = texts_.size(); i-- > 0;) {
            if (texts_[i].computed == texts_[i].tokens.size()) end(i);
        }
        check_books();
        compare_pools("a step of the end");
        idle = tally_->rows == rows && texts_.size() == count ? idle + 1 : 0;
        if (idle == 4) {
            fail("liveness", "text %u has %u of %zu tokens, and nothing runs any more",
                 texts_[0].id, texts_[0].computed, texts_[0].tokens.size());
        }
    }
    if (!sync_all()) settle();
    notice();
    auto stats = described<quire_cache_stats>();
    if (q_.cache_get_stats(stage_->cache, &stats, &error_) < 0) {
        fail("books-need-no-device", "cache_get_stats: %s", error_.message);
    }
    bool is_back = stats.blocks_held == 0 && stats.host_blocks_used == 0 && stats.sequences == 0 &&
                   stats.blocks_free + stats.blocks_cached == stats.blocks_total;
    if (is_back) return;
    fail("blocks-come-back", "%llu held, %llu in the host tier, %llu free and %llu cached of %llu",
         static_cast<unsigned long long>(stats.blocks_held),
         static_cast<unsigned long long>(stats.host_blocks_used),
         static_cast<unsigned long long>(stats.blocks_free),
         static_cast<unsigned long long>(stats.blocks_cached),
         static_cast<unsigned long long>(stats.blocks_total));
}

}  // namespace gpupaths
