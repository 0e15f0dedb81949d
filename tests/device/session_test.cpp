// SPDX-License-Identifier: Apache-2.0
//
// Sessions: a sequence that left its cache and came back, to another cache on other devices, goes
// on with the same bits, and nothing is computed again.

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "session_rig.hpp"
#include "traffic.hpp"

namespace {

using namespace quire::test;

const std::vector<Range> kWhole = {{}};
const std::vector<Range> kHeads = {{0, 0, 0, 2}, {0, 0, 2, 2}};
const std::vector<Range> kLayers = {{0, 2, 0, 0}, {2, 4, 0, 0}};
const std::vector<Range> kBoth = {{0, 3, 0, 2}, {0, 3, 2, 2}, {3, 3, 0, 0}};
const std::vector<std::vector<Range>> kSplits = {kWhole, kHeads, kLayers, kBoth};

// A calibration of a cache of f32 that saw some tokens.
Bytes calibration() {
    ShardedCache c(kWhole, 24, nullptr, described<quire_instance_desc>(), QUIRE_CACHE_CALIBRATE);
    Tokens known;
    advance(&c, created(&c), &known, tokens_from(1, 30));
    uint64_t size = 0;
    c.api.cache_save_calibration_wait(c.cache, nullptr, 0, &size, UINT64_MAX, &c.error);
    Bytes bytes(size);
    c.must(c.api.cache_save_calibration_wait(c.cache, bytes.data(), size, &size, UINT64_MAX,
                                             &c.error));
    return bytes;
}

std::vector<KvFormat> formats() {
    const Bytes measured = calibration();
    return {{},
            {QUIRE_DTYPE_F16, QUIRE_SCALE_NONE, {}, 0.0f},
            {QUIRE_DTYPE_I8, QUIRE_SCALE_TOKEN_HEAD, {}, 0.0f},
            {QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, measured, 1.5f},
            {QUIRE_DTYPE_F8_E4M3FN, QUIRE_SCALE_TENSOR, measured, 1.5f},
            {QUIRE_DTYPE_I4, QUIRE_SCALE_TOKEN_HEAD, {}, 0.0f}};
}

std::unique_ptr<ShardedCache> make(const std::vector<Range> &ranges, const KvFormat &format = {},
                                   uint32_t flags = 0) {
    return std::make_unique<ShardedCache>(ranges, 24, nullptr, described<quire_instance_desc>(),
                                          flags, format);
}

// A folder of one test's own.
struct Folder {
    Folder() { EXPECT_NE(mkdtemp(name.data()), nullptr); }
    ~Folder() { std::filesystem::remove_all(name); }
    std::string operator/(const char *entry) const { return name + "/" + entry; }

    std::string name = (std::filesystem::temp_directory_path() / "quire-session-XXXXXX").string();
};

// Lengths around borders of blocks (4), of the window (6), and beyond.
const uint32_t kLengths[] = {1, 3, 4, 5, 7, 8, 9, 16, 22, 23};

TEST(Session, goes_on_in_another_cache_with_the_same_bits) {
    uint32_t lent = 0;
    for (const KvFormat &format : formats()) {
        for (size_t i = 0; i < kSplits.size(); ++i) {
            auto from = make(kSplits[i], format);
            auto to = make(kSplits[(i + 1) % kSplits.size()], format);
            for (uint32_t length : kLengths) {
                SCOPED_TRACE(length);
                Tokens known;
                const quire_seq seq = created(from.get());
                advance(from.get(), seq, &known, tokens_from(length, (length + 1) / 2));
                if (length > 1) {
                    advance(from.get(), seq, &known, tokens_from(length + 50, length / 2));
                }
                const Bytes bytes = exported(from.get(), seq);
                const quire_seq back = imported(to.get(), bytes);
                EXPECT_EQ(info_of(to.get(), back).computed_tokens, length);
                EXPECT_EQ(info_of(to.get(), back).flags, uint32_t{QUIRE_SEQ_SWAPPED});
                Tokens here = known, there = known;
                for (uint32_t step = 0; step < 6; ++step) {
                    const Tokens more = tokens_from(length * 7 + step, 1 + step % 2);
                    uint32_t first = 0;
                    const auto expected = advance(from.get(), seq, &here, more);
                    const auto got = advance(to.get(), back, &there, more, &first);
                    ASSERT_EQ(first, there.size() - more.size()) << "something was computed again";
                    ASSERT_EQ(expected.size(), got.size());
                    ASSERT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)),
                              0)
                        << "step " << step;
                }
                ended(from.get(), seq);
                ended(to.get(), back);
                ++lent;
            }
        }
    }
    EXPECT_EQ(lent, 240u);
}

TEST(Session, has_the_same_bytes_from_any_devices_swapped_or_not_and_again) {
    for (const KvFormat &format : formats()) {
        Bytes first;
        for (const auto &split : kSplits) {
            auto c = make(split, format);
            Tokens known;
            const quire_seq seq = created(c.get());
            advance(c.get(), seq, &known, tokens_from(3, 18));
            const Bytes bytes = exported(c.get(), seq);
            if (first.empty()) first = bytes;
            ASSERT_EQ(bytes, first) << "another split";
            swap_out(c.get(), seq);
            ASSERT_EQ(exported(c.get(), seq), first) << "from the host tier";
            ended(c.get(), seq);
            const quire_seq back = imported(c.get(), first);
            ASSERT_EQ(exported(c.get(), back), first) << "after a round trip";
            ended(c.get(), back);
        }
    }
}

TEST(Session, leaves_the_exported_sequence_as_it_was) {
    auto c = make(kHeads);
    auto still = make(kHeads);
    Tokens known, other;
    const quire_seq seq = created(c.get()), same = created(still.get());
    for (uint32_t step = 0; step < 12; ++step) {
        const Tokens more = tokens_from(step, 1 + step % 4);
        EXPECT_EQ(advance(c.get(), seq, &known, more), advance(still.get(), same, &other, more));
        const uint32_t before = info_of(c.get(), seq).blocks_held;
        exported(c.get(), seq);
        EXPECT_EQ(info_of(c.get(), seq).blocks_held, before);
        EXPECT_EQ(info_of(c.get(), seq).flags, 0u);
        c->must(c->api.cache_check(c->cache, &c->error));
    }
}

TEST(Session, is_found_by_others_once_it_has_run) {
    auto from = make(kWhole);
    auto to = make(kWhole);
    Tokens known;
    const quire_seq seq = created(from.get());
    advance(from.get(), seq, &known, tokens_from(1, 20));
    const quire_seq back = imported(to.get(), exported(from.get(), seq));
    quire_seq asking = created(to.get());
    uint32_t hits = 99;
    auto probe = [&] {
        to->must(to->api.prefix_probe(to->cache, asking, known.data(), 20, &hits, &to->error));
        return hits;
    };
    EXPECT_EQ(probe(), 0u);
    Tokens there = known;
    advance(to.get(), back, &there, {5});
    EXPECT_EQ(probe(), 16u);
    Tokens asked;
    uint32_t first = 0;
    advance(to.get(), asking, &asked, tokens_from(1, 20), &first);
    EXPECT_EQ(first, 16u);
}

TEST(Session, that_comes_back_shares_what_is_still_cached) {
    auto c = make(kWhole);
    Tokens known;
    const quire_seq seq = created(c.get());
    advance(c.get(), seq, &known, tokens_from(1, 20));
    const Bytes bytes = exported(c.get(), seq);
    const uint64_t before = stats_of(c.get()).blocks_swapped_in;
    const quire_seq back = imported(c.get(), bytes);
    advance(c.get(), back, &known, {9});
    // Four full blocks of each full-attention group are shared; five tables' tails are copied in.
    EXPECT_LT(stats_of(c.get()).blocks_swapped_in - before, 12u);
    c->must(c->api.cache_check(c->cache, &c->error));
}

TEST(Session, without_computed_tokens_keeps_those_that_are_known) {
    auto c = make(kWhole);
    Tokens known;
    const quire_seq seq = created(c.get());
    Advance failed;
    failed.outcome = QUIRE_STEP_FAILED;
    advance(c.get(), seq, &known, tokens_from(1, 9), nullptr, failed);
    Bytes bytes;
    auto info = described<quire_session_info>();
    ASSERT_EQ(try_export(c.get(), seq, &bytes, &info), QUIRE_OK) << c->error.message;
    EXPECT_EQ(info.known_tokens, 9u);
    EXPECT_EQ(info.computed_tokens, 0u);
    EXPECT_EQ(info.blocks, 0u);
    const quire_seq back = imported(c.get(), bytes);
    EXPECT_EQ(info_of(c.get(), back).known_tokens, 9u);
    EXPECT_EQ(info_of(c.get(), back).flags, 0u);
    const quire_seq empty = created(c.get());
    const quire_seq second = imported(c.get(), exported(c.get(), empty));
    EXPECT_EQ(info_of(c.get(), second).known_tokens, 0u);
}

TEST(Session, ends_before_the_first_token_without_a_name) {
    auto c = make(kWhole);
    Tokens known;
    const quire_seq seq = created(c.get());
    advance(c.get(), seq, &known, tokens_from(1, 14));
    Advance unnamed;
    unnamed.is_told = false;
    advance(c.get(), seq, &known, {3, 4, 5}, nullptr, unnamed);
    auto info = described<quire_session_info>();
    Bytes bytes;
    ASSERT_EQ(try_export(c.get(), seq, &bytes, &info), QUIRE_OK) << c->error.message;
    EXPECT_EQ(info.known_tokens, 14u);
    EXPECT_EQ(info.computed_tokens, 14u);
    const quire_seq back = imported(c.get(), bytes);
    Tokens there(known.begin(), known.begin() + 14);
    uint32_t first = 0;
    advance(c.get(), back, &there, {3}, &first);
    EXPECT_EQ(first, 14u);
}

TEST(Session, keeps_only_whole_windows) {
    // After a truncate the window of 6 has lost its front; the table still says so.
    auto c = make(kWhole);
    Tokens known;
    const quire_seq seq = created(c.get());
    advance(c.get(), seq, &known, tokens_from(1, 12));
    advance(c.get(), seq, &known, tokens_from(40, 10));
    advance(c.get(), seq, &known, {1});
    c->must(c->api.seq_truncate(c->cache, seq, 20, &c->error));
    known.resize(20);
    const uint32_t computed = info_of(c.get(), seq).computed_tokens;
    auto info = described<quire_session_info>();
    Bytes bytes;
    ASSERT_EQ(try_export(c.get(), seq, &bytes, &info), QUIRE_OK) << c->error.message;
    EXPECT_EQ(info.computed_tokens, computed);
    auto other = make(kHeads);
    const quire_seq back = imported(other.get(), bytes);
    Tokens here = known, there = known;
    advance(c.get(), seq, &here, {2, 3});  // each computes what it lacks
    advance(other.get(), back, &there, {2, 3});
    EXPECT_EQ(advance(c.get(), seq, &here, {4}), advance(other.get(), back, &there, {4}));
}

// Random traffic whose sequences now and then leave and come back.
TEST(Session, of_random_sequences_come_back_whole) {
    for (uint32_t seed : {1u, 2u, 3u}) {
        ShardedCache c(kBoth);
        Traffic traffic(&c, seed);
        uint32_t travelled = 0;
        for (int round = 0; round < 20; ++round) {
            traffic.run_on(6);
            for (quire_seq seq : traffic.sequences()) {
                const quire_seq_info before = info_of(&c, seq);
                const Bytes bytes = exported(&c, seq);
                quire_seq back = 0;
                const quire_status status = try_import(&c, bytes, &back);
                ASSERT_TRUE(status == QUIRE_OK || status == QUIRE_S_NO_BLOCKS) << c.error.message;
                c.must(c.api.cache_check(c.cache, &c.error));
                if (status != QUIRE_OK) continue;
                EXPECT_EQ(info_of(&c, back).computed_tokens, before.computed_tokens);
                EXPECT_EQ(exported(&c, back), bytes);
                ended(&c, back);
                ++travelled;
            }
        }
        EXPECT_GT(travelled, 20u) << "seed " << seed;
    }
}

TEST(SessionFile, comes_back_and_is_its_owners_alone) {
    auto c = make(kHeads);
    Tokens known;
    const quire_seq seq = created(c.get());
    advance(c.get(), seq, &known, tokens_from(1, 17));
    const Folder folder;
    const std::string path = folder / "one.session";
    quire_export_desc save = export_desc(nullptr);
    auto info = described<quire_session_info>();
    for (int round = 0; round < 2; ++round) {  // the second replaces the first
        ASSERT_EQ(
            c->api.seq_save_wait(c->cache, seq, &save, path.c_str(), &info, UINT64_MAX, &c->error),
            QUIRE_OK)
            << c->error.message;
    }
    struct stat what;
    ASSERT_EQ(stat(path.c_str(), &what), 0);
    EXPECT_EQ(what.st_mode & 0777, 0600u);
    EXPECT_EQ(static_cast<uint64_t>(what.st_size), info.size_bytes);
    quire_import_desc restore = import_desc(nullptr);
    quire_seq back = 0;
    auto read = described<quire_session_info>();
    ASSERT_EQ(c->api.seq_restore(c->cache, &restore, path.c_str(), &back, &read, &c->error),
              QUIRE_OK)
        << c->error.message;
    EXPECT_EQ(read.computed_tokens, 17u);
    EXPECT_EQ(exported(c.get(), back), exported(c.get(), seq));
    size_t files = 0;
    for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder.name)) {
        ++files;
    }
    EXPECT_EQ(files, 1u) << "nothing else is left there";
}

TEST(SessionFile, that_cannot_be_written_leaves_the_old_one) {
    auto c = make(kWhole);
    Tokens known;
    const quire_seq seq = created(c.get());
    advance(c.get(), seq, &known, tokens_from(1, 17));
    quire_export_desc save = export_desc(nullptr);
    const Folder folder;
    const std::string missing = folder / "missing/one.session";
    EXPECT_EQ(
        c->api.seq_save_wait(c->cache, seq, &save, missing.c_str(), nullptr, UINT64_MAX, &c->error),
        QUIRE_E_OS);
    EXPECT_EQ(c->error.domain, uint32_t{QUIRE_DOMAIN_OS});
    EXPECT_EQ(c->error.native_code, ENOENT);
    const std::string blocked = folder / "directory";
    std::filesystem::create_directories(blocked + "/kept");
    EXPECT_EQ(
        c->api.seq_save_wait(c->cache, seq, &save, blocked.c_str(), nullptr, UINT64_MAX, &c->error),
        QUIRE_E_OS);
    EXPECT_TRUE(std::filesystem::exists(blocked + "/kept"));
    for (const auto &entry : std::filesystem::directory_iterator(folder.name)) {
        EXPECT_EQ(entry.path().string().find(".new-"), std::string::npos) << entry.path();
    }
    EXPECT_EQ(info_of(c.get(), seq).flags, 0u) << "the sequence is free again";
    advance(c.get(), seq, &known, {4});
}

TEST(SessionFile, that_is_no_session_is_refused) {
    auto c = make(kWhole);
    Tokens known;
    const quire_seq seq = created(c.get());
    advance(c.get(), seq, &known, tokens_from(1, 9));
    Bytes bytes = exported(c.get(), seq);
    const Folder folder;
    quire_import_desc restore = import_desc(nullptr);
    auto restored = [&](const Bytes &content) {
        const std::string path = folder / "two.session";
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char *>(content.data()),
                   static_cast<std::streamsize>(content.size()));
        quire_seq back = 0;
        return c->api.seq_restore(c->cache, &restore, path.c_str(), &back, nullptr, &c->error);
    };
    EXPECT_EQ(restored({}), QUIRE_E_ARG);
    EXPECT_EQ(restored(Bytes(100, 0)), QUIRE_E_ARG);
    Bytes longer = bytes;
    longer.push_back(0);
    EXPECT_EQ(restored(longer), QUIRE_E_ARG);
    EXPECT_EQ(restored(Bytes(bytes.begin(), bytes.end() - 1)), QUIRE_E_ARG);
    quire_seq back = 0;
    auto from = [&](const char *path) {
        return c->api.seq_restore(c->cache, &restore, path, &back, nullptr, &c->error);
    };
    EXPECT_EQ(from("/nowhere/at/all"), QUIRE_E_OS);
    EXPECT_EQ(c->error.native_code, ENOENT);
    EXPECT_EQ(from(folder.name.c_str()), QUIRE_E_OS);
    EXPECT_EQ(from("/dev/zero"), QUIRE_E_OS);
    EXPECT_EQ(from(nullptr), QUIRE_E_ARG);
    const std::string pipe = folder / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(from(pipe.c_str()), QUIRE_E_OS);
    EXPECT_EQ(restored(bytes), QUIRE_OK) << c->error.message;
}

}  // namespace
