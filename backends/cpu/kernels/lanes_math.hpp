// SPDX-License-Identifier: Apache-2.0
//
// lanes_math: the exponential function and the hyperbolic tangent of sixteen numbers at once.
//
// Polynomials from Cephes (S. Moshier, expf and tanhf, netlib.org/cephes), accurate to 2 units in
// the last place.
//
// Threads: any; nothing is kept.
#pragma once

#include "kernels/lanes.hpp"

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

// e^a; 0 if a is below -104, where e^a rounds to 0; NaN for NaN.
//     e^a = 2^n e^r      n = a / ln 2, rounded      r = a - n ln 2, ln 2 in two parts
inline Lanes exponential(Lanes a) {
    Lanes x = larger(all(-104.0f), a);
    Lanes n = rounded(mul(x, all(1.44269504f)));
    Lanes r = fma(n, all(-0.693359375f), x);
    r = fma(n, all(2.12194440e-4f), r);
    Lanes p = all(1.9875691500e-4f);
    p = fma(p, r, all(1.3981999507e-3f));
    p = fma(p, r, all(8.3334519073e-3f));
    p = fma(p, r, all(4.1665795894e-2f));
    p = fma(p, r, all(1.6666665459e-1f));
    p = fma(p, r, all(5.0000001201e-1f));
    return times_power_of_two(add(fma(p, mul(r, r), r), all(1.0f)), n);
}

inline Lanes magnitude(Lanes a) { return larger(a, sub(all(0.0f), a)); }

// Near 0 a polynomial, which keeps the digits of small numbers; else 1 - 2 / (e^2|a| + 1).
inline Lanes tangent(Lanes a) {
    Lanes size = magnitude(a);
    Lanes square = mul(a, a);
    Lanes p = all(-5.70498872745e-3f);
    p = fma(p, square, all(2.06390887954e-2f));
    p = fma(p, square, all(-5.37397155531e-2f));
    p = fma(p, square, all(1.33314422036e-1f));
    p = fma(p, square, all(-3.33332819422e-1f));
    Lanes near = fma(mul(p, square), a, a);
    Lanes twice = select(below(all(20.0f), size), all(40.0f), add(size, size));
    Lanes far = sub(all(1.0f), div(all(2.0f), add(exponential(twice), all(1.0f))));
    far = select(below(a, all(0.0f)), sub(all(0.0f), far), far);
    return select(below(size, all(0.625f)), near, far);
}

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
