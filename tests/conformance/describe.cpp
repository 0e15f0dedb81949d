// SPDX-License-Identifier: Apache-2.0

#include "describe.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "capabilities.hpp"
#include "number.hpp"
#include "quire/cache.h"
#include "shapes.hpp"
#include "subject.hpp"

namespace quire::conformance {

namespace {

// A plugin's text is not trusted to be terminated.
std::string bounded(const char *text, size_t capacity) {
    return text == nullptr ? "" : std::string(text, strnlen(text, capacity));
}

std::string first_missing(const char *slots, const std::vector<std::string> &there) {
    std::istringstream in(slots);
    for (std::string slot; in >> slot;) {
        if (std::find(there.begin(), there.end(), slot) == there.end()) return slot;
    }
    return {};
}

struct Cell {
    SweptShape swept;
    Answer answer;
};

const char *word_of(uint32_t support) {
    if (support == QUIRE_BE_YES) return "yes";
    return support == QUIRE_BE_SLOW ? "slow" : "no";
}

const char *scales_of(uint32_t kind) {
    if (kind == QUIRE_SCALE_TENSOR) return "per tensor";
    if (kind == QUIRE_SCALE_HEAD) return "per head";
    return kind == QUIRE_SCALE_TOKEN_HEAD ? "per token and head" : "";
}

Json describe_cell(const Cell &cell) {
    const quire_be_attention_query &shape = cell.swept.shape;
    Json out;
    out["kind"] = name_of(cell.swept.kind);
    out["q"] = cell.swept.kind == Kind::write ? "" : name_of(shape.q_dtype);
    out["k"] = name_of(shape.k_dtype);
    out["v"] = name_of(shape.v_dtype);
    out["k_scales"] = scales_of(shape.k_scale_kind);
    out["v_scales"] = scales_of(shape.v_scale_kind);
    out["k_dim"] = shape.k_head_dim;
    out["v_dim"] = shape.v_head_dim;
    out["block_tokens"] = shape.block_tokens;
    out["support"] = word_of(cell.answer.support);
    out["reason"] = cell.answer.reason;
    return out;
}

std::vector<Cell> ask_all(Rig &rig) {
    std::vector<Cell> cells;
    if (api().query_attention == nullptr) return cells;
    for (const SweptShape &swept : swept_shapes()) {
        // A write has no query, so of the types that differ in q alone one is enough.
        bool is_repeated =
            swept.kind == Kind::write && !cells.empty() &&
            std::any_of(cells.begin(), cells.end(), [&](const Cell &cell) {
                return std::memcmp(&cell.swept.shape, &swept.shape, sizeof swept.shape) == 0;
            });
        if (!is_repeated) cells.push_back({swept, ask(rig, swept.shape)});
    }
    return cells;
}

// Empty if the capability is offered, or else the reason why not.
std::string why_not(const Capability &one, const std::vector<std::string> &slots,
                    uint32_t device_count, const std::vector<Cell> &cells) {
    if (one.backend != nullptr && std::strcmp(one.backend, api().name) != 0) {
        return std::string("only for the backend ") + one.backend;
    }
    std::string missing = first_missing(one.slots, slots);
    if (!missing.empty()) return missing + " is NULL";
    if (std::strcmp(one.name, "loading") == 0) return {};
    if (device_count == 0) return "no device found";
    if (one.fits == nullptr) return {};
    // Prefers the reason for a common head dim, which is about the capability and not the dim.
    std::string reason;
    bool is_common = false;
    for (const Cell &cell : cells) {
        if (!one.fits(cell.swept)) continue;
        if (cell.answer.support != QUIRE_BE_NO) return {};
        if (!is_common) reason = cell.answer.reason;
        is_common = is_common || cell.swept.shape.k_head_dim == 128;
    }
    return reason.empty() ? "not queried" : reason;
}

Json describe_device(Rig &rig) {
    Json out;
    if (api().device_props == nullptr) return out;
    quire_be_device_props props{};
    props.struct_size = sizeof props;
    Error error;
    must(api().device_props(rig.device(), &props, &error), error);
    out["name"] = bounded(props.name, sizeof props.name);
    out["memory_total_bytes"] = props.memory_total_bytes;
    out["memory_free_bytes"] = props.memory_free_bytes;
    out["host_visible"] = props.host_visible != 0;
    return out;
}

}  // namespace

Json describe() {
    Json out;
    out["name"] = bounded(api().name, 31);
    out["version"] = bounded(api().version, 31);
    out["abi"] = std::to_string(api().abi_major) + "." + std::to_string(api().abi_minor);
    std::vector<std::string> slots = filled_functions();
    out["slots"] = slots;
    uint32_t device_count = 0;
    Error error;
    if (api().probe != nullptr) must(api().probe(&device_count, &error), error);
    out["device_count"] = device_count;
    std::vector<Cell> cells;
    bool can_open = api().device_open != nullptr && api().device_close != nullptr;
    if (device_count != 0 && can_open) {
        Rig rig;
        out["device"] = describe_device(rig);
        cells = ask_all(rig);
    }
    out["matrix"] = Json::array();
    for (const Cell &cell : cells) out["matrix"].push_back(describe_cell(cell));
    for (const Capability &one : capabilities()) {
        out["offered"][one.name] = why_not(one, slots, device_count, cells);
    }
    return out;
}

}  // namespace quire::conformance
