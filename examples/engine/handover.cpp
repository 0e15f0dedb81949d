// SPDX-License-Identifier: Apache-2.0

#include "handover.hpp"

#include "api_call.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

namespace engine {
namespace {

constexpr size_t kBufferBytes = 65536;

// The end of a hand-over that computes.
class Sender {
 public:
    Sender(Cache &cache, quire_seq seq, std::span<const uint32_t> prompt,
           const Fingerprint &fingerprint)
        : cache_(cache) {
        auto desc = described<quire_handover_send_desc>();
        std::copy(fingerprint.begin(), fingerprint.end(), desc.fingerprint);
        desc.tokens = prompt.data();
        desc.token_count = static_cast<uint32_t>(prompt.size());
        call(cache.api().handover_send, cache.get(), seq, &desc, &handover_);
    }
    ~Sender() { cache_.api().handover_end(cache_.get(), handover_, nullptr); }
    Sender(const Sender &) = delete;
    Sender &operator=(const Sender &) = delete;

    void layer(quire_step step, uint32_t layer) {
        call(cache_.api().handover_layers, cache_.get(), handover_, step, layer, 1U);
    }
    // Emits what is there now. Returns true once that was all.
    bool pump(const Emit &emit) {
        std::array<char, kBufferBytes> buffer;
        for (uint64_t size = 1; size != 0;) {
            auto progress = described<quire_handover_progress>();
            call(cache_.api().handover_read, cache_.get(), handover_,
                 static_cast<void *>(buffer.data()), uint64_t{buffer.size()}, &size, &progress);
            emit(std::span(buffer).first(size));
            if (progress.is_whole != 0) {
                return true;
            }
        }
        return false;
    }

 private:
    Cache &cache_;
    quire_handover handover_ = 0;
};

}  // namespace

void prefill(Cache &cache, Forward &forward, std::span<const uint32_t> prompt, size_t chunk_tokens,
             const Fingerprint &fingerprint, const Emit &emit) {
    const quire_seq seq = cache.create_sequence();
    Sender sender(cache, seq, prompt, fingerprint);
    for (size_t known = 0, computed = 0; computed < prompt.size(); known = prompt.size()) {
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(prompt.size() - known);
        item.max_compute = static_cast<uint32_t>(std::min(chunk_tokens, prompt.size() - computed));
        Step step(cache, QUIRE_PREEMPT_AUTO, std::span(&item, 1), prompt.subspan(known));
        const quire_step_result &result = step.results().front();
        if (result.outcome != QUIRE_ITEM_RUN) {
            throw Failure("the prompt does not fit into the pool: give more --pool-blocks");
        }
        step.commit();
        cache.after_layer = [&](uint32_t layer) {
            sender.layer(step.handle(), layer);
            sender.pump(emit);
        };
        const ForwardRow row{.tokens = prompt.subspan(result.first_position, result.compute_count),
                             .first_position = result.first_position,
                             .wants_logits = false};
        forward.run(std::span(&row, 1));
        cache.after_layer = nullptr;
        step.finish();
        computed = size_t{result.first_position} + result.compute_count;
    }
    while (!sender.pump(emit)) {
        std::this_thread::yield();  // the last copies run
    }
}

Receiver::Receiver(Cache &cache, std::span<const uint32_t> prompt, const Fingerprint &fingerprint)
    : cache_(cache) {
    auto desc = described<quire_handover_receive_desc>();
    desc.tokens = prompt.data();
    desc.token_count = static_cast<uint32_t>(prompt.size());
    std::copy(fingerprint.begin(), fingerprint.end(), desc.fingerprint);
    call(cache.api().handover_receive, cache.get(), &desc, &handover_);
}

Receiver::~Receiver() { cache_.api().handover_end(cache_.get(), handover_, nullptr); }

void Receiver::take(std::span<const char> bytes) {
    uint64_t used = 0;
    progress_ = described<quire_handover_progress>();
    const quire_status status =
        call(cache_.api().handover_write, cache_.get(), handover_,
             static_cast<const void *>(bytes.data()), uint64_t{bytes.size()}, &used, &progress_);
    if (status == QUIRE_S_NO_BLOCKS) {
        throw Failure("the prompt does not fit into the host tier: give more --host-bytes");
    }
}

quire_seq receive(Cache &cache, std::span<const uint32_t> prompt, const Fingerprint &fingerprint,
                  Link link) {
    Receiver receiver(cache, prompt, fingerprint);
    std::vector<char> buffer(kBufferBytes);
    while (receiver.seq() == 0) {
        const size_t count = link.read(buffer);
        if (count == 0) {
            throw Failure("the other engine ended the hand-over too early");
        }
        receiver.take(std::span(buffer).first(count));
    }
    return receiver.seq();
}

}  // namespace engine
