// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose checksums are right and whose content is not: made by someone who knows the
// format. Each is refused in words, and nothing stays of it.

#include <functional>

#include "session_rig.hpp"
#include "tests/fuzz/sealed.hpp"

namespace {

using namespace quire::test;

// Where the fields of docs/session-format.md lie.
enum : uint64_t {
    kHeadBytes = 16,
    kTotal = 24,
    kChecksum = 32,
    kKnown = 40,
    kComputed = 44,
    kBlockTokens = 48,
    kGroupCount = 52,
    kCrossTokens = 56,
    kReserved = 60,
    kBlockCount = 64,
    kReservedEnd = 248,
    kTables = 256,
    kTokens = kTables + 3 * 8,
};
// The fields of docs/canonical-form.md, from a block's first byte.
enum : uint64_t {
    kBlockSize = 16,
    kBlockTokenCount = 52,
    kBlockPosition = 56,
    kFirstLayer = 68,
    kLayerCount = 72,
    kIdCount = 116,
    kNamespaceDigest = 128,
    kIds = 256,
};

uint64_t read64(const Bytes &bytes, uint64_t at) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}
void write32(Bytes *bytes, uint64_t at, uint32_t value) {
    std::memcpy(bytes->data() + at, &value, sizeof value);
}

class SessionSealed : public testing::Test {
 protected:
    SessionSealed() : from(std::vector<Range>(1)), to(std::vector<Range>(1)) {
        seq = created(&from);
        advance(&from, seq, &known, tokens_from(1, 14));
        advance(&from, seq, &known, tokens_from(50, 8));  // the window of 6 has null entries
        whole = exported(&from, seq);
        head = read64(whole, kHeadBytes);
    }
    ~SessionSealed() override {
        EXPECT_EQ(exported(&to, imported(&to, whole)), whole);
        EXPECT_EQ(stats_of(&to).sequences, 1u);
    }

    void seal_head(Bytes *bytes) const {
        const std::vector<uint8_t> first(bytes->begin(),
                                         bytes->begin() + static_cast<int64_t>(head));
        std::vector<uint8_t> sealed = first;
        uint64_t sum = 0;
        std::memcpy(sealed.data() + kChecksum, &sum, sizeof sum);
        sum = XXH3_64bits_withSeed(sealed.data() + 256, sealed.size() - 256,
                                   XXH3_64bits(sealed.data(), 256));
        std::memcpy(bytes->data() + kChecksum, &sum, sizeof sum);
    }
    void expect_refused(const Bytes &bytes, const char *words, quire_status wanted = QUIRE_E_ARG) {
        quire_seq out = 99;
        EXPECT_EQ(try_import(&to, bytes, &out), wanted) << words << ": " << to.error.message;
        EXPECT_NE(std::string(to.error.message).find(words), std::string::npos)
            << words << ": " << to.error.message;
        EXPECT_EQ(out, 99u);
        EXPECT_EQ(stats_of(&to).sequences, 0u);
        EXPECT_EQ(stats_of(&to).host_blocks_used, 0u);
        EXPECT_EQ(to.api.cache_check(to.cache, &to.error), QUIRE_OK) << to.error.message;
    }
    // A number of the head is another one.
    void expect_head_refused(uint64_t at, uint32_t value, const char *words,
                             quire_status wanted = QUIRE_E_ARG) {
        Bytes bytes = whole;
        write32(&bytes, at, value);
        seal_head(&bytes);
        expect_refused(bytes, words, wanted);
    }
    // The first block, changed.
    void expect_block_refused(const std::function<void(Bytes *block)> &change, const char *words) {
        const uint64_t size = read64(whole, head + kBlockSize);
        Bytes block(whole.begin() + static_cast<int64_t>(head),
                    whole.begin() + static_cast<int64_t>(head + size));
        change(&block);
        quire::fuzz::seal(&block, quire::fuzz::kCanonicalSeal);
        Bytes bytes(whole.begin(), whole.begin() + static_cast<int64_t>(head));
        bytes.insert(bytes.end(), block.begin(), block.end());
        bytes.insert(bytes.end(), whole.begin() + static_cast<int64_t>(head + size), whole.end());
        expect_refused(bytes, words);
    }

    ShardedCache from, to;
    quire_seq seq = 0;
    Tokens known;
    Bytes whole;
    uint64_t head = 0;
};

TEST_F(SessionSealed, numbers_of_the_head_are_checked) {
    expect_head_refused(12, 0x04030201, "wrong byte order");
    expect_head_refused(kGroupCount, 4, "it has 4 groups, not 3");
    expect_head_refused(kKnown, 200, "its head has");
    expect_head_refused(kHeadBytes, 448, "its head has 448 bytes");
    expect_head_refused(kBlockTokens, 8, "block_tokens is 8, not 4");
    expect_head_refused(kReserved, 1, "contradicts itself");
    expect_head_refused(kReservedEnd, 1, "contradicts itself");
    expect_head_refused(kComputed, 23, "contradicts itself");
    expect_head_refused(kComputed, 16, "the table of group 0 has 6 blocks");
    expect_head_refused(kBlockCount, 11, "11 blocks, but its tables name");
    expect_head_refused(kTotal, 4096, "it says that it has 4096 bytes");
    expect_head_refused(kCrossTokens, 3, "cross_tokens is 3, not 0");
    expect_head_refused(kTokens + 4, QUIRE_TOKEN_UNKNOWN, "token 1 has no id");
}

TEST_F(SessionSealed, tables_are_checked) {
    expect_head_refused(kTables, 5, "the table of group 0");
    expect_head_refused(kTables + 4, 1, "the table of group 0");  // a full group without a block
    expect_head_refused(kTables + 8 + 4, 5, "the table of group 1");   // what the window still sees
    expect_head_refused(kTables + 8 + 4, 99, "the table of group 1");  // past its end
    expect_head_refused(kTables + 8 + 4, 1, "blocks, but its tables name");
}

TEST_F(SessionSealed, blocks_must_be_those_of_the_tables) {
    expect_block_refused([](Bytes *b) { (*b)[0] = 'q'; }, "does not begin as one");
    expect_block_refused([](Bytes *b) { (*b)[8] = 9; }, "does not begin as one");
    expect_block_refused([](Bytes *b) { write32(b, kBlockPosition, 4); }, "is another one");
    expect_block_refused([](Bytes *b) { write32(b, kIds, 9999); }, "is another one");
    expect_block_refused([](Bytes *b) { (*b)[kNamespaceDigest] = 1; }, "is another one");
    expect_block_refused(
        [](Bytes *b) {
            write32(b, kBlockTokenCount, 3);
            write32(b, kIdCount, 3);
        },
        "is another one");
    expect_block_refused([](Bytes *b) { write32(b, kIdCount, 0); }, "");
    expect_block_refused([](Bytes *b) { write32(b, kLayerCount, 2); }, "");
    expect_block_refused([](Bytes *b) { write32(b, 32, 1); }, "group");
    expect_block_refused([](Bytes *b) { write32(b, 40, 6); }, "window");
    expect_block_refused([](Bytes *b) { b->resize(b->size() + 64); }, "bytes, where");
    expect_block_refused([](Bytes *b) { b->resize(b->size() - 64); }, "bytes, where");
}

}  // namespace
