// SPDX-License-Identifier: Apache-2.0
//
// Loads in the books, without a store: the check finds each that is broken, and a dump shows them.

#include <gtest/gtest.h>

#include "inside.hpp"

namespace {

using namespace quire;
using namespace quire::test;

// A sequence whose first block the device has, and whose next two are being loaded.
class LoadsInBooks : public testing::Test, public LoadSource {
 protected:
    static constexpr uint32_t kLength = 3;

    void SetUp() override {
        const quire_seq seq = b.sequence();
        ASSERT_TRUE(books.loads.open(this, &books.geometry, 8, 1));
        const LoadRequest request{&books.sequences[0], 0, seq, kLength, 1, nullptr, 0, false};
        Load *none = nullptr;
        ASSERT_EQ(books.loads.consult(request, 1, &none), LoadAdvice::wait);
        load = books.loads.find(0, seq);
        ASSERT_NE(load, nullptr);
        ASSERT_EQ(b.check(), "");
    }
    void TearDown() override {
        EXPECT_EQ(b.check(), "");
        books.loads.close();
        EXPECT_EQ(b.check(), "");
    }
    bool begin_load(const LoadRequest &, Load *out) override {
        out->length = out->stride = kLength;
        out->first = out->found = 1;
        out->awaited = 2;
        out->next = 0;
        if (!out->names.create(kLength) || !out->tokens.create(kLength * Books::kBlockTokens) ||
            !out->blocks.create(kLength))
            return false;
        for (uint32_t i = 1; i < kLength; ++i) out->blocks[i] = books.journal.take_idle_host(0);
        return true;
    }
    uint64_t now_ns() override { return 0; }
    void note_used(const Load &) override {}

    // The check's words while the field has that value.
    template <typename T, typename Value>
    std::string check_with(T *field, Value value) {
        const T before = *field;
        *field = static_cast<T>(value);
        std::string words = b.check();
        *field = before;
        return words;
    }
    std::string dump() {
        uint64_t size = 0;
        EXPECT_EQ(b.cache.dump(false, nullptr, 0, &size).code, QUIRE_S_INCOMPLETE);
        std::string text(size, '?');
        EXPECT_TRUE(b.cache.dump(false, text.data(), size, &size).ok());
        return text;
    }

    Books b;
    CacheBooks &books = Inside::books(b.cache);
    Load *load = nullptr;
};

TEST_F(LoadsInBooks, are_checked_against_their_sequence) {
    const std::string other = "load 63 belongs to sequence 0, which has another or no load";
    EXPECT_EQ(check_with(&load->handle, load->handle + 1), other);
    EXPECT_EQ(check_with(&load->sequence, 5u).substr(0, 29), "load 63 belongs to sequence 5");
    EXPECT_EQ(check_with(&load->sequence, 500u).substr(0, 31), "load 63 belongs to sequence 500");
    EXPECT_EQ(check_with(&load->handle, 0u), "there are 0 loads, but 1 are counted");
    Load &second = books.loads[0];
    second.sequence = 0;
    EXPECT_EQ(check_with(&second.handle, load->handle),
              "load 0 belongs to sequence 0, which has another or no load");
}

TEST_F(LoadsInBooks, are_ready_once_all_has_arrived) {
    EXPECT_EQ(check_with(&load->is_ready, true), "load 63 waits for 2 blocks, and is ready");
    EXPECT_EQ(check_with(&load->is_taken, true),
              "load 63 waits for 2 blocks, and is running, taken");
    EXPECT_EQ(check_with(&load->awaited, 0u), "load 63 waits for 0 blocks, and is running");
    EXPECT_EQ(check_with(&load->awaited, 3u), "load 63 waits for 3 blocks, and has 2");
}

TEST_F(LoadsInBooks, have_the_host_blocks_that_they_bring) {
    EXPECT_EQ(check_with(&load->first, 3u),
              "load 63 is of blocks 3 to 3, but has room for 3 and 3 names");
    EXPECT_EQ(check_with(&load->stride, 2u),
              "load 63 is of blocks 1 to 3, but has room for 2 and 3 names");
    EXPECT_EQ(check_with(&load->length, 2u),
              "load 63 is of blocks 1 to 2, but has room for 3 and 3 names");
    EXPECT_EQ(check_with(&load->first, 2u),
              "load 63 of blocks 2 to 3 has host block 1 for block 1 of group 0");
    EXPECT_EQ(check_with(&load->blocks[2], kNullBlock),
              "load 63 of blocks 1 to 3 has host block 0 for block 2 of group 0");
    EXPECT_EQ(check_with(&load->blocks[1], 999u),
              "load 63 of blocks 1 to 3 has host block 999 for block 1 of group 0");
    EXPECT_EQ(check_with(&load->blocks[1], load->blocks[2]).substr(0, 12), "host block 1");
}

TEST_F(LoadsInBooks, are_dumped) {
    const std::string begin = R"({"record":"load","id":63,"sequence":0,"state":")";
    const std::string end =
        R"(","first":1,"length":3,"found":1,"awaited":2,"unreported":0,"told":false,)"
        R"("serial":1,"next":0,"stride":3,)"
        R"("blocks":[0,1,2]})";
    EXPECT_NE(dump().find(begin + "running" + end), std::string::npos) << dump();
    load->is_ready = true;
    EXPECT_NE(dump().find(begin + "ready" + end), std::string::npos);
    load->is_taken = true;
    EXPECT_NE(dump().find(begin + "taken" + end), std::string::npos);
    load->is_ready = load->is_taken = false;
}

}  // namespace
