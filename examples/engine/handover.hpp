// SPDX-License-Identifier: Apache-2.0
//
// handover: a prompt that one cache computes and another goes on from: prefill and decode apart.
//
// A hand-over that is lost, for whatever reason, is no error of the engine that decodes: it
// computes the prompt itself.
//
// Threads: one.

#pragma once

#include "cache.hpp"
#include "forward.hpp"
#include "link.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace engine {

// Takes the next bytes of a hand-over.
using Emit = std::function<void(std::span<const char> bytes)>;

// Computes the prompt in chunks, and emits each layer as it is computed.
//
// Errors   throws Failure of Quire, or what `emit` throws.
void prefill(Cache &cache, Forward &forward, std::span<const uint32_t> prompt, size_t chunk_tokens,
             const Fingerprint &fingerprint, const Emit &emit);

// The end of a hand-over that decodes.
class Receiver {
 public:
    Receiver(Cache &cache, std::span<const uint32_t> prompt, const Fingerprint &fingerprint);
    ~Receiver();
    Receiver(const Receiver &) = delete;
    Receiver &operator=(const Receiver &) = delete;

    // Errors   throws Failure if they are refused.
    void take(std::span<const char> bytes);
    // The sequence, once all of it has come; else 0.
    quire_seq seq() const { return progress_.seq; }

 private:
    Cache &cache_;
    quire_handover handover_ = 0;
    quire_handover_progress progress_{};
};

// Takes bytes from the link until the sequence of the prompt is whole, or throws Failure.
quire_seq receive(Cache &cache, std::span<const uint32_t> prompt, const Fingerprint &fingerprint,
                  Link link);

}  // namespace engine
