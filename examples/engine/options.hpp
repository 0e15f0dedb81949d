// SPDX-License-Identifier: Apache-2.0
//
// options: the command line of the engine.

#pragma once

#include "forward.hpp"
#include "quire/cache_tier.h"
#include "workload.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace engine {

// Where a run moves its cache.
struct MigrateTo {
    std::string text;  // as given on the command line
    std::string device;
    uint32_t device_index = 0;
    uint32_t pool_blocks = 0;  // including the null block; 0: as many as now
    uint32_t tp = 1;           // devices that share the heads there
};

struct Options {
    // One text is made, of a prompt or a session, and not the workload.
    bool tells_one_text() const { return prompt.has_value() || !restore_session.empty(); }

    std::string weights;  // empty: a seeded model
    std::string tokenizer;
    std::optional<std::string> prompt;  // none: use the built-in workload
    std::string save_session;           // the file to keep the prompt's text in; empty: none
    std::string restore_session;        // the file to go on from; empty: none
    std::string prefill_on;             // the device that computes the prompt; empty: the same
    uint32_t prefill_index = 0;
    std::string hand_over_to;               // the address of the engine that goes on; empty: none
    std::string hand_over_listen;           // where a prompt comes from another engine; empty: none
    double hand_over_seconds = 10;          // how long the other engine may be silent
    std::string tier;                       // the store below the cache; empty: none
    std::vector<std::string> tier_options;  // as NAME=VALUE
    uint32_t tier_write = QUIRE_TIER_WRITE_THROUGH;
    std::string device = "cpu";
    uint32_t device_index = 0;
    uint32_t pool_blocks = 128;  // including the null block
    uint32_t block_tokens = 16;
    uint64_t host_bytes = uint64_t{64} << 20;
    bool host_prefixes = false;  // evicted prefixes live on there
    bool partial_hits = false;   // prefixes may end within a block
    std::string kv_dtype = "f32";
    std::string q_dtype = "f32";
    uint32_t pad_heads = 0;          // elements of a head in the cache; 0: the model's
    std::string kv_scale = "token";  // for codes: "tensor", "head" or "token"
    std::string calibrate;           // the file to save magnitudes to; empty: none
    std::string calibration;         // the file that scales are made from; empty: none
    uint32_t max_batch = 16;         // texts in a step
    uint32_t chunk_tokens = 64;      // of prompts, in a step
    uint32_t preempt = 0;            // QUIRE_PREEMPT_*
    uint32_t steps = 256;
    uint32_t chats = kChatCount;  // of the workload
    float temperature = 0.0F;
    uint32_t samples = 1;
    uint64_t seed = 1;
    bool fast_16bit = false;
    bool check = false;
    bool json = false;
    uint32_t tp = 1;                    // ranks that share the heads
    bool processes = false;             // each rank in its own process
    uint32_t kv_heads = 0;              // of the model made from a seed; 0: unchanged
    std::vector<MigrateTo> migrate_to;  // in this order
    uint32_t migrate_every = 40;        // steps
    Fault fault = Fault::none;
    LogFault log_fault = LogFault::none;
};

// Reads the command line. Help goes to stdout, error messages to stderr.
//
// exit_code  of the program, if nothing is returned: 0 after --help, 2 after a mistake.
std::optional<Options> parse_options(int argc, char **argv, int &exit_code);

}  // namespace engine
