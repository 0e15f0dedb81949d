// SPDX-License-Identifier: Apache-2.0

#include "core/replica/log.hpp"

#include "core/base/hash.hpp"

namespace quire {

namespace {

// The hash of a run of words, seeded with that of what comes before.
uint64_t mix(const void *bytes, uint64_t size_bytes, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, size_bytes, seed);
}

uint64_t digest_entry(const LogSequence &s, uint32_t group, uint32_t index, uint32_t id) {
    const uint32_t words[] = {s.index, group | (s.swapped() ? 1u << 31 : 0u), index, id};
    return mix(words, sizeof words, 0);
}

template <typename ShapeOf>
uint64_t digest_head(const LogSequence &s, uint32_t group_count, ShapeOf shape_of) {
    if (s.handle == 0) return 0;
    uint64_t hash = mix(&s, sizeof s, 0);
    for (uint32_t g = 0; g < group_count; ++g) {
        LogTable shape = shape_of(g);
        const uint32_t words[] = {shape.length, shape.null_front};
        hash = mix(words, sizeof words, hash);
    }
    return hash;
}

uint64_t checksum(const uint8_t *bytes, uint64_t size_bytes) {
    LogHeader header;
    std::memcpy(&header, bytes, sizeof header);
    header.checksum = 0;
    return mix(bytes + sizeof header, size_bytes - sizeof header, mix(&header, sizeof header, 0));
}

}  // namespace

uint64_t digest_change(const SequenceChange &change, uint32_t group_count) {
    uint64_t sum =
        digest_head(change.after, group_count, [&](uint32_t g) { return change.tables[g].shape; });
    sum -= digest_head(change.before, group_count, [&](uint32_t g) {
        return LogTable{change.old_tables[g].length, change.old_tables[g].null_front, 0};
    });
    walk_entries(
        change, group_count,
        [&](uint32_t g, uint32_t i, uint32_t id) { sum -= digest_entry(change.before, g, i, id); },
        [&](uint32_t g, uint32_t i, uint32_t id) { sum += digest_entry(change.after, g, i, id); });
    return sum;
}

uint64_t digest_state(uint64_t sum, const uint32_t *held, const uint32_t *host_held,
                      uint32_t group_count) {
    for (uint32_t g = 0; g < group_count; ++g) {
        const uint32_t words[] = {held[g], host_held[g]};
        sum = mix(words, sizeof words, sum);
    }
    return sum;
}

uint64_t digest_geometry(const Geometry &geometry, const LayerInGroup *places,
                         uint32_t max_sequences, const Array<float> &scales) {
    const uint32_t sizes[] = {geometry.block_tokens, geometry.group_count, geometry.layer_count,
                              geometry.max_sequence_tokens, max_sequences};
    uint64_t hash = mix(sizes, sizeof sizes, 0);
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        const GroupGeometry &group = geometry.groups[g];
        const uint32_t words[] = {group.kind,        group.window,   group.sink_tokens,
                                  group.layer_count, group.kv_heads, group.k_head_dim,
                                  group.v_head_dim,  group.k_dtype,  group.v_dtype,
                                  group.k_scale,     group.v_scale,  group.blocks,
                                  group.host_blocks};
        hash = mix(words, sizeof words, hash);
    }
    for (uint32_t layer = 0; layer < geometry.layer_count; ++layer) {
        hash = mix(&places[layer].group, sizeof places[layer].group, hash);
    }
    for (uint32_t g = 0; g < geometry.group_count && !geometry.uniform; ++g) {
        const uint32_t block_tokens = geometry.groups[g].size.tokens();
        hash = mix(&block_tokens, sizeof block_tokens, hash);
    }
    for (uint32_t g = 0; g < geometry.group_count && geometry.any_recurrent; ++g) {
        const uint32_t states[] = {geometry.groups[g].state_interval,
                                   geometry.groups[g].draft_states};
        hash = mix(states, sizeof states, hash);
    }
    for (uint32_t g = 0; g < geometry.group_count && geometry.any_opaque; ++g)
        hash = mix(&geometry.groups[g].opaque_bytes, sizeof(uint32_t), hash);
    constexpr uint32_t one_pool = 1;
    if (geometry.one_pool) hash = mix(&one_pool, sizeof one_pool, hash);
    if (!scales.empty()) hash = mix(scales.data(), scales.size() * sizeof(float), hash);
    return hash;
}

void seal(uint8_t *bytes, uint64_t size_bytes) {
    uint64_t sum = checksum(bytes, size_bytes);
    std::memcpy(bytes + offsetof(LogHeader, checksum), &sum, sizeof sum);
}

Status check_sealed(const uint8_t *bytes, uint64_t size_bytes, LogHeader *header) {
    if (size_bytes < sizeof *header) {
        return fail(QUIRE_E_ARG, "damaged log: {} bytes, but a header takes {}", size_bytes,
                    sizeof *header);
    }
    std::memcpy(header, bytes, sizeof *header);
    if (header->magic != kLogMagic)
        return fail(QUIRE_E_ARG, "damaged log, or not a log: wrong magic");
    if (header->size_bytes != size_bytes) {
        return fail(QUIRE_E_ARG, "damaged log: {} bytes, but its header says {}", size_bytes,
                    header->size_bytes);
    }
    if (header->checksum != checksum(bytes, size_bytes)) {
        return fail(QUIRE_E_ARG, "damaged log: its checksum does not match");
    }
    if (header->version != kLogVersion) {
        return fail(QUIRE_E_INCOMPATIBLE, "the log's version is {}, this library reads {}",
                    header->version, kLogVersion);
    }
    return Status{};
}

LogSequence describe_sequence(const Sequence &s, uint64_t handle, uint32_t index) {
    const SequenceState &state = s.state;
    return LogSequence{handle,          index,          0,
                       state.known,     state.computed, state.drafts,
                       state.lookahead, state.flags,    state.preemptions,
                       s.priority,      s.cross_tokens};
}

}  // namespace quire
