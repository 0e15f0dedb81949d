// SPDX-License-Identifier: Apache-2.0

#include "core/session/handover.hpp"

#include <new>

namespace quire {

Status Handovers::make(std::unique_ptr<Handover> *out) const {
    if (count_ == kMost) return fail(QUIRE_E_LIMIT, "{} hand-overs go on: at most as many", kMost);
    out->reset(new (std::nothrow) Handover);
    return *out != nullptr ? Status{} : no_host_memory();
}

Status Handovers::add(std::unique_ptr<Handover> made, uint64_t *out) {
    const uint64_t number = g_handover_numbers.take(1);
    if (number == 0) return fail(QUIRE_E_LIMIT, "no number is left for a hand-over");
    *out = made->handle = make_handle(HandleType::handover, number);
    made->next = std::move(first_);
    first_ = std::move(made);
    ++count_;
    return Status{};
}

Status Handovers::send(uint64_t seq, const SessionIdentity &as, const quire_token *tokens,
                       uint32_t token_count, uint64_t staging_bytes, uint64_t *out,
                       quire_error *error) {
    sweep();
    uint32_t index = 0;
    QUIRE_TRY(books_.find_sequence(seq, &index));
    if ((books_.sequences[index].state.flags & Sequence::kLent) != 0)
        return fail(QUIRE_E_BUSY,
                    "the sequence is being exported or handed over: wait until that has ended");
    for (const Handover *h = first_.get(); h != nullptr; h = h->next.get()) {
        if (h->send != nullptr && h->send->sequence_handle() == seq)
            return fail(QUIRE_E_BUSY, "the sequence is being handed over already");
    }
    std::unique_ptr<Handover> made;
    QUIRE_TRY(make(&made));
    made->send.reset(new (std::nothrow) HandoverSend(&books_));
    if (made->send == nullptr) return no_host_memory();
    QUIRE_TRY(made->send->begin(seq, as, tokens, token_count, staging_bytes, error));
    return add(std::move(made), out);
}

Status Handovers::receive(const SessionIdentity &as, const quire_handover_receive_desc &desc,
                          const quire_seq_desc &seq, const quire_key *keys, uint64_t *out) {
    sweep();
    std::unique_ptr<Handover> made;
    QUIRE_TRY(make(&made));
    made->receive.reset(new (std::nothrow) HandoverReceive(&books_, &sequences_));
    if (made->receive == nullptr) return no_host_memory();
    QUIRE_TRY(made->receive->begin(as, desc, seq, keys));
    HandoverReceive *begun = made->receive.get();
    Status added = add(std::move(made), out);
    if (!added.ok()) begun->end();
    return added;
}

Status Handovers::find(uint64_t handle, Handover **out) const {
    Handover *h = first_.get();
    while (h != nullptr && h->handle != handle) h = h->next.get();
    *out = h;
    if (h != nullptr) return Status{};
    return fail(QUIRE_E_STALE, "no such hand-over: it was ended, or belongs to another cache");
}

Status Handovers::find_send(uint64_t handle, HandoverSend **out) const {
    Handover *h = nullptr;
    QUIRE_TRY(find(handle, &h));
    *out = h->send.get();
    return *out != nullptr ? Status{} : fail(QUIRE_E_ARG, "the hand-over receives");
}

Status Handovers::find_receive(uint64_t handle, HandoverReceive **out) const {
    Handover *h = nullptr;
    QUIRE_TRY(find(handle, &h));
    *out = h->receive.get();
    return *out != nullptr ? Status{} : fail(QUIRE_E_ARG, "the hand-over sends");
}

Status Handovers::end(uint64_t handle) {
    std::unique_ptr<Handover> *at = &first_;
    while (*at != nullptr && (*at)->handle != handle) at = &(*at)->next;
    if (*at == nullptr) {
        Handover *none = nullptr;
        return find(handle, &none);
    }
    std::unique_ptr<Handover> ended = std::move(*at);
    *at = std::move(ended->next);
    --count_;
    if (ended->receive != nullptr) {
        ended->receive->end();
        return Status{};
    }
    ended->send->end();
    ended->next = std::move(ended_);
    ended_ = std::move(ended);
    sweep();
    return Status{};
}

void Handovers::sweep() {
    for (std::unique_ptr<Handover> *at = &ended_; *at != nullptr;) {
        if (!(*at)->send->is_quiet()) {
            at = &(*at)->next;
            continue;
        }
        std::unique_ptr<Handover> next = std::move((*at)->next);
        *at = std::move(next);
    }
}

void Handovers::leave_devices() {
    books_.copy_lanes.drop();
    sweep();
    // One by one: a long list would recurse as deep.
    while (first_ != nullptr) {
        std::unique_ptr<Handover> next = std::move(first_->next);
        first_ = std::move(next);
    }
}

}  // namespace quire
