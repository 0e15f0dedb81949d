// SPDX-License-Identifier: Apache-2.0

#include "streaming.hpp"

#include <algorithm>
#include <vector>

#include "kernels.hpp"
#include "pages.hpp"
#include "workers.hpp"

namespace quire::bench {

namespace {

constexpr uint64_t kPieceBytes = 4096;
constexpr int kRepetitions = 4;

std::vector<Run> pieces_of(const Pages &pages) {
    std::vector<Run> pieces;
    for (uint64_t at = 0; at < pages.size_bytes(); at += kPieceBytes) {
        pieces.push_back({pages.bytes() + at, std::min(kPieceBytes, pages.size_bytes() - at)});
    }
    return pieces;
}

uint64_t read(int pattern, Run run, const Run *pieces, uint64_t piece_count) {
    switch (pattern) {
        case 0:
            return kernels().read_forward(run);
        case 1:
            return kernels().read_four_streams(run);
        default:
            return kernels().read_runs(pieces, piece_count);
    }
}

}  // namespace

Streaming streaming_read(uint64_t size_bytes, uint32_t threads) {
    static constexpr const char *kNames[] = {"forward", "four streams", "prefetched pieces"};
    Pages pages(std::max(size_bytes / kPieceBytes, uint64_t{threads}) * kPieceBytes);
    pages.fill();
    std::vector<Run> pieces = pieces_of(pages);
    Streaming best = {0, kNames[0]};
    // Alternating, so that a disturbance affects all three.
    for (int round = 0; round < kRepetitions; ++round) {
        for (int pattern = 0; pattern < 3; ++pattern) {
            double seconds = seconds_together(threads, [&](uint32_t worker) {
                Share share = share_of(pieces.size(), worker, threads);
                uint64_t count = share.end - share.begin;
                Run run = {pieces[share.begin].at, count * kPieceBytes};
                keep(read(pattern, run, &pieces[share.begin], count));
            });
            double gbps = static_cast<double>(pages.size_bytes()) / seconds / 1e9;
            if (gbps > best.gbps) best = {gbps, kNames[pattern]};
        }
    }
    return best;
}

}  // namespace quire::bench
