// SPDX-License-Identifier: Apache-2.0
//
// refuse: calls with a handle that is ended, foreign, forged or of another type must be
// QUIRE_E_STALE and change nothing.
#include "leases_only.hpp"
#include "world.hpp"

namespace sim {

uint64_t World::wrong_handle(uint32_t kind, uint32_t pick) const {
    const uint64_t live =
        sequences.empty() ? 0x0100000100000000ull : sequences[pick % sequences.size()]->handle;
    switch (kind) {
        case 0:
            return 0;
        case 1:
            return stale_.empty() ? live + (1ull << 32) : stale_[pick % stale_.size()];
        case 2:
            return live ^ (1ull << (32 + pick % 24));
        case 3:
            return live ^ (1ull << (56 + pick % 8));
        case 4:
            return live | 0x7FFFFFFFu;
        case 5:
            return foreign[pick % foreign.size()];
        case 6:
            return stale_steps_.empty() ? 1 : stale_steps_[pick % stale_steps_.size()];
        default:
            return mix(pick, 99);
    }
}

// Calls function number `function` with the handle; `what` becomes its name, or stays NULL.
quire_status World::call_with(uint64_t handle, uint32_t function, const char *&what) {
    quire_status status = QUIRE_OK;
    uint32_t count = 0;
    uint32_t token = 1;
    quire_seq child = 0;
    quire_seq_info seq_info{};
    seq_info.struct_size = sizeof seq_info;
    quire_namespace_info space_info{};
    space_info.struct_size = sizeof space_info;
    quire_token_span span{handle, 0, 0, 1, 0};
    quire_block_copy copies[4];
    int32_t ids[4];
#define SIM_CALL(name, ...)                          \
    what = #name;                                    \
    status = q_->name(cache_, __VA_ARGS__, &error_); \
    break;
    switch (function) {
        case 0:
            SIM_CALL(seq_end, handle, 0)
        case 1:
            SIM_CALL(seq_fork, handle, 0, &child)
        case 2:
            SIM_CALL(seq_truncate, handle, 0)
        case 3:
            SIM_CALL(seq_accept, handle, 0)
        case 4:
            SIM_CALL(seq_accept_path, handle, nullptr, 0)
        case 5:
            SIM_CALL(seq_set_tokens, &span, 1, sizeof span, &token, 1)
        case 6:
            SIM_CALL(seq_get_info, handle, &seq_info)
        case 7:
            SIM_CALL(prefix_probe, handle, &token, 1, &count)
        case 8:
            SIM_CALL(step_blocks, 0, handle, 0, 0, ids, 4, &count)
        case 9:
            SIM_CALL(step_abort, handle)
        case 10:
            SIM_CALL(step_commit, handle, nullptr)
        case 11:
            SIM_CALL(step_finish, handle, nullptr, 0)
        case 12:
            SIM_CALL(step_copies, handle, copies, 4, sizeof copies[0], &count)
        case 13:
            if (handle == 0) return QUIRE_OK;
            SIM_CALL(namespace_destroy, handle)
        case 14:
            if (handle == 0) return QUIRE_OK;
            SIM_CALL(namespace_get_info, handle, &space_info)
        default:
            if (!open) return QUIRE_OK;
            SIM_CALL(step_drop, open->handle, handle, &child, 1, &count)
    }
#undef SIM_CALL
    return status;
}

bool World::refuse(const Op &op) {
    const uint64_t handle = wrong_handle(op.f[1] % 8, op.f[2]);
    for (const auto &seq : sequences)
        if (seq->handle == handle) {
            if (op.f[1] % 8 == 5) ++tally_->foreign_equal;
            return false;
        }
    for (const auto &lease : leases)
        if (lease->handle == handle) return false;
    if (open && open->handle == handle) return false;
    for (const Step &step : committed)
        if (step.handle == handle) return false;
    for (const Namespace &ns : namespaces)
        if (ns.handle == handle && op.f[0] % 16 >= 13) return false;
    // May be the default namespace's own.
    if (op.f[1] % 8 == 3 && (op.f[0] % 16 == 13 || op.f[0] % 16 == 14)) return false;
    const Snapshot before = look(true);
    const char *what = nullptr;
    const quire_status status = call_with(handle, op.f[0] % 16, what);
    if (what == nullptr) return false;
    if (status != QUIRE_E_STALE && !(lone_ && status == QUIRE_E_UNSUPPORTED))
        fail("stale-handle", "%s with handle 0x%llx (kind %u) answered %d", what,
             static_cast<unsigned long long>(handle), op.f[1] % 8, status);
    ++tally_->refused_calls;
    unchanged(before, "error-changes");
    return true;
}

}  // namespace sim
