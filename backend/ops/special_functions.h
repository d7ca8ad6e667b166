// The special functions of torch.special as op bodies: formulas over scalar ops, in f32 and f64.
#pragma once

#include "codegen/loop/ir.h"

namespace ipex::ops::body {

using loop::Expr;

Expr i0e(const Expr& x);  // exp(-|x|) I0(x), the modified Bessel function of order 0
Expr i1e(const Expr& x);  // exp(-|x|) I1(x)
Expr i0(const Expr& x);   // I0(x)
Expr i1(const Expr& x);   // I1(x)

// Modified Bessel functions of the second kind, exp(x) times them, and sin(x) / x.
Expr bessel_k0(const Expr& x);
Expr bessel_k1(const Expr& x);
Expr scaled_k0(const Expr& x);
Expr scaled_k1(const Expr& x);
Expr spherical_j0(const Expr& x);

// Bessel functions of the first and second kind, and the Airy function.
Expr bessel_j0(const Expr& x);
Expr bessel_j1(const Expr& x);
Expr bessel_y0(const Expr& x);
Expr bessel_y1(const Expr& x);
Expr airy_ai(const Expr& x);

Expr erfcx(const Expr& x);                // exp(x * x) erfc(x)
Expr erfinv(const Expr& y);               // the x with erf(x) = y
Expr ndtri(const Expr& p);                // the x with ndtr(x) = p; ndtr is the normal distribution function
Expr log_ndtr(const Expr& x);             // log(ndtr(x))
Expr digamma(const Expr& x);              // the derivative of lgamma
Expr polygamma(const Expr& x, int n);     // the n-th derivative of digamma
Expr zeta(const Expr& x, const Expr& q);  // Hurwitz: the sum of (q + k) ** -x
Expr logaddexp(const Expr& x, const Expr& y);   // log(exp(x) + exp(y))
Expr logaddexp2(const Expr& x, const Expr& y);  // log2(2**x + 2**y)
Expr sinc(const Expr& x);                       // sin(pi x) / (pi x)
Expr entr(const Expr& x);                       // -x log(x)

// The next number after x towards y: in the type of x, or in a half type whose values are given in f32.
Expr next_after(const Expr& x, const Expr& y);
Expr next_after_bf16(const Expr& x, const Expr& y);
Expr next_after_f16(const Expr& x, const Expr& y);
// x is mantissa * 2**exponent with 0.5 <= |mantissa| < 1.
Expr mantissa(const Expr& x);
Expr exponent(const Expr& x);

}  // namespace ipex::ops::body
