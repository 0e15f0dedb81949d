// SPDX-License-Identifier: Apache-2.0
//
// engine: an engine's own kernel: to[i] = 2 from[i], by addresses.
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(local_size_x = 64) in;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float v[]; };

layout(push_constant, scalar) uniform Push {
    uint64_t from;
    uint64_t to;
    uint count;
} push;

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < push.count) Floats(push.to).v[i] = 2.0 * Floats(push.from).v[i];
}
