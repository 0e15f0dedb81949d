// SPDX-License-Identifier: Apache-2.0
//
// attend_fragments: the softmax over a chunk by products of fragments, for one unit of up to
// sixteen queries; used for rows of a few tokens.

#include "attend_units.hpp"
#include "fault.hpp"

namespace quire::gpu {

QUIRE_KERNEL(quire_attend_fragments, 128, AttendCall, call) {
    QUIRE_SHARED(FragmentShared<1>, shared);
    if (is_idle(call.head, shared.idle)) return;
    Bundle bundle;
    if (!find_unit(call, kRowsOfTile, group_index(), bundle.unit) ||
        !may_see_any(call, bundle.unit))
        return;
    attend_units(call, shared, bundle);
}

}  // namespace quire::gpu
