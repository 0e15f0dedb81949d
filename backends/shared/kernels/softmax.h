// SPDX-License-Identifier: Apache-2.0
//
// softmax: exponential, logarithm and tanh in f32, accurate to one or two ulp, the same on every
// device.
//
// The polynomials are those of Cephes (expf, logf, tanhf), with minimax coefficients.
//
// Written in what C++ and GLSL have in common; each language's dialect defines the rest
// (gpu/kernels/dialect.hpp, vulkan/kernels/dialect.glsl).

// For x <= 0 or NaN; the result is 0 below -87.
QUIRE_FUNCTION float exp_of(float x) {
    if (x < -87.0f) return 0.0f;
    float n = floor_of(x * 1.44269504088896341f + 0.5f);
    QUIRE_PRECISE float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r +
                4.1665795894e-2f) *
                   r +
               1.6666665459e-1f) *
                  r +
              5.0000001201e-1f;
    float y = p * r * r + r + 1.0f;
    if (y != y) return y;  // a NaN is no integer
    return y * float_of(uint32_t(int32_t(n) + 127) << 23);
}

// exp(from - to). REQUIRES: from <= to. Both may be the same infinity, and their difference NaN.
QUIRE_FUNCTION float exp_of_difference(float from, float to) {
    return from == to ? 1.0f : exp_of(from - to);
}

// For normal numbers above 0.
QUIRE_FUNCTION float log_of(float x) {
    uint32_t bits = bits_of(x);
    if (bits >= 0x7F800000u) return x;  // an infinity or a NaN has no exponent
    float exponent = float(int32_t(bits >> 23) - 126);
    float m = float_of((bits & 0x7FFFFFu) | 0x3F000000u);  // [0.5, 1)
    if (m < 0.707106781186547524f) {
        exponent -= 1.0f;
        m = m + m;
    }
    m -= 1.0f;
    float z = m * m;
    float p = 7.0376836292e-2f * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = (p * m + 3.3333331174e-1f) * m * z;
    QUIRE_PRECISE float y = p + exponent * -2.12194440e-4f;
    y = y - 0.5f * z;
    return m + y + exponent * 0.693359375f;
}

QUIRE_FUNCTION float tanh_of(float x) {
    float size = size_of(x);
    if (size < 0.625f) {
        float z = x * x;
        float p = -5.70498872745e-3f * z + 2.06390887954e-2f;
        p = p * z - 5.37397155531e-2f;
        p = p * z + 1.33314422036e-1f;
        return (p * z - 3.33332819422e-1f) * z * x + x;
    }
    float below = exp_of(-2.0f * size);
    return with_sign_of(x, 1.0f - 2.0f * below / (1.0f + below));
}
