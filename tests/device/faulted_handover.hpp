// SPDX-License-Identifier: Apache-2.0
//
// faulted_handover: one sequence through all calls of handover.h, by a table whose calls fail
// repeatedly before they succeed.
//
// Threads: one.
#pragma once

#include "faulted_api.hpp"

namespace quire::test {

class FaultedHandover {
 public:
    // Hands the tokens of `seq` over into the same cache, as a sequence like `like`.
    // compute(layers) runs them in a step, and calls layers(step) before it finishes the step.
    template <typename Compute>
    FaultedHandover(const quire_api &table, quire_cache *cache, quire_seq seq,
                    const quire_seq_desc &like, const std::vector<uint32_t> &tokens,
                    Compute compute)
        : api_(table), cache_(cache) {
        error_.struct_size = sizeof error_;
        auto send = described<quire_handover_send_desc>();
        send.tokens = tokens.data();
        send.token_count = static_cast<uint32_t>(tokens.size());
        auto receive = described<quire_handover_receive_desc>();
        receive.seq = &like;
        ok(api_.handover_send(cache, seq, &send, &sender_, &error_));
        ok(api_.handover_receive(cache, &receive, &receiver_, &error_));
        compute([&](quire_step step) {
            ok(api_.handover_layers(cache, sender_, step, 0, 1, &error_));
        });
        carry();
        ok(api_.handover_end(cache, sender_, &error_));
        ok(api_.handover_end(cache, receiver_, &error_));
    }

    quire_seq back() const { return progress_.seq; }

 private:
    void ok(quire_status status) { ASSERT_EQ(status, QUIRE_OK) << error_.message; }
    void carry() {
        for (char buffer[512]; progress_.seq == 0;) {
            uint64_t size = 0;
            ok(api_.handover_read(cache_, sender_, buffer, sizeof buffer, &size, &progress_,
                                  &error_));
            // A call that is short of memory takes what came before.
            for (uint64_t at = 0, used = 0; at < size; at += used) {
                ok(api_.handover_write(cache_, receiver_, buffer + at, size - at, &used, &progress_,
                                       &error_));
            }
        }
    }

    const quire_api &api_;
    quire_cache *cache_;
    quire_error error_{};
    quire_handover sender_ = 0, receiver_ = 0;
    quire_handover_progress progress_ = described<quire_handover_progress>();
};

}  // namespace quire::test
