// SPDX-License-Identifier: Apache-2.0
//
// The attention output of a token depends on the tokens before it and on nothing else: not on what
// else is in the batch, what was found in the cache, how a prompt was split, who was preempted and
// how, what was forked, drafted and accepted, what left as a session and came back, or to which
// devices and pools the cache migrated.
// Random schedules; every token's output is compared bit for bit with that of its text alone,
// computed in one go in a cache of its own.

#include <algorithm>
#include <random>

#include "schedule_cache.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

GroupOptions group(uint32_t kind, uint32_t k_dim = 16, uint32_t v_dim = 16) {
    GroupOptions out;
    out.group = described<quire_group_desc>();
    out.group.kind = kind;
    out.group.layer_count = 1;
    out.group.kv_heads = kind == QUIRE_GROUP_LATENT ? 1 : 2;
    out.group.k_head_dim = k_dim;
    out.group.v_head_dim = v_dim;
    out.group.k_dtype = QUIRE_DTYPE_F32;
    out.attention = described<quire_attention_desc>();
    out.attention.q_heads = kQueryHeads;
    out.attention.scale = 0.3f;
    return out;
}

GroupOptions windowed(uint32_t kind, uint32_t window, uint32_t sinks) {
    GroupOptions out = group(kind);
    out.group.window = window;
    out.group.sink_tokens = sinks;
    return out;
}

GroupOptions turned(GroupOptions options, uint32_t pairing, uint32_t rotated_dim) {
    options.rope = described<quire_rope_desc>();
    options.rope.pairing = pairing;
    options.rope.rotated_dim = rotated_dim;
    options.has_rope = true;
    return options;
}

// Every token has scales of its own.
GroupOptions coded(GroupOptions options, uint32_t dtype) {
    options.group.k_dtype = dtype;
    options.group.k_scale = QUIRE_SCALE_TOKEN_HEAD;
    return options;
}

std::vector<ScheduleShape> shapes() {
    GroupOptions half = turned(group(QUIRE_GROUP_FULL, 24, 8), QUIRE_ROPE_HALVES, 16);
    half.group.k_dtype = QUIRE_DTYPE_F16;
    GroupOptions capped = windowed(QUIRE_GROUP_WINDOW, 11, 6);
    capped.attention.soft_cap = 2.0f;
    GroupOptions sloped = windowed(QUIRE_GROUP_CHUNKED, 20, 0);
    sloped.slopes = {0.5f, 0.25f, 0.1f, 0.0f};
    GroupOptions sunk = turned(group(QUIRE_GROUP_FULL), QUIRE_ROPE_PAIRS, 0);
    sunk.attention.flags |= QUIRE_ATTENTION_SINK_LOGITS;
    GroupOptions latent = turned(group(QUIRE_GROUP_LATENT, 24, 16), QUIRE_ROPE_PAIRS, 8);
    latent.group.k_dtype = QUIRE_DTYPE_BF16;
    GroupOptions bytes = coded(group(QUIRE_GROUP_FULL), QUIRE_DTYPE_I8);
    GroupOptions halves = coded(capped, QUIRE_DTYPE_I4);
    GroupOptions latent_codes = coded(latent, QUIRE_DTYPE_F8_E4M3FN);
    std::vector<ScheduleShape> out = {
        {"full, and a window with sinks and a soft cap", {group(QUIRE_GROUP_FULL), capped}},
        {"chunked with ALiBi", {sloped}},
        {"f16 with rope, and latent", {half, latent}},
        {"sink logits and rope, with trees", {sunk, capped}, true},
        {"full and cross", {group(QUIRE_GROUP_FULL), group(QUIRE_GROUP_CROSS)}},
        {"latent with trees", {latent}, true},
        {"int8, and f32 unquantised", {bytes, group(QUIRE_GROUP_FULL)}},
        {"int8 and int4 with trees", {bytes, halves}, true},
        {"latent fp8 with trees", {latent_codes}, true},
    };
    for (ScheduleShape &shape : out) {
        for (GroupOptions &options : shape.groups) {
            if (shape.masks) options.attention.flags |= QUIRE_ATTENTION_MASK;
        }
    }
    return out;
}

struct Text {
    quire_seq seq = 0;
    uint32_t content = 0;
    uint32_t length = 0;  // known tokens
    uint32_t cross = 0;
    std::vector<uint32_t> accepted;  // indices of drafts that belong to the content
    bool drafted = false;
};

// Contents have common beginnings, as conversations do.
uint32_t token_of(uint32_t content, uint32_t position) {
    return position < 7 + 9 * content ? position % 13 : 100 * (content + 1) + position % 17;
}

class Schedule {
 public:
    Schedule(const ScheduleShape &shape, uint64_t seed)
        : shape_(shape), dice_(seed), cache_(shape, 40, 60'000, 1 + below(2)) {}

    // Plays the schedule and compares every computed token.
    void play() {
        for (int step = 0; step < 24 && !testing::Test::HasFailure(); ++step) {
            change();
            if (below(8) == 0) migrations += cache_.migrate(24 + below(32), 1 + below(2));
            run_step();
        }
        for (Text &text : texts_) {
            cache_.must(cache_.api.seq_end(cache_.cache, text.seq, 0, &cache_.error));
        }
        auto stats = described<quire_cache_stats>();
        cache_.must(cache_.api.cache_get_stats(cache_.cache, &stats, &cache_.error));
        hits += stats.prefix_cache_hits;
        preemptions += stats.num_preemptions;
    }
    static inline uint64_t compared = 0, hits = 0, preemptions = 0, moved = 0, forks = 0,
                           migrations = 0, travels = 0;

 private:
    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(dice_() % limit); }

    void accept(Text *text) {
        if (!text->drafted) return;
        text->drafted = false;
        cache_.must(cache_.api.seq_accept_path(cache_.cache, text->seq, text->accepted.data(),
                                               static_cast<uint32_t>(text->accepted.size()),
                                               &cache_.error));
        for (uint32_t i = 0; i < text->accepted.size(); ++i) {
            if (text->accepted[i] != i) ++moved;
        }
        text->length += static_cast<uint32_t>(text->accepted.size());
    }

    void change() {
        for (Text &text : texts_) accept(&text);
        if (texts_.size() < 5) {
            Text text;
            text.content = below(3);
            text.cross = shape_.has_cross() ? 3 + 4 * text.content : 0;
            text.seq = cache_.create(text.cross);
            texts_.push_back(text);
        }
        Text &text = texts_[below(static_cast<uint32_t>(texts_.size()))];
        bool swapped = (cache_.info(text.seq).flags & QUIRE_SEQ_SWAPPED) != 0;
        uint32_t what = below(8);
        if (what == 0) {
            cache_.must(cache_.api.seq_end(cache_.cache, text.seq, 0, &cache_.error));
            texts_.erase(texts_.begin() + (&text - texts_.data()));
        } else if (what == 1 && !swapped && texts_.size() < 9) {
            Text fork = text;
            fork.length = below(text.length + 1);
            cache_.must(
                cache_.api.seq_fork(cache_.cache, text.seq, fork.length, &fork.seq, &cache_.error));
            texts_.push_back(fork);
            ++forks;
        } else if (what == 2) {
            text.length -= below(text.length / 2 + 1);
            cache_.must(
                cache_.api.seq_truncate(cache_.cache, text.seq, text.length, &cache_.error));
        } else if (what == 3) {
            travel(&text);
        }
    }

    // The text leaves as a session, and comes back as another sequence, if the host tier has room.
    void travel(Text *text) {
        std::vector<uint8_t> bytes;
        auto save = described<quire_export_desc>();
        save.user = &bytes;
        save.write = [](void *user, const void *from, uint64_t size) -> quire_status {
            const auto *first = static_cast<const uint8_t *>(from);
            auto *to = static_cast<std::vector<uint8_t> *>(user);
            to->insert(to->end(), first, first + size);
            return QUIRE_OK;
        };
        cache_.must(cache_.api.seq_export_wait(cache_.cache, text->seq, &save, nullptr, UINT64_MAX,
                                               &cache_.error));
        std::pair<const std::vector<uint8_t> *, uint64_t> at{&bytes, 0};
        auto seq = described<quire_seq_desc>();
        seq.cross_tokens = text->cross;
        auto restore = described<quire_import_desc>();
        restore.seq = &seq;
        restore.user = &at;
        restore.read = [](void *user, void *to, uint64_t size) -> quire_status {
            auto *from = static_cast<decltype(&at)>(user);
            if (size > from->first->size() - from->second) return QUIRE_E_OS;
            if (size != 0) std::memcpy(to, from->first->data() + from->second, size);
            from->second += size;
            return QUIRE_OK;
        };
        quire_seq back = 0;
        const quire_status status =
            cache_.api.seq_import(cache_.cache, &restore, &back, nullptr, &cache_.error);
        cache_.must(status);
        if (status != QUIRE_OK) return;  // no room
        cache_.must(cache_.api.seq_end(cache_.cache, text->seq, 0, &cache_.error));
        cache_.must(cache_.api.cache_check(cache_.cache, &cache_.error));
        text->seq = back;
        ++travels;
    }

    // Drafts of a tree, some of them the content's own: each of these follows the previous one.
    void draft(Text *text, quire_step_item *item, std::vector<uint32_t> *words) {
        std::vector<uint32_t> parents;
        uint32_t own = QUIRE_MASK_ROOT, next = text->length + item->token_count;
        uint32_t count = 1 + below(5);
        text->accepted.clear();
        for (uint32_t i = 0; i < count; ++i) {
            bool right = below(2) == 0;
            words->push_back(right ? token_of(text->content, next) : 9000 + i);
            if (right) {
                parents.push_back(own);
                text->accepted.push_back(own = i);
                ++next;
            } else {
                parents.push_back(i == 0 || below(2) == 0 ? QUIRE_MASK_ROOT : below(i));
            }
        }
        item->draft_count = item->mask_rows = count;
        item->mask_kind = QUIRE_MASK_PARENTS;
        item->mask_offset = static_cast<uint32_t>(words->size());
        item->token_count += count;
        words->insert(words->end(), parents.begin(), parents.end());
    }

    void run_step() {
        quire_step step = cache_.begin();
        if (!texts_.empty() && below(3) == 0) {
            uint32_t freed = 0;
            quire_seq victim = texts_[below(static_cast<uint32_t>(texts_.size()))].seq;
            cache_.must(cache_.api.step_preempt(cache_.cache, step, victim, below(3), &freed,
                                                &cache_.error));
        }
        std::shuffle(texts_.begin(), texts_.end(), dice_);
        std::vector<ScheduledRow> rows;
        std::vector<std::pair<uint32_t, uint32_t>> wanted;  // content and position of each token
        uint32_t tokens = 0;
        for (Text &text : texts_) {
            bool is_long = text.length > kLongest - 10;  // all that it may draft still fits
            if (is_long || below(4) == 0 || tokens > kMostTokens - 120) continue;
            ScheduledRow row;
            quire_step_result result{};
            uint32_t firm = 0;
            if (!add(step, &text, &result, &firm)) continue;
            for (uint32_t i = 0; i < result.compute_count; ++i) {
                uint32_t position = result.first_position + i;
                bool is_draft = position >= firm;
                uint32_t token =
                    is_draft ? drafts_[position - firm] : token_of(text.content, position);
                row.tokens.push_back(token);
                row.positions.push_back(is_draft ? depths_[position - firm] : position);
                // A draft's keys are not in their final places, so they add up in another order.
                wanted.emplace_back(is_draft ? kNobody : text.content, position);
            }
            row.cross_tokens = result.cross_tokens;
            row.cross_content = text.content;
            tokens += result.compute_count;
            rows.push_back(row);
        }
        std::vector<Output> outputs = cache_.run(step, rows);
        for (size_t i = 0; i < outputs.size(); ++i) {
            auto [content, position] = wanted[i];
            if (content == kNobody) continue;
            ASSERT_TRUE(outputs[i] == alone(content)[position])
                << shape_.name << ": content " << content << ", position " << position;
            ++compared;
        }
    }

    // Adds the text's next tokens; false if it has to wait.
    bool add(quire_step step, Text *text, quire_step_result *result, uint32_t *firm) {
        quire_step_item item{};
        item.seq = text->seq;
        uint32_t more = below(4) == 0 ? 1 + below(20) : below(2);
        more = std::min(more, kLongest - 8 - text->length);
        quire_seq_info info = cache_.info(text->seq);
        if (text->length + more == info.computed_tokens) ++more;
        std::vector<uint32_t> words;
        for (uint32_t i = 0; i < more; ++i) {
            words.push_back(token_of(text->content, text->length + i));
        }
        item.token_count = more;
        bool drafts = shape_.masks && below(2) == 0;
        if (drafts) {
            draft(text, &item, &words);
        } else if (below(3) == 0) {
            item.max_compute = 1 + below(9);
        }
        *result = cache_.add(step, item, words);
        if (result->outcome != QUIRE_ITEM_RUN) return false;
        text->length += more;
        text->drafted = drafts;
        *firm = drafts ? text->length : kLongest + 100;
        if (drafts) note_drafts(words, more, item.draft_count, text->length);
        return true;
    }

    void note_drafts(const std::vector<uint32_t> &words, uint32_t first, uint32_t count,
                     uint32_t root) {
        drafts_.assign(words.begin() + first, words.begin() + first + count);
        depths_.clear();
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t parent = words[first + count + i];
            depths_.push_back(parent == QUIRE_MASK_ROOT ? root : depths_[parent] + 1);
        }
    }

    // The outputs of a content's tokens, each of which sees only what comes before it.
    const std::vector<Output> &alone(uint32_t content) {
        static std::map<std::pair<std::string, uint32_t>, std::vector<Output>> known;
        std::vector<Output> &out = known[{shape_.name, content}];
        if (!out.empty()) return out;
        ScheduleCache cache(shape_, 64, 0, 1);
        quire_seq seq = cache.create(shape_.has_cross() ? 3 + 4 * content : 0);
        ScheduledRow row;
        for (uint32_t p = 0; p < kLongest; ++p) {
            row.tokens.push_back(token_of(content, p));
            row.positions.push_back(p);
        }
        quire_step step = cache.begin();
        quire_step_item item{};
        item.seq = seq;
        item.token_count = kLongest;
        row.cross_tokens = cache.add(step, item, row.tokens).cross_tokens;
        row.cross_content = content;
        return out = cache.run(step, {row});
    }

    static constexpr uint32_t kNobody = UINT32_MAX;
    static constexpr uint32_t kLongest = 110;

    ScheduleShape shape_;
    std::mt19937_64 dice_;
    ScheduleCache cache_;
    std::vector<Text> texts_;
    std::vector<uint32_t> drafts_, depths_;  // of the item added last
};

TEST(Schedules, give_every_token_the_bits_that_its_text_alone_gives) {
    uint64_t schedules = 0;
    for (const ScheduleShape &shape : shapes()) {
        for (uint64_t seed : quire::tests::seeds(1, {.all = 170, .usual = 60, .few = 20})) {
            ++schedules;
            Schedule(shape, seed).play();
            ASSERT_FALSE(HasFailure()) << shape.name << ", seed " << seed;
        }
    }
    std::printf(
        "%llu schedules, %llu tokens compared, %llu hit, %llu preemptions, %llu forks, "
        "%llu tokens moved, %llu sessions\n",
        static_cast<unsigned long long>(schedules),
        static_cast<unsigned long long>(Schedule::compared),
        static_cast<unsigned long long>(Schedule::hits),
        static_cast<unsigned long long>(Schedule::preemptions),
        static_cast<unsigned long long>(Schedule::forks),
        static_cast<unsigned long long>(Schedule::moved),
        static_cast<unsigned long long>(Schedule::travels));
    EXPECT_GT(Schedule::compared, 200 * schedules);
    EXPECT_GT(Schedule::hits, schedules);
    EXPECT_GT(Schedule::preemptions, schedules);
    EXPECT_GT(Schedule::moved, schedules / 4);
    EXPECT_GT(Schedule::migrations, schedules);
    EXPECT_GT(Schedule::travels, schedules);
}

}  // namespace
