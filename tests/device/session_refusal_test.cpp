// SPDX-License-Identifier: Apache-2.0
//
// Sessions that are damaged, foreign, too large or interrupted: each is refused in words, nothing
// stays of it, and the cache goes on.

#include <dlfcn.h>

#include <functional>

#include "failing.hpp"
#include "session_rig.hpp"
#include "tests/abi/counting_host.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

const std::vector<Range> kWhole = {{}};
const std::vector<Range> kHeads = {{0, 0, 0, 2}, {0, 0, 2, 2}};

// A cache with a sequence of `length` computed tokens, and its session.
struct Saved {
    explicit Saved(uint32_t length = 9, const KvFormat &format = {}, uint32_t flags = 0)
        : cache(kWhole, 24, nullptr, described<quire_instance_desc>(), flags, format) {
        seq = created(&cache);
        advance(&cache, seq, &known, tokens_from(1, length));
        bytes = exported(&cache, seq);
    }

    ShardedCache cache;
    Tokens known;
    quire_seq seq = 0;
    Bytes bytes;
};

bool says(const ShardedCache &c, const char *words) {
    return std::string(c.error.message).find(words) != std::string::npos;
}

// Expects that the cache is as if nothing had been imported: all of the host tier is free.
void expect_nothing_left(ShardedCache *c) {
    EXPECT_EQ(stats_of(c).host_blocks_used, 0u);
    EXPECT_EQ(c->api.cache_check(c->cache, &c->error), QUIRE_OK) << c->error.message;
}

TEST(SessionRefusal, any_byte_that_differs_is_found) {
    Saved saved(6);
    ShardedCache to(kHeads);
    uint64_t refused = 0;
    for (uint64_t i = 0; i < saved.bytes.size(); ++i) {
        Bytes damaged = saved.bytes;
        damaged[i] ^= static_cast<uint8_t>(1 << i % 8);
        quire_seq seq = 99;
        const quire_status status = try_import(&to, damaged, &seq);
        ASSERT_LT(status, 0) << "byte " << i << " of " << damaged.size();
        ASSERT_EQ(seq, 99u);
        ASSERT_NE(to.error.message[0], 0);
        ++refused;
    }
    EXPECT_GT(refused, 5'000u);
    expect_nothing_left(&to);
    EXPECT_EQ(exported(&to, imported(&to, saved.bytes)), saved.bytes);
}

TEST(SessionRefusal, any_missing_end_is_found) {
    Saved saved(6);
    ShardedCache to(kWhole);
    for (uint64_t size = 0; size < saved.bytes.size(); size += size < 400 ? 1 : 61) {
        quire_seq seq = 99;
        const Bytes cut(saved.bytes.begin(), saved.bytes.begin() + static_cast<int64_t>(size));
        ASSERT_EQ(try_import(&to, cut, &seq), QUIRE_E_OS) << size;  // what the reader said
        ASSERT_TRUE(says(to, "desc.read returned the failure"));
    }
    expect_nothing_left(&to);
}

TEST(SessionRefusal, blocks_in_each_others_places_are_found) {
    Saved saved(16);
    ShardedCache to(kWhole);
    // All blocks of the first group have one size. They begin after the head, whose size is here.
    uint64_t head = 0, first = 0;
    std::memcpy(&head, saved.bytes.data() + 16, sizeof head);
    std::memcpy(&first, saved.bytes.data() + head + 16, sizeof first);
    Bytes swapped = saved.bytes;
    std::swap_ranges(swapped.begin() + static_cast<int64_t>(head),
                     swapped.begin() + static_cast<int64_t>(head + first),
                     swapped.begin() + static_cast<int64_t>(head + first));
    quire_seq seq = 0;
    EXPECT_EQ(try_import(&to, swapped, &seq), QUIRE_E_ARG);
    EXPECT_TRUE(says(to, "block 0 of group 0 is another one")) << to.error.message;
    // A block of the same place in another sequence, with other tokens.
    Tokens known;
    const quire_seq other = created(&saved.cache);
    advance(&saved.cache, other, &known, tokens_from(400, 16));
    const Bytes others = exported(&saved.cache, other);
    Bytes mixed = saved.bytes;
    std::copy_n(others.begin() + static_cast<int64_t>(head + first), first,
                mixed.begin() + static_cast<int64_t>(head + first));
    EXPECT_EQ(try_import(&to, mixed, &seq), QUIRE_E_ARG);
    EXPECT_TRUE(says(to, "block 1 of group 0 is another one")) << to.error.message;
    expect_nothing_left(&to);
}

TEST(SessionRefusal, another_models_or_tenants_is_foreign) {
    Saved saved;
    quire_seq seq = 0;
    auto attempt = [&](const std::function<void(quire_import_desc *)> &change, const char *words) {
        SessionStream stream;
        stream.bytes = saved.bytes;
        quire_import_desc desc = import_desc(&stream);
        change(&desc);
        auto &c = saved.cache;
        EXPECT_EQ(c.api.seq_import(c.cache, &desc, &seq, nullptr, &c.error), QUIRE_E_ARG);
        EXPECT_TRUE(says(c, words)) << c.error.message;
        expect_nothing_left(&c);
    };
    attempt([](quire_import_desc *d) { d->fingerprint[31] = 1; }, "fingerprint");
    attempt([](quire_import_desc *d) { d->name_space[0] = 1; }, "name space");
    auto with_keys = described<quire_seq_desc>();
    const char salt[] = "salt";
    quire_key key{QUIRE_KEY_SALT, 4, salt, 0, 0};
    with_keys.keys = &key;
    with_keys.key_count = 1;
    with_keys.key_stride = sizeof key;
    attempt([&](quire_import_desc *d) { d->seq = &with_keys; }, "other keys");
    auto crossed = described<quire_seq_desc>();
    crossed.cross_tokens = 3;
    attempt([&](quire_import_desc *d) { d->seq = &crossed; }, "cross_tokens is 0, not 3");
}

TEST(SessionRefusal, keys_must_be_the_same_and_come_back) {
    ShardedCache c(kWhole);
    const char salt[] = "salt", image[] = "image";
    quire_key keys[] = {{QUIRE_KEY_SALT, 4, salt, 0, 0}, {QUIRE_KEY_MEDIA, 5, image, 2, 5}};
    auto desc = described<quire_seq_desc>();
    desc.keys = keys;
    desc.key_count = 2;
    desc.key_stride = sizeof keys[0];
    quire_seq seq = 0;
    c.must(c.api.seq_create(c.cache, &desc, &seq, &c.error));
    Tokens known;
    advance(&c, seq, &known, tokens_from(1, 9));
    const Bytes bytes = exported(&c, seq);
    auto attempt = [&](const quire_seq_desc &with, quire_status expected) {
        SessionStream stream;
        stream.bytes = bytes;
        quire_import_desc import = import_desc(&stream);
        import.seq = &with;
        quire_seq back = 0;
        EXPECT_EQ(c.api.seq_import(c.cache, &import, &back, nullptr, &c.error), expected)
            << c.error.message;
        if (expected == QUIRE_OK) {
            EXPECT_EQ(exported(&c, back), bytes);
            ended(&c, back);
        }
    };
    attempt(desc, QUIRE_OK);
    for (int change = 0; change < 5; ++change) {
        quire_key others[] = {keys[0], keys[1]};
        auto other = desc;
        other.keys = others;
        if (change == 0) others[0].type = QUIRE_KEY_OTHER;
        if (change == 1) others[1].begin = 1;
        if (change == 2) others[1].bytes = "imagE";
        if (change == 3) others[1].end = 6;
        if (change == 4) other.key_count = 1;
        attempt(other, QUIRE_E_ARG);
    }
    expect_nothing_left(&c);
}

TEST(SessionRefusal, another_caches_is_foreign) {
    Saved saved;
    quire_seq seq = 0;
    {
        ShardedCache codes(kWhole, 24, nullptr, described<quire_instance_desc>(), 0,
                           {QUIRE_DTYPE_I8, QUIRE_SCALE_TOKEN_HEAD, {}, 0.0f});
        EXPECT_EQ(try_import(&codes, saved.bytes, &seq), QUIRE_E_ARG);
        EXPECT_TRUE(says(codes, "k_dtype")) << codes.error.message;
        expect_nothing_left(&codes);
    }
    ShardedCache measuring(kWhole, 24, nullptr, described<quire_instance_desc>(),
                           QUIRE_CACHE_CALIBRATE);
    Tokens known;
    advance(&measuring, created(&measuring), &known, tokens_from(1, 20));
    uint64_t size = 0;
    measuring.api.cache_save_calibration_wait(measuring.cache, nullptr, 0, &size, UINT64_MAX,
                                              &measuring.error);
    Bytes calibration(size);
    measuring.must(measuring.api.cache_save_calibration_wait(
        measuring.cache, calibration.data(), size, &size, UINT64_MAX, &measuring.error));
    const KvFormat one{QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, calibration, 1.5f};
    const KvFormat two{QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, calibration, 2.0f};
    Saved scaled(9, one);
    ShardedCache other(kWhole, 24, nullptr, described<quire_instance_desc>(), 0, two);
    EXPECT_EQ(try_import(&other, scaled.bytes, &seq), QUIRE_E_ARG);
    EXPECT_TRUE(says(other, "static scales")) << other.error.message;
    expect_nothing_left(&other);
}

TEST(SessionRefusal, host_tier_without_room_answers_no_blocks) {
    Saved saved(30);
    auto &c = saved.cache;
    std::vector<quire_seq> back;
    quire_seq seq = 99;
    quire_status status = QUIRE_OK;
    while ((status = try_import(&c, saved.bytes, &seq)) == QUIRE_OK) back.push_back(seq);
    EXPECT_EQ(status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(back.size(), 1u);
    EXPECT_EQ(c.api.cache_check(c.cache, &c.error), QUIRE_OK) << c.error.message;
    ended(&c, back[0]);
    expect_nothing_left(&c);
    EXPECT_EQ(try_import(&c, saved.bytes, &seq), QUIRE_OK);
}

TEST(SessionRefusal, of_callbacks_ends_the_call_and_nothing_else) {
    Saved saved(22);
    auto &c = saved.cache;
    for (quire_status failure : {quire_status{QUIRE_E_LIMIT}, quire_status{QUIRE_E_OS}, -99, 3}) {
        const quire_status expected = failure == -99 || failure == 3 ? QUIRE_E_ARG : failure;
        for (uint32_t call = 1; call <= 3; ++call) {
            SessionStream out;
            out.fails_at = call;
            out.failure = failure;
            quire_export_desc save = export_desc(&out);
            EXPECT_EQ(
                c.api.seq_export_wait(c.cache, saved.seq, &save, nullptr, UINT64_MAX, &c.error),
                expected)
                << call;
            EXPECT_EQ(info_of(&c, saved.seq).flags, 0u);
        }
        for (uint32_t call = 1; call <= 5; ++call) {
            SessionStream in;
            in.bytes = saved.bytes;
            in.fails_at = call;
            in.failure = failure;
            quire_import_desc restore = import_desc(&in);
            quire_seq seq = 99;
            EXPECT_EQ(c.api.seq_import(c.cache, &restore, &seq, nullptr, &c.error), expected)
                << call;
            EXPECT_EQ(seq, 99u);
            expect_nothing_left(&c);
        }
    }
    advance(&c, saved.seq, &saved.known, {1, 2});
}

TEST(SessionRefusal, of_callbacks_that_throw_ends_the_call_and_nothing_else) {
    Saved saved(22);
    auto &c = saved.cache;
    quire_export_desc save = export_desc(nullptr);
    save.write = [](void *, const void *, uint64_t) -> quire_status { throw 7; };
    EXPECT_EQ(c.api.seq_export_wait(c.cache, saved.seq, &save, nullptr, UINT64_MAX, &c.error),
              QUIRE_E_ARG);
    quire_import_desc restore = import_desc(nullptr);
    restore.read = [](void *, void *, uint64_t) -> quire_status { throw 7; };
    quire_seq seq = 0;
    EXPECT_EQ(c.api.seq_import(c.cache, &restore, &seq, nullptr, &c.error), QUIRE_E_ARG);
    expect_nothing_left(&c);
    advance(&c, saved.seq, &saved.known, {1, 2});
}

// What other threads may do meanwhile; here the callback does it.
struct Meanwhile {
    Saved *saved;
    std::function<void()> body;

    static quire_status write(void *user, const void *, uint64_t) {
        static_cast<Meanwhile *>(user)->body();
        return QUIRE_OK;
    }
};

TEST(SessionMeanwhile, the_sequence_is_lent_and_everything_else_goes_on) {
    Saved saved(22);
    auto &c = saved.cache;
    Tokens others;
    const quire_seq other = created(&c);
    uint32_t calls = 0;
    Meanwhile meanwhile{
        &saved, [&] {
            ++calls;
            quire_seq fork = 0;
            Bytes bytes;
            EXPECT_EQ(c.api.seq_end(c.cache, saved.seq, 0, &c.error), QUIRE_E_BUSY);
            EXPECT_TRUE(says(c, "being exported"));
            EXPECT_EQ(c.api.seq_fork(c.cache, saved.seq, 3, &fork, &c.error), QUIRE_E_BUSY);
            EXPECT_EQ(c.api.seq_truncate(c.cache, saved.seq, 3, &c.error), QUIRE_E_BUSY);
            EXPECT_EQ(try_export(&c, saved.seq, &bytes), QUIRE_E_BUSY);
            EXPECT_EQ(info_of(&c, saved.seq).flags, 0u);
            EXPECT_EQ(c.api.cache_destroy(c.cache, &c.error), QUIRE_E_BUSY);
            quire_step_item item{};
            item.seq = saved.seq;
            item.token_count = 1;
            quire_step_desc desc = c.step_desc();
            quire_step_result result{};
            quire_step step = 0;
            quire_token token = 5;
            EXPECT_EQ(c.api.step_begin(c.cache, &desc, &item, 1, sizeof item, &token, 1, &result,
                                       sizeof result, &step, &c.error),
                      QUIRE_E_BUSY);
            EXPECT_TRUE(says(c, "being exported"));
            advance(&c, other, &others, tokens_from(300 + calls, 3));
            c.must(c.api.cache_check(c.cache, &c.error));
        }};
    quire_export_desc save = export_desc(nullptr);
    save.write = Meanwhile::write;
    save.user = &meanwhile;
    EXPECT_EQ(c.api.seq_export_wait(c.cache, saved.seq, &save, nullptr, UINT64_MAX, &c.error),
              QUIRE_OK)
        << c.error.message;
    EXPECT_EQ(calls, 4u) << "the head, and a piece of each group";
    EXPECT_EQ(exported(&c, saved.seq), saved.bytes);
    advance(&c, saved.seq, &saved.known, {1, 2});
}

TEST(SessionMeanwhile, the_sequence_is_no_victim_and_the_cache_does_not_move) {
    Saved saved(40);
    auto &c = saved.cache;
    Tokens others;
    const quire_seq other = created(&c);
    Meanwhile meanwhile{
        &saved, [&] {
            quire_step_desc desc = c.step_desc();
            desc.flags = QUIRE_STEP_MAY_PREEMPT;
            quire_step_item item{};
            item.seq = other;
            item.token_count = 60;
            const Tokens tokens = tokens_from(700, 60);
            quire_step_result result{};
            quire_step step = 0;
            uint32_t freed = 0;
            c.must(c.api.step_begin(c.cache, &desc, &item, 1, sizeof item, tokens.data(), 60,
                                    &result, sizeof result, &step, &c.error));
            EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
            EXPECT_EQ(c.api.step_preempt(c.cache, step, saved.seq, QUIRE_PREEMPT_RECOMPUTE, &freed,
                                         &c.error),
                      QUIRE_E_BUSY);
            c.must(c.api.step_abort(c.cache, step, &c.error));
            auto move = described<quire_migrate_desc>();
            auto shard = described<quire_shard_desc>();
            shard.device = c.devices[0];
            move.shards = &shard;
            move.shard_count = 1;
            move.shard_stride = sizeof shard;
            auto info = described<quire_migrate_info>();
            EXPECT_EQ(c.api.cache_migrate(c.cache, &move, &info, &c.error), QUIRE_E_BUSY);
            EXPECT_TRUE(says(c, "being exported or imported"));
        }};
    quire_export_desc save = export_desc(nullptr);
    save.write = Meanwhile::write;
    save.user = &meanwhile;
    EXPECT_EQ(c.api.seq_export_wait(c.cache, saved.seq, &save, nullptr, UINT64_MAX, &c.error),
              QUIRE_OK)
        << c.error.message;
    EXPECT_EQ(exported(&c, saved.seq), saved.bytes);
}

TEST(SessionMeanwhile, a_sequence_in_a_step_or_with_drafts_is_busy) {
    Saved saved(9);
    auto &c = saved.cache;
    Bytes bytes;
    Advance drafting;
    drafting.draft_count = 2;
    advance(&c, saved.seq, &saved.known, {1, 2, 3}, nullptr, drafting);
    EXPECT_EQ(try_export(&c, saved.seq, &bytes), QUIRE_E_BUSY);
    EXPECT_TRUE(says(c, "drafts")) << c.error.message;
    c.must(c.api.seq_accept(c.cache, saved.seq, 1, &c.error));
    EXPECT_EQ(try_export(&c, saved.seq, &bytes), QUIRE_OK) << c.error.message;

    quire_step_item item{};
    item.seq = saved.seq;
    item.token_count = 1;
    quire_step_desc desc = c.step_desc();
    quire_step_result result{};
    quire_step step = 0;
    quire_token token = 5;
    c.must(c.api.step_begin(c.cache, &desc, &item, 1, sizeof item, &token, 1, &result,
                            sizeof result, &step, &c.error));
    EXPECT_EQ(try_export(&c, saved.seq, &bytes), QUIRE_E_BUSY);
    c.must(c.api.step_commit(c.cache, step, c.batch, &c.error));
    EXPECT_EQ(try_export(&c, saved.seq, &bytes), QUIRE_E_BUSY);
    EXPECT_TRUE(says(c, "finish")) << c.error.message;
    c.must(c.api.step_finish(c.cache, step, nullptr, QUIRE_STEP_FAILED, &c.error));
    EXPECT_EQ(try_export(&c, saved.seq, &bytes), QUIRE_OK) << c.error.message;
    EXPECT_EQ(try_export(&c, saved.seq + 1, &bytes), QUIRE_E_STALE);
}

TEST(SessionRefusal, caches_that_cannot_are_told_so) {
    Saved saved(9);
    quire_seq seq = 0;
    Bytes bytes;
    saved.cache.must(saved.cache.api.cache_reset(saved.cache.cache, &saved.cache.error));
    EXPECT_EQ(try_export(&saved.cache, saved.seq, &bytes), QUIRE_E_UNSUPPORTED);
    EXPECT_TRUE(says(saved.cache, "UNPUBLISHED")) << saved.cache.error.message;
    ShardedCache leader(kWhole, 24, nullptr, described<quire_instance_desc>(), QUIRE_CACHE_LOG);
    EXPECT_EQ(try_export(&leader, created(&leader), &bytes), QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(try_import(&leader, saved.bytes, &seq), QUIRE_E_UNSUPPORTED);
    EXPECT_TRUE(says(leader, "followers")) << leader.error.message;
    ShardedCache follower(kWhole, 24, nullptr, described<quire_instance_desc>(),
                          QUIRE_CACHE_FOLLOWER);
    EXPECT_EQ(try_import(&follower, saved.bytes, &seq), QUIRE_E_UNSUPPORTED);
}

TEST(SessionRefusal, missing_arguments_are_named) {
    Saved saved(9);
    auto &c = saved.cache;
    quire_seq seq = 0;
    SessionStream stream;
    quire_export_desc save = export_desc(&stream), no_write = export_desc(nullptr);
    quire_import_desc restore = import_desc(&stream), no_read = import_desc(nullptr);
    const auto forever = UINT64_MAX;
    auto *e = &c.error;
    EXPECT_EQ(c.api.seq_export_wait(nullptr, saved.seq, &save, nullptr, forever, e), QUIRE_E_ARG);
    EXPECT_EQ(c.api.seq_export_wait(c.cache, saved.seq, nullptr, nullptr, forever, e), QUIRE_E_ARG);
    EXPECT_EQ(c.api.seq_export_wait(c.cache, saved.seq, &no_write, nullptr, forever, e),
              QUIRE_E_ARG);
    EXPECT_TRUE(says(c, "desc.write is NULL"));
    EXPECT_EQ(c.api.seq_save_wait(c.cache, saved.seq, &save, "/tmp/x", nullptr, forever, e),
              QUIRE_E_ARG);
    EXPECT_TRUE(says(c, "desc.write must be NULL"));
    EXPECT_EQ(c.api.seq_save_wait(c.cache, saved.seq, &no_write, nullptr, nullptr, forever, e),
              QUIRE_E_ARG);
    EXPECT_EQ(c.api.seq_import(nullptr, &restore, &seq, nullptr, e), QUIRE_E_ARG);
    EXPECT_EQ(c.api.seq_import(c.cache, nullptr, &seq, nullptr, e), QUIRE_E_ARG);
    EXPECT_EQ(c.api.seq_import(c.cache, &restore, nullptr, nullptr, e), QUIRE_E_ARG);
    EXPECT_EQ(c.api.seq_import(c.cache, &no_read, &seq, nullptr, e), QUIRE_E_ARG);
    EXPECT_EQ(c.api.seq_restore(c.cache, &restore, "/tmp/x", &seq, nullptr, e), QUIRE_E_ARG);
    save.flags = 1;
    EXPECT_EQ(c.api.seq_export_wait(c.cache, saved.seq, &save, nullptr, forever, e),
              QUIRE_E_STRUCT);
    auto short_info = described<quire_session_info>();
    short_info.struct_size = 8;
    save.flags = 0;
    EXPECT_EQ(c.api.seq_export_wait(c.cache, saved.seq, &save, &short_info, forever, e),
              QUIRE_E_STRUCT);
}

// On a device whose n-th call fails, for every n.
TEST(SessionFaults, of_the_device_end_the_export_and_nothing_else) {
    const std::string path = quire::tests::place(QUIRE_FAILING);
    void *module = dlopen(path.c_str(), RTLD_NOW);
    ASSERT_NE(module, nullptr) << dlerror();
    auto plant = reinterpret_cast<decltype(&quire_failing_plant_call)>(
        dlsym(module, "quire_failing_plant_call"));
    ASSERT_NE(plant, nullptr);
    ShardedCache c(kHeads, 24, path.c_str());
    Tokens known;
    const quire_seq seq = created(&c);
    advance(&c, seq, &known, tokens_from(1, 22));
    c.sync();
    const Bytes bytes = exported(&c, seq);
    uint32_t failed = 0;
    for (uint32_t call = 1; call < 200; ++call) {
        plant(call);
        Bytes out;
        const quire_status status = try_export(&c, seq, &out);
        if (plant(0) != 0) {
            EXPECT_EQ(status, QUIRE_OK);
            EXPECT_EQ(out, bytes);
            break;
        }
        EXPECT_LT(status, 0);
        ++failed;
        EXPECT_EQ(info_of(&c, seq).flags & ~uint32_t{QUIRE_SEQ_LOST}, 0u);
        c.must(c.api.cache_check(c.cache, &c.error));
    }
    EXPECT_GT(failed, 10u);
}

}  // namespace
