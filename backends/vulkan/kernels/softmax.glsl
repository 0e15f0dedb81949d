// SPDX-License-Identifier: Apache-2.0
//
// softmax: exponential, logarithm and tanh in f32, accurate to one or two ulp, the same on every
// device.
//
// The polynomials are those of Cephes (expf, logf, tanhf), with minimax coefficients.

#define kMinusInfinity uintBitsToFloat(0xFF800000u)

// For x <= 0 or NaN; the result is 0 below -87.
float exp_of(float x) {
    if (x < -87.0) return 0.0;
    float n = floor(x * 1.44269504088896341 + 0.5);
    precise float r = x - n * 0.693359375;
    r = r + n * 2.12194440e-4;
    float p = ((((1.9875691500e-4 * r + 1.3981999507e-3) * r + 8.3334519073e-3) * r +
                4.1665795894e-2) * r + 1.6666665459e-1) * r + 5.0000001201e-1;
    float y = p * r * r + r + 1.0;
    return y * uintBitsToFloat(uint(int(n) + 127) << 23);
}

// For normal numbers above 0.
float log_of(float x) {
    uint bits = floatBitsToUint(x);
    if (bits >= 0x7F800000u) return x;  // an infinity or a NaN has no exponent
    float exponent = float(int(bits >> 23) - 126);
    float m = uintBitsToFloat((bits & 0x7FFFFFu) | 0x3F000000u);  // [0.5, 1)
    if (m < 0.707106781186547524) {
        exponent -= 1.0;
        m = m + m;
    }
    m -= 1.0;
    float z = m * m;
    float p = ((((((((7.0376836292e-2 * m - 1.1514610310e-1) * m + 1.1676998740e-1) * m -
                    1.2420140846e-1) * m + 1.4249322787e-1) * m - 1.6668057665e-1) * m +
                 2.0000714765e-1) * m - 2.4999993993e-1) * m + 3.3333331174e-1) * m * z;
    precise float y = p + exponent * -2.12194440e-4;
    y = y - 0.5 * z;
    return m + y + exponent * 0.693359375;
}

float tanh_of(float x) {
    float size = abs(x);
    if (size < 0.625) {
        float z = x * x;
        return ((((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z +
                 1.33314422036e-1) * z - 3.33332819422e-1) * z * x + x;
    }
    float below = exp_of(-2.0 * size);
    return sign(x) * (1.0 - 2.0 * below / (1.0 + below));
}
