// SPDX-License-Identifier: Apache-2.0
//
// call: the beginning of every kernel: extensions, push constants, and addresses.
//
// Memory is reached only by 64-bit addresses: a pool may be larger than any descriptor covers, and
// offsets are 64 bits wide. An address from kDividedBegin on belongs to an allocation of several
// buffers (memory.hpp); real() finds it there, one element at a time, since no element crosses the
// end of a chunk.
//
// Workgroups have 64 lanes and are numbered consecutively, row after row of the grid; nothing
// depends on the size of subgroups.

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require

const uint kLanes = 64;
layout(local_size_x = 64) in;

layout(constant_id = 0) const uint kIsDivided = 0;

// recorder.cpp, Push.
layout(push_constant, scalar) uniform Push {
    uint64_t arguments;
    uint64_t fault;
    uint64_t chunk_table;
    uint chunk_shift;
    uvec2 turn;
    uint reserved0;
    uint64_t workgroup_count;
} push;

layout(buffer_reference, scalar, buffer_reference_align = 1) buffer Byte { uint8_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Half { uint16_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Word { uint v; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Wide { uint64_t v; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer TwoWords { uvec2 v; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer FourWords { uvec4 v; };

const uint64_t kDividedBegin = 1ul << 60;

uint64_t real(uint64_t address) {
    if (kIsDivided == 0 || address < kDividedBegin) return address;
    uint64_t offset = address - kDividedBegin;
    uint64_t entry = offset >> push.chunk_shift;
    uint64_t mask = (1ul << push.chunk_shift) - 1;
    return Wide(push.chunk_table + entry * 8).v + (offset & mask);
}

uint load_byte(uint64_t at) { return uint(Byte(real(at)).v); }
uint load_half(uint64_t at) { return uint(Half(real(at)).v); }
uint load_word(uint64_t at) { return Word(real(at)).v; }
uint64_t load_wide(uint64_t at) { return Wide(real(at)).v; }
int load_int(uint64_t array, int64_t index) { return int(load_word(array + uint64_t(index) * 4)); }
float load_float(uint64_t array, int64_t index) {
    return uintBitsToFloat(load_word(array + uint64_t(index) * 4));
}
void store_byte(uint64_t at, uint value) { Byte(real(at)).v = uint8_t(value); }
void store_half(uint64_t at, uint value) { Half(real(at)).v = uint16_t(value); }
void store_word(uint64_t at, uint value) { Word(real(at)).v = value; }

uint lane() { return gl_LocalInvocationIndex; }
uint64_t workgroup() {
    return uint64_t(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}
