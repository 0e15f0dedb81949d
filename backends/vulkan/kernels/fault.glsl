// SPDX-License-Identifier: Apache-2.0
//
// fault: how a kernel reports an index out of range (queue.hpp, FaultRecord; fault.cpp).
//
// Only the first report counts. Later kernels on the queue find the turn set and do nothing.

const uint kFaultSlot = 1;
const uint kFaultCounts = 2;
const uint kFaultSharedPrefix = 3;
const uint kFaultMaskWord = 4;
const uint kFaultMaskPosition = 5;
const uint kFaultMaskFirst = 6;
const uint kFaultTableTooShort = 7;
const uint kFaultBlock = 8;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer FaultRecord {
    uvec2 turn;
    uint code;
    uint index;
    ivec4 values;
};

bool has_fault() { return FaultRecord(push.fault).turn != uvec2(0); }

void raise_fault(uint code, uint index, ivec4 values) {
    FaultRecord record = FaultRecord(push.fault);
    if (atomicCompSwap(record.code, 0, code) != 0) return;
    record.index = index;
    record.values = values;
    record.turn = push.turn;
}

shared bool workgroup_is_idle;

// True if the workgroup does not exist or the queue has failed. All lanes get the same answer,
// though other groups of the kernel may raise a fault at any time. Call it first, in uniform
// control flow.
bool is_idle() {
    if (lane() == 0) workgroup_is_idle = workgroup() >= push.workgroup_count || has_fault();
    barrier();
    return workgroup_is_idle;
}
