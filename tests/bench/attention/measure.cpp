// SPDX-License-Identifier: Apache-2.0

#include "measure.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/bench/machine/failure.hpp"
#include "tests/bench/machine/median.hpp"
#include "tests/bench/machine/rounds.hpp"
#include "tests/bench/machine/table_read.hpp"
#include "tests/bench/scene/scene.hpp"
#include "tests/bench/scene/shuffle.hpp"

namespace quire::bench {

namespace {

// In random order, 2 / n of n entries are adjacent to the one before; few blocks prove nothing.
void check_shuffled(const std::vector<int32_t> &tables) {
    constexpr size_t kEnough = 256;
    double share = share_of_neighbours(tables);
    if (tables.size() < kEnough || share < 0.05) return;
    throw Failure("the tables are not in random order: of " + std::to_string(tables.size()) +
                  " blocks " + std::to_string(100 * share) + " % are adjacent to the one before");
}

// Grows each sequence to `tokens`: the last ones by steps of one token, the last of which stays
// open. Returns the host's time to plan each of these steps.
std::vector<double> decode(Scene *scene, uint32_t tokens) {
    constexpr uint32_t kSteps = 9;
    uint32_t steps = std::min(kSteps, tokens);
    scene->grow(tokens - steps);
    std::vector<double> seconds;
    for (uint32_t i = 0; i < steps; ++i) {
        if (i != 0) scene->close_step();
        scene->open_step(1);
        seconds.push_back(scene->plan_seconds());
    }
    return seconds;
}

// The runs of all layers, layer after layer.
std::vector<Run> all_runs(Scene *scene, uint32_t layers, uint64_t block_bytes) {
    std::vector<int32_t> tables = scene->tables();
    check_shuffled(tables);
    std::vector<Run> all;
    for (uint32_t layer = 0; layer < layers; ++layer) {
        std::vector<Run> runs = layer_runs(scene->pool(), tables, layer, block_bytes);
        all.insert(all.end(), runs.begin(), runs.end());
    }
    return all;
}

}  // namespace

Measured measure_attention(const Subject &subject, const Shape &shape, const WorkingSet &set,
                           double seconds) {
    const Dtype &dtype = subject.dtype;
    uint32_t threads = subject.threads;
    Measured measured = {};
    uint64_t tokens = uint64_t{shape.sequences} * shape.tokens;
    uint64_t bytes_a_token = token_bytes(dtype, shape.kv_heads, shape.dim);
    measured.unique_bytes = tokens * bytes_a_token;
    measured.operations = attention_operations(shape, shape.tokens - 1, 1);
    // Rounded up, but down if memory is short.
    uint64_t layers =
        (set.size_bytes + (set.is_capped ? 0 : measured.unique_bytes - 1)) / measured.unique_bytes;
    measured.layers = static_cast<uint32_t>(std::clamp<uint64_t>(layers, 1, 1024));
    Scene scene({shape, dtype, measured.layers, threads, 1, subject.device, subject.device_flags});
    std::vector<double> plans = decode(&scene, shape.tokens);
    // If the host cannot access a device's memory, there is no host read to compare with.
    std::vector<Run> runs;
    if (scene.is_host_visible()) {
        runs = all_runs(&scene, measured.layers, kBlockTokens * bytes_a_token);
    }
    std::vector<double> attention, calls, table;
    Rounds rounds(seconds);
    while (rounds.next()) {
        double read_seconds = runs.empty() ? 0.0 : seconds_to_read(runs, threads);
        table.push_back(read_seconds / measured.layers);
        Attended attended = scene.attend();
        attention.push_back(attended.seconds);
        calls.push_back(attended.call_seconds);
    }
    scene.close_step();
    measured.q_dtype = name_of_dtype(scene.q_dtype());
    measured.seconds = median(attention);
    measured.plan_seconds = median(plans);
    measured.call_seconds = median(calls);
    measured.table_seconds = median(table);
    measured.best_table_seconds = *std::min_element(table.begin(), table.end());
    measured.rounds = rounds.count();
    return measured;
}

}  // namespace quire::bench
