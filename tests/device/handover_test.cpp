// SPDX-License-Identifier: Apache-2.0
//
// Hand-overs: a sequence that leaves its cache while it is computed goes on in another one with the
// same bits; and nothing that goes wrong on either side leaves anything.

#include "handover_rig.hpp"

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
                                   uint32_t blocks = 24) {
    return std::make_unique<ShardedCache>(ranges, blocks, nullptr, described<quire_instance_desc>(),
                                          0, format);
}

// Computes the tokens in steps of at most `chunk`, and sends each layer as it is launched.
void compute_and_send(ShardedCache *c, quire_seq seq, const Tokens &tokens, uint32_t chunk,
                      Sender *sender) {
    Tokens known;
    Advance how;
    how.after_layer = [&](quire_step step, uint32_t layer) {
        EXPECT_EQ(sender->layers(step, layer), QUIRE_OK) << c->error.message;
        EXPECT_EQ(sender->read(777), QUIRE_OK) << c->error.message;
    };
    for (size_t at = 0; at < tokens.size(); at += chunk) {
        const size_t end = std::min<size_t>(tokens.size(), at + chunk);
        advance(
            c, seq, &known,
            Tokens(tokens.begin() + static_cast<long>(at), tokens.begin() + static_cast<long>(end)),
            nullptr, how);
    }
}

// Both compute the last token once more, which gives the same outputs and nothing else is computed.
void expect_same(ShardedCache *from, quire_seq seq, ShardedCache *to, quire_seq back,
                 const Tokens &tokens) {
    const auto length = static_cast<uint32_t>(tokens.size());
    std::vector<float> out[2];
    ShardedCache *const caches[] = {from, to};
    const quire_seq seqs[] = {seq, back};
    for (int i = 0; i < 2; ++i) {
        Tokens known(tokens.begin(), tokens.end() - 1);
        ASSERT_EQ(truncated(caches[i], seqs[i], length - 1), QUIRE_OK) << caches[i]->error.message;
        uint32_t first = 0;
        out[i] = advance(caches[i], seqs[i], &known, {tokens.back()}, &first);
        EXPECT_EQ(first, length - 1);
    }
    EXPECT_EQ(out[0], out[1]);
    ended(from, seq);
    ended(to, back);
    to->sync();
    to->must(to->api.cache_check(to->cache, &to->error));
}

// Lengths around borders of blocks (4), of the window (6), and beyond.
const uint32_t kLengths[] = {2, 3, 4, 5, 7, 8, 9, 16, 22, 23};

TEST(Handover, goes_on_in_another_cache_with_the_same_bits) {
    for (const KvFormat &format : formats()) {
        for (size_t i = 0; i < kSplits.size(); ++i) {
            auto from = make(kSplits[i], format);
            auto to = make(kSplits[(i + 1) % kSplits.size()], format);
            for (uint32_t length : kLengths) {
                SCOPED_TRACE(length);
                const Tokens tokens = tokens_from(length, length);
                const quire_seq seq = created(from.get());
                Sender sender(from.get(), seq, tokens, length % 2 == 0 ? 1 : 0);
                Receiver receiver(to.get());
                compute_and_send(from.get(), seq, tokens, 1 + length % 7, &sender);
                ASSERT_EQ(sender.read_all(), QUIRE_OK) << from->error.message;
                ASSERT_EQ(receiver.write(sender.bytes, 1 + length * 31), QUIRE_OK)
                    << to->error.message;
                ASSERT_NE(receiver.seq(), 0u);
                EXPECT_EQ(receiver.progress.cells_done, receiver.progress.cells);
                receiver.end();
                sender.end();
                expect_same(from.get(), seq, to.get(), receiver.seq(), tokens);
            }
        }
    }
}

TEST(Handover, layers_leave_before_their_step_has_ended) {
    auto c = make(kWhole);
    const Tokens tokens = tokens_from(3, 8);
    const quire_seq seq = created(c.get());
    Sender sender(c.get(), seq, tokens);
    std::vector<uint64_t> done;
    Tokens known;
    Advance how;
    how.after_layer = [&](quire_step step, uint32_t layer) {
        c->must(sender.layers(step, layer));
        // The copy runs on its own; nothing else is waited for.
        const uint64_t before = sender.progress.cells_done;
        while (sender.progress.cells_done == before) c->must(sender.read());
        done.push_back(sender.progress.cells_done);
    };
    advance(c.get(), seq, &known, tokens, nullptr, how);
    EXPECT_EQ(done, (std::vector<uint64_t>{2, 4, 6, 8, 10, 12}));
    EXPECT_EQ(sender.progress.is_whole, 0u) << "the tail waits for the step";
    c->must(sender.read_all());
    EXPECT_EQ(sender.progress.cells_done, sender.progress.cells);
}

TEST(Handover, needs_no_layers) {
    auto from = make(kHeads), to = make(kLayers);
    const Tokens tokens = tokens_from(5, 13);
    const quire_seq seq = created(from.get());
    Tokens known;
    advance(from.get(), seq, &known, tokens);
    for (bool is_swapped : {false, true}) {
        if (is_swapped) swap_out(from.get(), seq);
        Sender sender(from.get(), seq);
        Receiver receiver(to.get());
        ASSERT_EQ(sender.read_all(), QUIRE_OK) << from->error.message;
        ASSERT_EQ(receiver.write(sender.bytes, 99), QUIRE_OK) << to->error.message;
        receiver.end();
        sender.end();
        if (is_swapped) return expect_same(from.get(), seq, to.get(), receiver.seq(), tokens);
        ended(to.get(), receiver.seq());
    }
}

TEST(Handover, found_blocks_are_sent_too) {
    auto from = make(kWhole), to = make(kWhole);
    const Tokens tokens = tokens_from(9, 15);
    Tokens known;
    advance(from.get(), created(from.get()), &known, tokens);
    const quire_seq seq = created(from.get());
    Sender sender(from.get(), seq, tokens);
    compute_and_send(from.get(), seq, tokens, 15, &sender);
    EXPECT_GT(stats_of(from.get()).prefix_cache_hits, 0u);
    ASSERT_EQ(sender.read_all(), QUIRE_OK) << from->error.message;
    Receiver receiver(to.get());
    ASSERT_EQ(receiver.write(sender.bytes), QUIRE_OK) << to->error.message;
    receiver.end();
    sender.end();
    expect_same(from.get(), seq, to.get(), receiver.seq(), tokens);
}

// A hand-over of 10 tokens, and where each of its parts ends.
struct Sample {
    Sample() : cache(make(kWhole)) {
        tokens = tokens_from(2, 10);
        const quire_seq seq = created(cache.get());
        Sender sender(cache.get(), seq, tokens);
        compute_and_send(cache.get(), seq, tokens, 6, &sender);
        cache->must(sender.read_all());
        bytes = sender.bytes;
        uint64_t at = 0;
        std::memcpy(&at, bytes.data() + 16, sizeof at);  // head_bytes
        while (at < bytes.size() - 64) {
            ends.push_back(at);
            uint64_t size = 0;
            std::memcpy(&size, bytes.data() + at + 16, sizeof size);
            at += size;
        }
        ends.push_back(at);
        ends.push_back(bytes.size());
    }

    std::unique_ptr<ShardedCache> cache;
    Tokens tokens;
    Bytes bytes;
    std::vector<uint64_t> ends;  // of the head, of each part, of the tail
};

TEST(Handover, a_cut_at_any_place_leaves_nothing) {
    const Sample sample;
    auto to = make(kHeads);
    EXPECT_GT(sample.ends.size(), 10u);
    std::vector<uint64_t> cuts = sample.ends;
    cuts.pop_back();
    for (uint64_t end : sample.ends) cuts.push_back(end - 1), cuts.push_back(end - 63);
    cuts.push_back(0);
    for (uint64_t cut : cuts) {
        SCOPED_TRACE(cut);
        Receiver receiver(to.get());
        const Bytes part(sample.bytes.begin(), sample.bytes.begin() + static_cast<long>(cut));
        ASSERT_EQ(receiver.write(part, 500), QUIRE_OK) << to->error.message;
        EXPECT_EQ(receiver.seq(), 0u);
        receiver.end();
        expect_empty(to.get());
    }
}

TEST(Handover, a_flipped_byte_anywhere_is_refused) {
    const Sample sample;
    auto to = make(kHeads);
    for (uint64_t at = 0; at < sample.bytes.size(); at += at < 600 ? 1 : 37) {
        SCOPED_TRACE(at);
        Bytes bytes = sample.bytes;
        bytes[at] ^= 0x10;
        Receiver receiver(to.get());
        const quire_status status = receiver.write(bytes, 4000);
        const bool is_magic = at >= sample.ends[0] && at < sample.ends[0] + 8;
        EXPECT_TRUE(!is_magic || status == QUIRE_E_ARG);
        // A header that claims more bytes waits for them.
        if (status == QUIRE_OK) {
            EXPECT_EQ(receiver.seq(), 0u);
        } else {
            EXPECT_NE(std::string(to->error.message), "");
            expect_empty(to.get());
            EXPECT_EQ(receiver.write(sample.bytes), status) << "it stays refused";
        }
        receiver.end();
        expect_empty(to.get());
    }
}

TEST(Handover, a_missing_or_repeated_part_is_refused) {
    const Sample sample;
    auto to = make(kWhole);
    for (size_t i = 1; i + 1 < sample.ends.size(); ++i) {
        const auto begin = sample.bytes.begin() + static_cast<long>(sample.ends[i - 1]);
        const auto end = sample.bytes.begin() + static_cast<long>(sample.ends[i]);
        Bytes without = sample.bytes, twice = sample.bytes;
        without.erase(without.begin() + static_cast<long>(sample.ends[i - 1]),
                      without.begin() + static_cast<long>(sample.ends[i]));
        twice.insert(twice.begin() + static_cast<long>(sample.ends[i]), begin, end);
        Receiver first(to.get()), second(to.get());
        EXPECT_EQ(first.write(without), QUIRE_E_ARG);
        EXPECT_NE(std::string(to->error.message).find("cells are missing"), std::string::npos)
            << to->error.message;
        EXPECT_EQ(second.write(twice), QUIRE_E_ARG);
        EXPECT_NE(std::string(to->error.message).find("came before"), std::string::npos)
            << to->error.message;
    }
    expect_empty(to.get());
}

TEST(Handover, parts_may_come_in_any_order) {
    Sample sample;
    auto to = make(kWhole);
    Bytes bytes(sample.bytes.begin(), sample.bytes.begin() + static_cast<long>(sample.ends[0]));
    for (size_t i = sample.ends.size() - 2; i > 0; --i) {
        bytes.insert(bytes.end(), sample.bytes.begin() + static_cast<long>(sample.ends[i - 1]),
                     sample.bytes.begin() + static_cast<long>(sample.ends[i]));
    }
    bytes.insert(bytes.end(), sample.bytes.end() - 64, sample.bytes.end());
    Receiver receiver(to.get());
    ASSERT_EQ(receiver.write(bytes), QUIRE_OK) << to->error.message;
    EXPECT_NE(receiver.seq(), 0u);
}

TEST(Handover, takes_no_byte_of_what_comes_next) {
    Sample sample;
    auto to = make(kWhole);
    Bytes bytes = sample.bytes;
    bytes.insert(bytes.end(), sample.bytes.begin(), sample.bytes.end());
    Receiver first(to.get()), second(to.get());
    ASSERT_EQ(first.write(bytes), QUIRE_OK) << to->error.message;
    EXPECT_EQ(first.at, sample.bytes.size());
    second.at = first.at;
    ASSERT_EQ(second.write(bytes), QUIRE_OK) << to->error.message;
    EXPECT_NE(second.seq(), 0u);
    EXPECT_NE(second.seq(), first.seq());
}

TEST(Handover, foreign_ones_are_refused_before_k_and_v) {
    const Sample sample;
    const Bytes head(sample.bytes.begin(),
                     sample.bytes.begin() + static_cast<long>(sample.ends[0]));
    auto to = make(kWhole), f16 = make(kWhole, {QUIRE_DTYPE_F16, QUIRE_SCALE_NONE, {}, 0.0f});
    Tokens tokens = sample.tokens;
    tokens[3] ^= 1;
    auto other_token = receive_desc(), longer = receive_desc();
    other_token.tokens = longer.tokens = tokens.data();
    other_token.token_count = static_cast<uint32_t>(tokens.size());
    longer.token_count = other_token.token_count - 1;
    auto other_model = receive_desc(), other_tenant = receive_desc(), keyed = receive_desc();
    other_model.fingerprint[0] = 8;
    other_tenant.name_space[0] = 1;
    const quire_key key{QUIRE_KEY_SALT, 4, "salt", 0, 0};
    auto seq = described<quire_seq_desc>();
    seq.keys = &key;
    seq.key_count = 1;
    seq.key_stride = sizeof key;
    keyed.seq = &seq;
    const struct {
        const quire_handover_receive_desc &desc;
        const char *text;
    } cases[] = {{other_model, "its fingerprint is another one"},
                 {other_tenant, "another name space"},
                 {other_token, "another token at place 3"},
                 {longer, "tokens, not of"},
                 {keyed, "other keys"}};
    for (const auto &[desc, text] : cases) {
        Receiver receiver(to.get(), desc);
        EXPECT_EQ(receiver.write(head), QUIRE_E_ARG);
        EXPECT_NE(std::string(to->error.message).find(text), std::string::npos)
            << to->error.message;
    }
    Receiver receiver(f16.get());
    EXPECT_EQ(receiver.write(sample.bytes), QUIRE_E_ARG);
    EXPECT_NE(std::string(f16->error.message).find("k_dtype"), std::string::npos)
        << f16->error.message;
    expect_empty(to.get());
    expect_empty(f16.get());
}

TEST(Handover, waits_for_room_in_the_host_tier) {
    const Sample sample;
    auto to = make(kWhole);
    std::vector<std::unique_ptr<Receiver>> receivers;
    uint32_t whole = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        receivers.push_back(std::make_unique<Receiver>(to.get()));
        const quire_status status = receivers.back()->write(sample.bytes);
        if (status == QUIRE_S_NO_BLOCKS) {
            EXPECT_EQ(receivers.back()->at, sample.ends[0]) << "nothing after the head";
            break;
        }
        ASSERT_EQ(status, QUIRE_OK) << to->error.message;
        ++whole;
    }
    ASSERT_LT(whole, 8u);
    ASSERT_GT(whole, 0u);
    Receiver &last = *receivers.back();
    EXPECT_EQ(last.write(sample.bytes), QUIRE_S_NO_BLOCKS) << "still";
    ended(to.get(), receivers.front()->seq());
    ASSERT_EQ(last.write(sample.bytes), QUIRE_OK) << to->error.message;
    EXPECT_NE(last.seq(), 0u);
}

// They were moved there by the last step, which has run, though no call has noticed yet.
TEST(Handover, cached_prefixes_of_the_host_tier_give_way) {
    const Sample sample;
    ShardedCache to(kWhole, 8, nullptr, described<quire_instance_desc>(),
                    QUIRE_CACHE_HOST_PREFIXES);
    for (uint32_t i = 0; i < 30; ++i) {
        const quire_seq seq = created(&to);
        Tokens known;
        advance(&to, seq, &known, tokens_from(100 + 20 * i, 12));
        ended(&to, seq);
    }
    to.sync();
    ASSERT_GT(stats_of(&to).host_blocks_cached, 4u);
    Receiver receiver(&to);
    EXPECT_EQ(receiver.write(sample.bytes), QUIRE_OK) << to.error.message;
    EXPECT_NE(receiver.seq(), 0u);
}

// A sender says so once its sequence lost blocks that were sent.
void expect_lost(ShardedCache *c, Sender *sender, const char *text) {
    quire_status status = QUIRE_OK;
    for (int i = 0; status == QUIRE_OK && i < 1000; ++i) status = sender->read();
    EXPECT_EQ(status, QUIRE_E_STALE);
    EXPECT_NE(std::string(c->error.message).find(text), std::string::npos) << c->error.message;
    EXPECT_EQ(sender->progress.is_whole, 0u);
    EXPECT_EQ(sender->read(), QUIRE_E_STALE) << "it stays so";
}

TEST(Handover, a_failed_step_or_a_lost_token_sends_no_tail) {
    const Tokens tokens = tokens_from(4, 12);
    const Tokens half(tokens.begin(), tokens.begin() + 8);
    for (uint32_t layers = 1; layers <= 6; ++layers) {
        SCOPED_TRACE(layers);
        auto c = make(kWhole);
        const quire_seq seq = created(c.get());
        Sender sender(c.get(), seq, tokens);
        Tokens known;
        Advance how;
        how.outcome = QUIRE_STEP_FAILED;
        how.after_layer = [&](quire_step step, uint32_t layer) {
            if (layer < layers) c->must(sender.layers(step, layer));
        };
        advance(c.get(), seq, &known, half, nullptr, how);
        expect_lost(c.get(), &sender, "lost tokens");
        sender.end();
        // The same tokens again, by a new hand-over.
        Sender again(c.get(), seq, tokens);
        advance(c.get(), seq, &known, Tokens(tokens.begin() + 8, tokens.end()));
        ASSERT_EQ(again.read_all(), QUIRE_OK) << c->error.message;
    }
}

TEST(Handover, a_sequence_that_shrinks_is_given_up_or_ended_sends_no_tail) {
    const Tokens tokens = tokens_from(4, 12);
    for (const char *how : {"truncate", "recompute", "end"}) {
        SCOPED_TRACE(how);
        auto c = make(kWhole);
        const quire_seq seq = created(c.get());
        Sender sender(c.get(), seq, tokens);
        compute_and_send(c.get(), seq, Tokens(tokens.begin(), tokens.begin() + 8), 8, &sender);
        if (how[0] == 't') {
            ASSERT_EQ(truncated(c.get(), seq, 3), QUIRE_OK);
        } else if (how[0] == 'e') {
            ended(c.get(), seq);
        } else {
            quire_step_desc desc = c->step_desc();
            quire_step step = 0;
            uint32_t freed = 0;
            c->must(c->api.step_begin(c->cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr,
                                      0, nullptr, 0, &step, &c->error));
            c->must(c->api.step_preempt(c->cache, step, seq, QUIRE_PREEMPT_RECOMPUTE, &freed,
                                        &c->error));
            c->must(c->api.step_commit(c->cache, step, c->batch, &c->error));
            c->must(c->api.step_finish(c->cache, step, nullptr, QUIRE_STEP_OK, &c->error));
        }
        expect_lost(c.get(), &sender, how[0] == 'e' ? "was ended" : "lost tokens");
    }
}

TEST(Handover, wrong_calls_are_refused_and_change_nothing) {
    auto c = make(kWhole);
    const quire_api &api = c->api;
    const Tokens tokens = tokens_from(4, 8), others = tokens_from(5, 8);
    const quire_seq seq = created(c.get()), bystander = created(c.get());
    quire_handover none = 0;
    auto desc = send_desc({});
    EXPECT_EQ(api.handover_send(c->cache, seq, &desc, &none, &c->error), QUIRE_E_ARG)
        << "no token is known";
    Tokens known;
    advance(c.get(), bystander, &known, {1});
    known.clear();
    Sender sender(c.get(), seq, tokens);
    desc = send_desc(tokens);
    EXPECT_EQ(api.handover_send(c->cache, seq, &desc, &none, &c->error), QUIRE_E_BUSY);
    c->sync();
    c->must(api.batch_destroy(c->batch, &c->error));
    EXPECT_EQ(api.cache_destroy(c->cache, &c->error), QUIRE_E_BUSY);
    EXPECT_NE(std::string(c->error.message).find("1 hand-overs go on"), std::string::npos)
        << c->error.message;
    c->must(c->make_batch());
    Receiver receiver(c.get());
    uint64_t size = 0;
    EXPECT_EQ(api.handover_read(c->cache, receiver.handle, &size, 1, &size, nullptr, &c->error),
              QUIRE_E_ARG);
    EXPECT_EQ(api.handover_write(c->cache, sender.handle, &size, 1, &size, nullptr, &c->error),
              QUIRE_E_ARG);
    EXPECT_EQ(api.handover_end(c->cache, 12345, &c->error), QUIRE_E_STALE);
    Advance how;
    how.after_layer = [&](quire_step step, uint32_t layer) {
        EXPECT_EQ(sender.layers(step, 6), QUIRE_E_ARG);
        EXPECT_EQ(sender.layers(step, 0, 7), QUIRE_E_ARG);
        EXPECT_EQ(sender.layers(step, 0, 0), QUIRE_E_ARG);
        EXPECT_EQ(sender.layers(step + 1, 0), QUIRE_E_STALE);
        c->must(sender.layers(step, layer));
        c->must(sender.layers(step, layer));  // again: nothing is sent twice
    };
    advance(c.get(), seq, &known, tokens, nullptr, how);
    ASSERT_EQ(sender.read(16), QUIRE_OK);
    while (sender.progress.cells_done != sender.progress.cells) c->must(sender.read(16));
    c->must(sender.read_all());
    advance(c.get(), seq, &known, {3});  // it is not lent any more
    sender.end();
    desc = send_desc(others);
    EXPECT_EQ(api.handover_send(c->cache, seq, &desc, &none, &c->error), QUIRE_E_ARG)
        << "not its tokens";
    EXPECT_EQ(none, 0u);
}

TEST(Handover, keeps_the_sequence_as_it_is_while_the_rest_is_read) {
    auto c = make(kWhole);
    const Tokens tokens = tokens_from(4, 8);
    const quire_seq seq = created(c.get());
    Tokens known;
    advance(c.get(), seq, &known, tokens);
    c->sync();
    Sender sender(c.get(), seq, {}, 1);
    uint64_t size = 0;
    Bytes buffer(600);
    while (sender.progress.cells_done == 0) {
        c->must(c->api.handover_read(c->cache, sender.handle, buffer.data(), 600, &size,
                                     &sender.progress, &c->error));
    }
    EXPECT_EQ(truncated(c.get(), seq, 3), QUIRE_E_BUSY);
    EXPECT_EQ(c->api.seq_end(c->cache, seq, 0, &c->error), QUIRE_E_BUSY);
    sender.end();
    EXPECT_EQ(truncated(c.get(), seq, 3), QUIRE_OK) << c->error.message;
}

}  // namespace
