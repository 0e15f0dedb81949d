// SPDX-License-Identifier: Apache-2.0

#include "shuffle.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>

namespace quire::bench {

void shuffle_free_blocks(Session *session, quire_cache *cache, uint32_t count) {
    const quire_api &api = session->api;
    std::vector<quire_step_item> items(count);
    std::vector<quire_step_result> results(count);
    auto sequence = described<quire_seq_desc>();
    for (quire_step_item &item : items) {
        session->must(api.seq_create(cache, &sequence, &item.seq, &session->error));
        item.token_count = 1;
    }
    quire_token token = 0;
    auto desc = described<quire_step_desc>();
    desc.queues = &session->queue;
    desc.queue_count = 1;
    quire_step step = 0;
    session->must(api.step_begin(cache, &desc, items.data(), count, sizeof items[0], &token, 1,
                                 results.data(), sizeof results[0], &step, &session->error));
    session->must(api.step_commit(cache, step, nullptr, &session->error));
    session->must(api.step_finish(cache, step, nullptr, QUIRE_STEP_OK, &session->error));
    session->sync();
    std::shuffle(items.begin(), items.end(), std::mt19937(count));
    for (const quire_step_item &item : items) {
        session->must(api.seq_end(cache, item.seq, 0, &session->error));
    }
}

double share_of_neighbours(const std::vector<int32_t> &blocks) {
    if (blocks.size() < 2) return 0;
    size_t neighbours = 0;
    for (size_t i = 1; i < blocks.size(); ++i) {
        if (std::abs(blocks[i] - blocks[i - 1]) == 1) ++neighbours;
    }
    return static_cast<double>(neighbours) / static_cast<double>(blocks.size() - 1);
}

}  // namespace quire::bench
