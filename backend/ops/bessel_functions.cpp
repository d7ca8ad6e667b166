// Modified Bessel functions of the second kind, K: for x <= 2 a polynomial in x * x and a logarithm, for
// larger x exp(-x) / sqrt(x) times a polynomial in 1 / x. Also the spherical Bessel function of order 0.
#include <numbers>

#include "backend/ops/body_language.h"
#include "backend/ops/special_functions.h"

namespace ipex::ops::body {
namespace {

// 1 / x for x >= 2 and x * x for x <= 2, mapped to t in [-1, 1].
Expr reciprocal(const Expr& x) { return fma(c(x, 4), c(x, 1) / max(x, c(x, 2)), c(x, -1)); }
Expr square_up_to_two(const Expr& x) {
  Expr bounded = min(x, c(x, 2));
  return fma(bounded * bounded, c(x, 0.5), c(x, -1));
}

// exp(x) K(x), from `near` = K(x) for x <= 2 and `far` = sqrt(x) exp(x) K(x) for larger x.
Expr scaled_k(const Expr& x, const Expr& near, const Expr& far) {
  return select(le(x, c(x, 2)), exp(x) * near, far / sqrt(x));
}
Expr unscaled_k(const Expr& x, const Expr& near, const Expr& far) {
  return select(le(x, c(x, 2)), near, exp(neg(x)) * far / sqrt(x));
}

// log(x / 2), also where x / 2 underflows.
Expr log_of_half(const Expr& x) {
  Expr tiny = lt(x, c(x, 0x1p-100));
  return log(select(tiny, x, x * c(x, 0.5))) - select(tiny, c(x, std::numbers::ln2), c(x, 0));
}

// The polynomials stand for K0 + log(x / 2) I0 and I0, and for x K1 - x log(x / 2) I1 and I1 / x.
Expr k0_near(const Expr& x) {
  Expr t = square_up_to_two(x), logarithm = log_of_half(x);
  Expr sum = polynomial(
      t,
      {6.09445223e-08, 4.05566561e-06, 0.000182805554, 0.00505339215, 0.0717770085, 0.340497315,
       -0.303620785},
      {1.8282990225962873e-16, 3.5186315158547221e-14, 5.4521075880169363e-12, 6.6230132727944526e-10,
       6.0933619341661555e-08, 4.054506619949891e-06, 0.00018280555827901256, 0.0050533926431960922,
       0.07177701034240512, 0.34049732101338059, -0.30362077291575545});
  Expr i0 =
      polynomial(t, {2.35815173e-06, 0.000119869233, 0.00392856495, 0.0735898465, 0.635861754, 1.56608295},
                 {1.5591722255510926e-14, 2.5398791970311194e-12, 3.2732478435364699e-10,
                  3.2362273523765377e-08, 2.3575789878938216e-06, 0.00011982068581634411,
                  0.0039285651056368085, 0.073589868361053343, 0.63586172815606856, 1.5660829297563506});
  return sum - logarithm * i0;
}
Expr k1_near(const Expr& x) {
  Expr t = square_up_to_two(x), logarithm = log_of_half(x);
  Expr sum =
      polynomial(t,
                 {-7.08284063e-07, -3.89344968e-05, -0.00138316874, -0.0278542265, -0.243838534, -0.332240969,
                  0.885088265},
                 {-6.2142716173295769e-13, -8.5336341685751417e-11, -9.0321275017406779e-09,
                  -7.0811336915174082e-07, -3.8918690643716332e-05, -0.001383168846618116,
                  -0.027854235219771841, -0.24383852886774329, -0.33224095524031311, 0.88508828772958936});
  Expr i1 =
      polynomial(t, {1.94209193e-07, 1.17913323e-05, 0.000479282724, 0.0117856944, 0.147179738, 0.635861754},
                 {1.4032637886429537e-13, 2.0319227592384769e-11, 2.2912734889380408e-09,
                  1.9417364085156806e-07, 1.1787894939469932e-05, 0.00047928274326549763,
                  0.011785695316910426, 0.14717973672210669, 0.63586172815606856});
  return sum / x + logarithm * x * i1;
}
// sqrt(x) exp(x) times the function, a polynomial in 4 / x - 1
Expr k0_far(const Expr& x) {
  Expr u = reciprocal(x);
  return polynomial(
      u,
      {1.09747634e-06, -2.98271357e-06, 6.65885091e-06, -2.40883401e-05, 9.96896488e-05, -0.00047995674,
       0.00303287525, -0.0310714468, 1.21859539},
      {1.0926983537268735e-10, -1.7597528809195706e-10, -3.1199361296821048e-10, 4.3927260002107633e-10,
       8.1339132054641143e-10, -1.2366923277096287e-09, 4.7575447057763742e-11,  -6.6438786318432348e-10,
       3.808399859919043e-09,  -8.0252056049044764e-09, 1.7047535884249698e-08,  -4.1056738724915364e-08,
       1.02954317593912e-07,   -2.689759865539584e-07,  7.4278012321900959e-07,  -2.1911673837417864e-06,
       7.0022456457556507e-06, -2.4735205428489719e-05, 9.9560547420294196e-05,  -0.0004797690567328844,
       0.0030328918102753206,  -0.031071461824889898,   1.2185953385133905});
}
Expr k1_far(const Expr& x) {
  Expr u = reciprocal(x);
  return polynomial(
      u,
      {-1.3242576e-06, 3.67429379e-06, -8.55775852e-06, 3.20737454e-05, -0.000139741751, 0.000735947397,
       -0.00556671014, 0.103349723, 1.36315191},
      {-1.1931668393112158e-10, 1.9273808087540517e-10, 3.3867804167808003e-10,  -4.7744112178509504e-10,
       -8.9085967109239058e-10, 1.3615859404460648e-09, -8.3362271959914559e-11, 7.9662427985040938e-10,
       -4.331939985658629e-09,  9.2138940202895327e-09, -1.9817577141591116e-08, 4.8154346790854777e-08,
       -1.2203186351938403e-07, 3.2305671988539342e-07, -9.0670876333713929e-07, 2.7300301043527215e-06,
       -8.9612073877500253e-06, 3.2843866502355955e-05, -0.00013959021956272223, 0.00073572415487183854,
       -0.0055667298800745882,  0.10334973775386565,    1.363151890371342});
}

// Handles x = 0 and negative x.
Expr right_of_zero(const Expr& x, const Expr& value) {
  Expr nan = c(x, std::numeric_limits<double>::quiet_NaN());
  return select(eq(x, c(x, 0)), c(x, kInf), select(lt(x, c(x, 0)), nan, value));
}

}  // namespace

Expr bessel_k0(const Expr& x) { return right_of_zero(x, unscaled_k(x, k0_near(x), k0_far(x))); }
Expr bessel_k1(const Expr& x) { return right_of_zero(x, unscaled_k(x, k1_near(x), k1_far(x))); }
Expr scaled_k0(const Expr& x) { return right_of_zero(x, scaled_k(x, k0_near(x), k0_far(x))); }
Expr scaled_k1(const Expr& x) { return right_of_zero(x, scaled_k(x, k1_near(x), k1_far(x))); }

// sin(x) / x; near 0 its series, where the quotient loses digits.
Expr spherical_j0(const Expr& x) {
  Expr square = x * x;
  Expr series = fma(square, fma(square, c(x, 1. / 120), c(x, -1. / 6)), c(x, 1));
  return select(isinf(x), c(x, 0), select(lt(abs(x), c(x, 1e-2)), series, sin(x) / x));
}

}  // namespace ipex::ops::body
