// SPDX-License-Identifier: Apache-2.0
//
// runner: see runner.hpp.
#include "runner.hpp"

#include <sstream>
#include <utility>

#include "store.hpp"

namespace sim {
namespace {

constexpr size_t kCheckEvery = 12;  // operations between two quire_cache_check
constexpr size_t kAuditEvery = 24;  // and between two audits
constexpr uint32_t kCalmPart = 10;  // in the last of so many parts, faults have stopped

}  // namespace

std::string to_text(const Script &script) {
    std::string text = to_text(script.config);
    for (const Op &op : script.ops) text += to_text(op) + "\n";
    return text;
}

Script parse_script(const std::string &text) {
    Script script;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (!line.empty() && line[0] != '#' && !parse_config_line(line, script.config))
            script.ops.push_back(parse_op(line));
    if (script.config.groups.empty()) throw std::string("the script has no group line");
    return script;
}

Runner::Runner(const quire_api *api, const std::string &plugin) : q_(api) {
    quire_error error{};
    error.struct_size = sizeof error;
    quire_instance_desc desc{};
    desc.struct_size = sizeof desc;
    if (!Store::directory.empty()) desc.plugin_path = Store::directory.c_str();
    if (q_->instance_create(&desc, &instance_, &error) < 0)
        throw std::string("quire_instance_create: ") + error.message;
    uint32_t index = 0;
    if (!plugin.empty() && q_->backend_load(instance_, plugin.c_str(), &index, &error) < 0)
        throw std::string("quire_backend_load: ") + error.message;
    quire_group_desc group{};
    group.struct_size = sizeof group;
    group.layer_count = group.kv_heads = 1;
    group.k_head_dim = group.v_head_dim = 8;
    group.blocks = 16;
    quire_cache_desc cache{};
    cache.struct_size = sizeof cache;
    cache.groups = &group;
    cache.group_count = 1;
    cache.group_stride = sizeof group;
    cache.flags = QUIRE_CACHE_FIXED_HASH;
    if (q_->cache_create(instance_, &cache, &foreign_, &error) < 0)
        throw std::string("quire_cache_create: ") + error.message;
    for (int i = 0; i < 4; ++i) {
        quire_seq_desc seq{};
        seq.struct_size = sizeof seq;
        quire_seq handle = 0;
        if (q_->seq_create(foreign_, &seq, &handle, &error) == QUIRE_OK)
            foreign_handles_.push_back(handle);
    }
}

Runner::~Runner() { q_->cache_destroy(foreign_, nullptr); }

template <class Next>
Outcome Runner::play(const Config &config, bool strict, Next next) {
    Outcome outcome;
    current_.config = config;
    current_.ops.clear();
    // What the library's abort would leave half done is left alone: this world's cache and memory.
    auto *owned = new std::unique_ptr<World>;
    if (sigsetjmp(escape, 1) != 0) {
        outcome.finding = Finding{crash, "the library raised a signal"};
        outcome.at = current_.ops.empty() ? 0 : current_.ops.size() - 1;
        outcome.script = current_;
        return outcome;
    }
    size_t at = 0;
    try {
        *owned = std::make_unique<World>(q_, instance_, config, &tally, known);
        const auto settle = [&] {
            (*owned)->strict = strict;
            (*owned)->foreign = foreign_handles_;
        };
        settle();
        Op check;
        Op audit;
        audit.kind = OpKind::audit;
        for (Op op; next(**owned, at, op); ++at) {
            World &world = **owned;
            current_.ops.push_back(op);
            try {
                world.execute(op);
            } catch (const Finding &) {
                if (trace) world.trace(op);
                throw;
            }
            if (trace) world.trace(op);
            if (world.is_abandoned()) {
                *owned = std::make_unique<World>(q_, instance_, config, &tally, known);
                settle();
                continue;
            }
            if (op.kind == OpKind::item) continue;
            if (strict || at % kCheckEvery == 0) world.execute(check);
            if (strict || at % kAuditEvery == 0) world.execute(audit);
        }
        (*owned)->close();
    } catch (Finding &finding) {
        outcome.finding = std::move(finding);
        outcome.at = at;
        outcome.script = current_;
    }
    delete owned;
    return outcome;
}

Outcome Runner::random(uint64_t seed, uint32_t op_count, FeatureSet allowed) {
    const Config config = draw_config(seed, allowed);
    std::optional<Chooser> chooser;
    const bool live = config.has(Feature::live);
    bool concluded = !live;
    return play(config, false, [&](const World &world, size_t at, Op &op) {
        if (!chooser) chooser.emplace(world, seed);
        chooser->look_at(world);
        if (at >= op_count || (choice_tape != nullptr && choice_tape->left == 0)) {
            op = Op();
            op.kind = OpKind::conclude;
            return !std::exchange(concluded, true);
        }
        op = live && at == op_count - op_count / kCalmPart ? chooser->calm() : chooser->next();
        return true;
    });
}

Outcome Runner::replay(const Script &script, bool strict) {
    return play(script.config, strict, [&](const World &, size_t at, Op &op) {
        if (at >= script.ops.size()) return false;
        op = script.ops[at];
        return true;
    });
}

}  // namespace sim
