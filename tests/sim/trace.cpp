// SPDX-License-Identifier: Apache-2.0
//
// trace: prints the world after an operation, for a person who reads a script.
#include <cstdio>

#include "world.hpp"

namespace sim {

void World::trace(const Op &op) {
    printf("%s\n", to_text(op).c_str());
    if (op.kind == OpKind::item) return;
    for (const auto &seq : sequences) {
        const quire_seq_info got = info(*seq);
        printf(
            "    seq %u 0x%llx ns %u known %u computed %u drafts %u ahead %u flags 0x%x adm %llu:",
            seq->id, static_cast<unsigned long long>(seq->handle), seq->ns, got.known_tokens,
            got.computed_tokens, got.draft_tokens, got.lookahead_tokens, got.flags,
            static_cast<unsigned long long>(seq->admitted));
        for (uint32_t g = 0; g < blocks_.size(); ++g) {
            for (const int32_t id : table(*seq, g)) printf(" %d", id);
            printf(g + 1 < blocks_.size() ? " |" : "\n");
        }
    }
    quire_cache_stats s{};
    s.struct_size = sizeof s;
    q_->cache_get_stats(cache_, &s, &error_);
    if ((config.flags & QUIRE_CACHE_HOST_PREFIXES) != 0)
        printf("    host: used %llu cached %llu; demoted %llu promoted %llu evictions %llu\n",
               static_cast<unsigned long long>(s.host_blocks_used),
               static_cast<unsigned long long>(s.host_blocks_cached),
               static_cast<unsigned long long>(s.blocks_demoted),
               static_cast<unsigned long long>(s.blocks_promoted),
               static_cast<unsigned long long>(s.evictions));
    printf("    free %llu cached %llu held %llu nodes %llu hits %llu of %llu; unfinished:",
           static_cast<unsigned long long>(s.blocks_free),
           static_cast<unsigned long long>(s.blocks_cached),
           static_cast<unsigned long long>(s.blocks_held), static_cast<unsigned long long>(s.nodes),
           static_cast<unsigned long long>(s.prefix_cache_hits),
           static_cast<unsigned long long>(s.prefix_cache_queries));
    for (const Step &step : committed) printf(" %u(queue %u)", step.id, step.queue);
    printf("\n");
    if (open)
        for (const Row &row : open->rows)
            printf("    open row: seq %u first %u count %u hit %u ahead %u\n", row.seq, row.first,
                   row.count, row.hit, row.ahead);
    trace_tier();
    if (op.kind != OpKind::commit || committed.empty()) return;
    quire_block_copy copies[64];
    uint32_t count = 0;
    q_->step_copies(cache_, committed.back().handle, copies, 64, sizeof copies[0], &count, &error_);
    for (uint32_t i = 0; i < count && i < 64; ++i)
        printf("    copy kind %u group %u: %d.%u -> %d.%u\n", copies[i].kind, copies[i].group,
               copies[i].src, copies[i].src_place, copies[i].dst, copies[i].dst_place);
}

}  // namespace sim
