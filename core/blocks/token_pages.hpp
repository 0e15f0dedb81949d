// SPDX-License-Identifier: Apache-2.0
//
// token_pages: the known tokens of sequences, in pages that forks share.
//
// A page is 1,024 tokens of one sequence's stream, fewer where a span of the prefix tree does not
// divide that, or one longer span. The last page is as large as it has to be, and grows by
// doubling. A sequence writes in place to a page that it alone has, and copies a shared page before
// it writes to it. So a fork costs one number per page, and a copy of at most one page, made by
// whichever of the two continues first.
//
// A span's tokens lie in one page: a page is a multiple of it.
//
// Invariants: (1) a page's references are the sequences that name it; (2) a sequence's own range
// lies in a page with one reference.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/block_size.hpp"
#include "core/base/host_memory.hpp"
#include "quire/base.h"

namespace quire {

// Index of the first unnamed token, or count. Prompts are long and all named, so this compares
// enough tokens at a time that the compiler vectorises the inner loop.
inline uint32_t find_unknown(const uint32_t *tokens, uint32_t count) {
    constexpr uint32_t stride = 64;
    uint32_t i = 0;
    for (; i + stride <= count; i += stride) {
        uint32_t any = 0;  // all ones or none: as a vector comparison gives
        for (uint32_t k = 0; k < stride; ++k)
            any |= tokens[i + k] == QUIRE_TOKEN_UNKNOWN ? ~0u : 0u;
        if (any != 0) break;
    }
    while (i < count && tokens[i] != QUIRE_TOKEN_UNKNOWN) ++i;
    return i;
}

// The tokens of one sequence.
struct KnownTokens {
    Buffer pages;  // numbers, the first page_count of them
    uint32_t page_count = 0;
    // Positions [own_begin, own_end) are written in place; `own` points to own_begin's token.
    uint32_t own_begin = 0;
    uint32_t own_end = 0;
    uint32_t *own = nullptr;
};

class TokenPages {
 public:
    static constexpr uint32_t kPageTokens = 1024;  // of spans that divide it

    TokenPages(const HostAllocator *host, BufferPool *buffers) : pages_(host), buffers_(buffers) {}

    // The tokens of one span are contiguous from now on. REQUIRES: there is no page yet.
    void set_span(const BlockSize &span) {
        const uint32_t spans = kPageTokens / span.tokens();
        page_ = BlockSize(span.tokens() * (spans != 0 ? spans : 1));
    }
    uint32_t page_tokens() const { return page_.tokens(); }

    // Makes positions [begin, end) writable; their tokens stay. False: no memory. REQUIRES: all
    // positions before `begin` were prepared. Time O(end - begin), amortised, and a page.
    [[nodiscard]] bool prepare(KnownTokens *t, uint32_t begin, uint32_t end) {
        if (is_own(*t, begin, end)) [[likely]]
            return true;
        return prepare_slowly(t, begin, end);
    }
    // REQUIRES: prepared.
    void write(KnownTokens *t, uint32_t begin, const uint32_t *tokens, uint32_t count) {
        if (!is_own(*t, begin, begin + count)) [[unlikely]]
            return write_slowly(t, begin, tokens, count);
        uint32_t *to = t->own + (begin - t->own_begin);
        if (count == 1) {  // a decode step's: calling memcpy costs more
            *to = *tokens;
        } else if (count != 0) {
            std::memcpy(to, tokens, uint64_t{count} * 4);
        }
    }
    void fill_unknown(KnownTokens *t, uint32_t begin, uint32_t end);

    // From this position to the end of its page, tokens are contiguous.
    const uint32_t *at(const KnownTokens &t, uint32_t position) const {
        if (position >= t.own_begin && position < t.own_end)
            return t.own + (position - t.own_begin);
        const uint32_t page = page_.block_of(position);
        return pages_[t.pages.data[page]].words.data + (position - page_.first_token(page));
    }
    // Number of positions that can be read, whatever they hold.
    uint32_t held(const KnownTokens &t) const {
        if (t.page_count == 0) return 0;
        uint32_t last = t.page_count - 1, words = pages_[t.pages.data[last]].words.capacity;
        return page_.first_token(last) + (words < page_.tokens() ? words : page_.tokens());
    }
    // Calls body(tokens, count) for the first `count` tokens, page by page.
    template <typename Body>
    void each_page(const KnownTokens &t, uint32_t count, Body body) const {
        const uint32_t page = page_.tokens();
        for (uint32_t done = 0, part = 0; done < count; done += part) {
            part = count - done < page ? count - done : page;
            body(at(t, done), part);
        }
    }
    bool equal(const KnownTokens &t, uint32_t begin, const uint32_t *tokens, uint32_t count) const;
    // The first unnamed token of [begin, end), or end.
    uint32_t find_unknown_in(const KnownTokens &t, uint32_t begin, uint32_t end) const {
        if (is_own(t, begin, end)) [[likely]]
            return begin + find_unknown(t.own + (begin - t.own_begin), end - begin);
        return find_unknown_slowly(t, begin, end);
    }

    // Shares the first `count` tokens with `to`, which is empty. False: no memory, and nothing
    // changed.
    [[nodiscard]] bool share(KnownTokens *from, uint32_t count, KnownTokens *to);
    void release(KnownTokens *t);

 private:
    static constexpr uint32_t kNoPage = 0xFFFFFFFF;

    struct Page {
        Buffer words;
        uint32_t references;
        uint32_t next_free;
    };

    static bool is_own(const KnownTokens &t, uint32_t begin, uint32_t end) {
        return begin >= t.own_begin && end <= t.own_end;
    }
    uint32_t *to_write(const KnownTokens &t, uint32_t position) const {
        return const_cast<uint32_t *>(at(t, position));
    }
    bool prepare_slowly(KnownTokens *t, uint32_t begin, uint32_t end);
    void write_slowly(KnownTokens *t, uint32_t begin, const uint32_t *tokens, uint32_t count);
    uint32_t find_unknown_slowly(const KnownTokens &t, uint32_t begin, uint32_t end) const;
    bool own_page(uint32_t *number, uint32_t tokens);
    uint32_t new_page(uint32_t tokens);
    void drop_page(uint32_t number);

    template <typename Body>
    void each_span(uint32_t begin, uint32_t count, Body body) const;

    Array<Page> pages_;
    BufferPool *buffers_;
    BlockSize page_{kPageTokens};
    uint32_t free_ = kNoPage;
};

}  // namespace quire
