// SPDX-License-Identifier: Apache-2.0
//
// attend_prefill: like attend_fragments, with the same bits, for several units of a row, such as a
// prompt's. Each tile of K and V is read once for all of them.

#include "attend_units.hpp"
#include "fault.hpp"

namespace quire::gpu {

QUIRE_KERNEL(quire_attend_prefill, 128 * kTeamsOfBlock, AttendCall, call) {
    QUIRE_LARGE_SHARED(FragmentShared<kTeamsOfBlock>, shared, kPrefillSharedBytes);
    if (is_idle(call.head, shared.idle)) return;
    Bundle bundle;
    if (!find_bundle<kTeamsOfBlock>(call, &bundle) || !may_see_any(call, bundle)) return;
    attend_units(call, shared, bundle);
}

}  // namespace quire::gpu
