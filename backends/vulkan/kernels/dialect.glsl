// SPDX-License-Identifier: Apache-2.0
//
// dialect: the words of shared/kernels that GLSL lacks.

#extension GL_EXT_shader_explicit_arithmetic_types_int32 : require

#define QUIRE_FUNCTION
#define QUIRE_IN(Type) Type
#define QUIRE_INOUT(Type) inout Type
#define QUIRE_PRECISE precise

#define kMinusInfinity uintBitsToFloat(0xFF800000u)

uint bits_of(float value) { return floatBitsToUint(value); }
float float_of(uint bits) { return uintBitsToFloat(bits); }
float floor_of(float x) { return floor(x); }
float size_of(float x) { return abs(x); }
float with_sign_of(float x, float size) { return sign(x) * size; }
int smaller(int a, int b) { return min(a, b); }
int larger(int a, int b) { return max(a, b); }
uint smaller(uint a, uint b) { return min(a, b); }
