// SPDX-License-Identifier: Apache-2.0

#include "core/blocks/token_pages.hpp"

namespace quire {

// Calls body(position, offset, count) for each part of `count` tokens from `begin` on that lies in
// one page; `offset` counts from `begin`. Stops early when body returns false.
template <typename Body>
void TokenPages::each_span(uint32_t begin, uint32_t count, Body body) const {
    uint32_t part = page_.tokens() - page_.slot_of(begin);  // to the end of the page
    for (uint32_t done = 0; done < count; part = page_.tokens()) {
        uint32_t position = begin + done;
        if (part > count - done) part = count - done;
        if (!body(position, done, part)) return;
        done += part;
    }
}

// kNoPage: no memory.
uint32_t TokenPages::new_page(uint32_t tokens) {
    Page page{};
    if (free_ == kNoPage && !pages_.reserve(pages_.size() + 1)) return kNoPage;
    if (!buffers_->grow(&page.words, tokens, 0)) return kNoPage;
    page.references = 1;
    uint32_t number = free_;
    if (number != kNoPage) {
        free_ = pages_[number].next_free;
        pages_[number] = page;
        return number;
    }
    pages_.push(page);
    return static_cast<uint32_t>(pages_.size() - 1);
}

void TokenPages::drop_page(uint32_t number) {
    Page &page = pages_[number];
    QUIRE_ASSERT(page.references > 0);
    if (--page.references != 0) return;
    buffers_->give_back(&page.words);
    page.next_free = free_;
    free_ = number;
}

// Makes a page of the sequence its own, with room for this many tokens. False: no memory.
bool TokenPages::own_page(uint32_t *number, uint32_t tokens) {
    uint32_t held = pages_[*number].words.capacity;
    if (pages_[*number].references == 1) {
        return buffers_->grow(&pages_[*number].words, tokens, held);
    }
    uint32_t copy = new_page(tokens > held ? tokens : held);
    if (copy == kNoPage) return false;
    std::memcpy(pages_[copy].words.data, pages_[*number].words.data, uint64_t{held} * 4);
    drop_page(*number);
    *number = copy;
    return true;
}

bool TokenPages::prepare_slowly(KnownTokens *t, uint32_t begin, uint32_t end) {
    if (begin >= end) return true;
    uint32_t first = page_.block_of(begin), last = page_.block_of(end - 1);
    QUIRE_ASSERT(first <= t->page_count);
    if (!buffers_->grow(&t->pages, last + 1, t->page_count)) return false;
    t->own_begin = t->own_end = 0;
    for (uint32_t i = first; i <= last; ++i) {
        uint32_t tokens = i < last ? page_.tokens() : page_.slot_of(end - 1) + 1;
        uint32_t *number = &t->pages.data[i];
        if (i < t->page_count) {
            // All pages except a stream's last one are full.
            if (!own_page(number, i + 1 < t->page_count ? page_.tokens() : tokens)) return false;
            continue;
        }
        *number = new_page(tokens);
        if (*number == kNoPage) return false;
        ++t->page_count;
    }
    const Page &page = pages_[t->pages.data[last]];
    const uint32_t room =
        page.words.capacity < page_.tokens() ? page.words.capacity : page_.tokens();
    t->own_begin = page_.first_token(last);
    t->own_end = t->own_begin + room;
    t->own = page.words.data;
    return true;
}

void TokenPages::write_slowly(KnownTokens *t, uint32_t begin, const uint32_t *tokens,
                              uint32_t count) {
    each_span(begin, count, [&](uint32_t position, uint32_t offset, uint32_t part) {
        std::memcpy(to_write(*t, position), tokens + offset, uint64_t{part} * 4);
        return true;
    });
}

void TokenPages::fill_unknown(KnownTokens *t, uint32_t begin, uint32_t end) {
    each_span(begin, end - begin, [&](uint32_t position, uint32_t, uint32_t part) {
        uint32_t *tokens = to_write(*t, position);
        for (uint32_t i = 0; i < part; ++i) tokens[i] = QUIRE_TOKEN_UNKNOWN;
        return true;
    });
}

bool TokenPages::equal(const KnownTokens &t, uint32_t begin, const uint32_t *tokens,
                       uint32_t count) const {
    bool same = true;
    each_span(begin, count, [&](uint32_t position, uint32_t offset, uint32_t part) {
        same = std::memcmp(at(t, position), tokens + offset, uint64_t{part} * 4) == 0;
        return same;
    });
    return same;
}

uint32_t TokenPages::find_unknown_slowly(const KnownTokens &t, uint32_t begin, uint32_t end) const {
    uint32_t found = end;
    each_span(begin, end - begin, [&](uint32_t position, uint32_t, uint32_t part) {
        uint32_t index = find_unknown(at(t, position), part);
        if (index != part) found = position + index;
        return index == part;
    });
    return found;
}

bool TokenPages::share(KnownTokens *from, uint32_t count, KnownTokens *to) {
    uint32_t pages = page_.blocks_of(count);
    QUIRE_ASSERT(pages <= from->page_count && to->page_count == 0);
    if (!buffers_->grow(&to->pages, pages, 0)) return false;
    for (uint32_t i = 0; i < pages; ++i) {
        to->pages.data[i] = from->pages.data[i];
        ++pages_[from->pages.data[i]].references;
    }
    to->page_count = pages;
    from->own_begin = from->own_end = 0;
    return true;
}

void TokenPages::release(KnownTokens *t) {
    for (uint32_t i = 0; i < t->page_count; ++i) drop_page(t->pages.data[i]);
    buffers_->give_back(&t->pages);
    *t = KnownTokens{};
}

}  // namespace quire
