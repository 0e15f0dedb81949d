// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of handover.h.

#include <cstring>

#include "abi/cache_call.hpp"
#include "abi/key_list.hpp"

namespace {

template <typename Desc>
SessionIdentity identity_of(const Desc &desc) {
    SessionIdentity as;
    std::memcpy(as.fingerprint, desc.fingerprint, sizeof as.fingerprint);
    std::memcpy(as.name_space, desc.name_space, sizeof as.name_space);
    return as;
}

Status check_progress(const quire_handover_progress *progress) {
    return progress != nullptr ? check_output(progress) : Status{};
}

void tell(const quire_handover_progress &full, quire_handover_progress *progress) {
    if (progress != nullptr) write(full, progress);
}

}  // namespace

extern "C" {

quire_status quire_handover_send(quire_cache *cache, quire_seq seq,
                                 const quire_handover_send_desc *desc, quire_handover *out,
                                 quire_error *error) {
    return changing_call("handover_send", cache, error,
                         [&](Cache &core, quire_error *sink) -> Status {
                             quire_handover_send_desc full{};
                             QUIRE_TRY(read(desc, &full));
                             QUIRE_TRY(need(out, "out is NULL"));
                             if (full.token_count != 0)
                                 QUIRE_TRY(need(full.tokens, "desc.tokens is NULL"));
                             return core.begin_send(seq, identity_of(full), full, out, sink);
                         });
}

quire_status quire_handover_layers(quire_cache *cache, quire_handover handover, quire_step step,
                                   uint32_t first_layer, uint32_t layer_count, quire_error *error) {
    return changing_call(
        "handover_layers", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            return core.send_layers(handover, step, first_layer, layer_count, sink);
        });
}

quire_status quire_handover_read(quire_cache *cache, quire_handover handover, void *buffer,
                                 uint64_t capacity, uint64_t *size_bytes,
                                 quire_handover_progress *progress, quire_error *error) {
    return changing_call("handover_read", cache, error,
                         [&](Cache &core, quire_error *sink) -> Status {
                             QUIRE_TRY(need(size_bytes, "size_bytes is NULL"));
                             if (capacity != 0) QUIRE_TRY(need(buffer, "buffer is NULL"));
                             QUIRE_TRY(check_progress(progress));
                             quire_handover_progress full{};
                             uint64_t written = 0;
                             QUIRE_TRY(core.read_handover(handover, static_cast<uint8_t *>(buffer),
                                                          capacity, &written, &full, sink));
                             *size_bytes = written;
                             tell(full, progress);
                             return Status{};
                         });
}

quire_status quire_handover_receive(quire_cache *cache, const quire_handover_receive_desc *desc,
                                    quire_handover *out, quire_error *error) {
    return changing_call("handover_receive", cache, error,
                         [&](Cache &core, quire_error *) -> Status {
                             quire_handover_receive_desc full{};
                             QUIRE_TRY(read(desc, &full));
                             QUIRE_TRY(need(out, "out is NULL"));
                             quire_seq_desc seq{};
                             quire_key keys[kMaxKeys];
                             if (full.seq != nullptr) {
                                 QUIRE_TRY(read(full.seq, &seq));
                                 QUIRE_TRY(read_keys(seq, keys));
                             }
                             if (full.token_count != 0)
                                 QUIRE_TRY(need(full.tokens, "desc.tokens is NULL"));
                             return core.begin_receive(identity_of(full), full, seq, keys, out);
                         });
}

quire_status quire_handover_write(quire_cache *cache, quire_handover handover, const void *bytes,
                                  uint64_t size_bytes, uint64_t *used,
                                  quire_handover_progress *progress, quire_error *error) {
    return changing_call(
        "handover_write", cache, error, [&](Cache &core, quire_error *sink) -> Status {
            QUIRE_TRY(need(used, "used is NULL"));
            if (size_bytes != 0) QUIRE_TRY(need(bytes, "bytes is NULL"));
            QUIRE_TRY(check_progress(progress));
            quire_handover_progress full{};
            uint64_t taken = 0;
            bool short_of_blocks = false;
            QUIRE_TRY(core.write_handover(handover, static_cast<const uint8_t *>(bytes), size_bytes,
                                          &taken, &short_of_blocks, &full, sink));
            *used = taken;
            tell(full, progress);
            return short_of_blocks ? Status{QUIRE_S_NO_BLOCKS, nullptr, 0, 0} : Status{};
        });
}

quire_status quire_handover_end(quire_cache *cache, quire_handover handover, quire_error *error) {
    return lasting_call("handover_end", cache, error,
                        [&](Cache &core, quire_error *) { return core.end_handover(handover); });
}

}  // extern "C"
