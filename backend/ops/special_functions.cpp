// Special functions as formulas. A function without a closed form is a polynomial on each of a few intervals.
// The interval is mapped to t in [-1, 1]; the polynomial is the Chebyshev interpolant of the function named
// in the comment, expanded in powers of t, accurate to half an ulp of f32 (first list) or of f64 (second
// list).
#include "backend/ops/special_functions.h"

#include <cmath>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "backend/ops/body_language.h"

namespace ipex::ops::body {
namespace {

Expr bits(const Expr& x) {
  return make_apply_as(ScalarOp::bitcast_int_, {x},
                       x->type.with_dtype(is_double(x) ? Dtype::kI64 : Dtype::kI32));
}
Expr number(const Expr& bits, const Expr& like) {
  return make_apply_as(ScalarOp::bitcast_float_, {bits}, like->type);
}

// x minus the nearest integer. Up to sign, sin(pi x) and tan(pi x) depend on this alone, and pi times it has
// a smaller error than pi x.
Expr from_nearest(const Expr& x) { return x - round(x); }

// cot(pi x) for |x| <= 1/2, exact where it is 0.
Expr cotangent_of_pi(const Expr& x) {
  Expr pi = c(x, kPi), rest = c(x, 0.5) - abs(x);
  return select(lt(rest, c(x, 0.25)), copysign(tan(pi * rest), x), c(x, 1) / tan(pi * x));
}

}  // namespace

// One polynomial for |x| <= 8; for larger |x| the function times sqrt(x) is a polynomial in 16 / x - 1.
Expr i0e(const Expr& x) {
  Expr size = abs(x), t = fma(min(size, c(x, 8)), c(x, 0.25), c(x, -1)),
       u = fma(c(x, 16), c(x, 1) / max(size, c(x, 8)), c(x, -1));
  // exp(-x) I0(x)
  Expr small = polynomial(
      t,
      {0.000348628411, -0.000851984369, 0.000412651454, -0.00075489498, 0.00416927366, -0.00801823661,
       0.0115540652, -0.0188573543, 0.0303606372, -0.0433178917, 0.0567272902, -0.0694632903, 0.0792829692,
       -0.0849732459, 0.0873428062, -0.0890428722, 0.094515644, -0.113004334, 0.207001925},
      {4.4705167275117407e-09, -1.6316042856792757e-08, 2.6265363151970112e-08, -8.5914064442646678e-08,
       3.675842926555429e-07,  -1.142045323881917e-06,  3.2293390826404927e-06, -9.1837425869362034e-06,
       2.5202327271076921e-05, -6.5568059644017908e-05, 0.00016240542162878106, -0.00038286526498299526,
       0.0008563152748272306,  -0.0018119030567637056,  0.0036171264488970428,  -0.0067923947909400506,
       0.011960077907026221,   -0.019682655791721182,   0.030177912022978357,   -0.042985949295422203,
       0.056777032019916948,   -0.069541195631682345,   0.079275225907163474,   -0.084963380915417316,
       0.087343416175523131,   -0.089043441360777548,   0.094515628539951033,   -0.11300432688620536,
       0.2070019212239867});
  // exp(-x) sqrt(x) I0(x)
  Expr large = polynomial(
      u,
      {1.08679423e-07, 3.62667038e-07, 1.4761157e-06, 1.11121481e-05, 0.000136217161, 0.00336055574,
       0.402176499},
      {-2.0260604287413626e-11, 9.3650868928181903e-11,  1.5279202694981569e-10, -6.6332871125470836e-10,
       -5.7158438642027087e-10, 2.1968921378829006e-09,  1.5200816953924232e-09, -4.5755534245349734e-09,
       -3.505966530879332e-09,  6.5601387469170574e-09,  7.5525830621233842e-09, -5.0381064879032845e-09,
       -1.340891754008974e-08,  -6.8493381882867694e-09, 7.554691881248808e-09,  2.1566251453104354e-08,
       3.9325843345529519e-08,  8.8720343833141438e-08,  2.9735985885673923e-07, 1.4838476651250266e-06,
       1.1143033790932038e-05,  0.00013621607438984735,  0.0033605519836678614,  0.4021765094450081});
  return select(gt(size, c(x, 8)), large / sqrt(size), small);
}

Expr i1e(const Expr& x) {
  Expr size = abs(x), t = fma(min(size, c(x, 8)), c(x, 0.25), c(x, -1)),
       u = fma(c(x, 16), c(x, 1) / max(size, c(x, 8)), c(x, -1));
  // exp(-x) I1(x) (1 + x) / x
  Expr small = polynomial(
      t,
      {-0.000274592458, 0.000658764213, -0.000264059636, 0.000430670159, -0.00287974556, 0.00530614983,
       -0.00678064208, 0.0100043006, -0.0145134889, 0.0171526279, -0.0162150152, 0.0102792643, 0.00224642456,
       -0.0213226974, 0.0449070893, -0.0701830834, 0.0957906321, -0.126870841, 0.223438546},
      {-3.8986451726808268e-09, 1.4140586516294558e-08, -2.2256170847391023e-08, 7.2056615118581093e-08,
       -3.0892078393590409e-07, 9.5008714031863077e-07, -2.6473189145359159e-06, 7.4265737656026866e-06,
       -2.008128376793675e-05,  5.1327093620609019e-05, -0.00012452184310003615, 0.00028652061456301128,
       -0.00062260010296990122, 0.0012721896970158434,  -0.0024329356259671061,  0.0043286704741056529,
       -0.0071094595471976043,  0.010663010750659297,   -0.014365426172891516,   0.016887521410477543,
       -0.016255337301865139,   0.010341512897822801,   0.0022527061987688002,   -0.021330581282267738,
       0.044906593743710352,    -0.070182631391065606,  0.09579064742889315,     -0.12687085064589626,
       0.22343854937804417});
  // exp(-x) sqrt(x) I1(x)
  Expr large = polynomial(
      u,
      {-1.22732175e-07, -4.21035026e-07, -1.82569079e-06, -1.5003965e-05, -0.000219237132, -0.00974958111,
       0.389398456},
      {1.8515118828852956e-11,  -9.7523972041381954e-11, -1.4011625179770627e-10, 6.917089294193807e-10,
       5.2956254411612613e-10,  -2.297004161885201e-09,  -1.4387250533041013e-09, 4.8105974050899441e-09,
       3.4262341490077958e-09,  -6.9838396248958659e-09, -7.6423941343635606e-09, 5.59337010179061e-09,
       1.4034238782067183e-08,  6.8401389977069586e-09,  -8.4277660937351848e-09, -2.3392503748018581e-08,
       -4.312917729178349e-08,  -1.000109565963654e-07,  -3.4838557610442948e-07, -1.8349102358955385e-06,
       -1.5038547200567216e-05, -0.0002192357638317243,  -0.009749577193235737,   0.38939845902587233});
  Expr value = select(gt(size, c(x, 8)), large / sqrt(size), small * size / (size + c(x, 1)));
  return select(lt(x, c(x, 0)), neg(value), value);
}

Expr i0(const Expr& x) { return exp(abs(x)) * i0e(x); }
Expr i1(const Expr& x) { return exp(abs(x)) * i1e(x); }

// A Chebyshev series in (x - k) / (x + k) covers all x >= 0 (Shepherd and Laframboise 1981). For negative x,
// erfcx(x) = 2 exp(x * x) - erfcx(-x), with the square as an unevaluated sum of two numbers.
Expr erfcx(const Expr& x) {
  const double k = 3.75;
  Expr size = abs(x), bounded = min(size, c(x, 0x1p60));
  Expr t = (bounded - c(x, k)) / (bounded + c(x, k));
  // erfcx(x) (x + 1/2)
  Expr p = polynomial(
      t,
      {1.10233595e-05, -0.000112058377, 0.000165083722, 0.00083795609, -0.00488504348, 0.014204626,
       -0.0293427203, 0.0461453833, -0.0544026121, 0.0411392115, 0.00179274764, -0.0701203272, 0.618756294},
      {2.1257357223981948e-10, 1.5557166904899627e-10,  -2.5869951070056548e-09, -1.8721050404810091e-09,
       1.9337667121111177e-08, 1.1631754354429562e-08,  -1.2933425358077942e-07, -2.8609115301612043e-08,
       8.7581882442453105e-07, -4.8677994836838749e-07, -5.7220731188502618e-06, 1.1192119577541115e-05,
       2.5824549446341203e-05, -0.00014507704027042086, 0.00014685683279567241,  0.00087781292644764771,
       -0.0048732897790146378, 0.014181138709478203,    -0.029346699294818385,   0.046152160580188742,
       -0.054401965070874428,  0.041138369245072602,    0.0017927077427322146,   -0.070120299292773483,
       0.61875631541891374});
  Expr right =
      select(eq(x, c(x, 0)), c(x, 1), p / (size + c(x, 0.5)));  // the series is wrong by half a place there
  Expr left = min(size, c(x, 40)), high = left * left, low = fma(left, left, neg(high)), power = exp(high);
  Expr twice = c(x, 2) * select(isinf(power), power, fma(power, low, power));
  return select(lt(x, c(x, 0)), twice - right, right);
}

namespace {

// erfinv(y) / y with w = -log(1 - y * y) (Giles 2010), up to the w of the smallest p of ndtri.
Expr erfinv_ratio(const Expr& w) {
  Expr root = sqrt(w);
  const bool full = is_double(w);
  // w in [0, 6.25]
  Expr low = polynomial(
      mapped(w, 0, 6.25),
      {1.52657913e-06, 5.93422192e-05, -0.000134937218, -0.000226588105, 0.00124254602, -0.0012910954,
       -0.00414011721, 0.0178128742, -0.0226041079, -0.0589229502, 0.750494301, 1.65365458},
      {-2.5466157998892667e-10, 7.6809904755765254e-10,  1.4461050507676023e-09,  -8.5579840744792012e-09,
       5.0395964779580632e-09,  3.9142671001331085e-08,  -9.9050423078553163e-08, -1.0167881522843899e-08,
       5.3978954171739569e-07,  -1.0593369313279481e-06, -6.839448584111029e-07,  7.1300663740767115e-06,
       -1.1257223742289599e-05, -1.5027713926607673e-05, 9.3367365258555527e-05,  -0.00011688883906368398,
       -0.00026439366376450275, 0.001232485568550093,    -0.001271692268923054,   -0.0041373143774033911,
       0.017808361818321756,    -0.022604447453450232,   -0.058922567103778391,   0.75049432007996353,
       1.6536545626831027});
  // sqrt(w) in [2.5, 4]
  Expr middle = polynomial(
      mapped(root, 2.5, 4),
      {6.11931364e-06, -3.74103911e-06, -4.82336691e-05, 0.00017487572, -0.000400299934, 0.000786478631,
       -0.00158259762, 0.00302136573, 0.753944218, 3.08388567},
      {-6.4669605149252766e-11, 3.8645975308758618e-12, 9.8891153898279768e-10,  -2.7192930488742553e-09,
       -3.6862448212666726e-10, 2.670345089321486e-08,  -9.4689945702469366e-08, 9.2676972709935842e-08,
       5.2646247287145872e-07,  -2.664698628136375e-06, 5.1273166644974103e-06,  2.4058393020311568e-06,
       -4.7391827288071253e-05, 0.0001696650258988731,  -0.00040063569835709886, 0.00078830785100019655,
       -0.0015825410894071102,  0.0030211394363839931,  0.75394422577062403,     3.0838856104922208});
  // sqrt(w) in [4, 10.25] and in [4, 8]
  Expr high = polynomial(
      mapped(root, 4, full ? 8 : 10.25),
      {2.91141932e-05, -5.87623617e-05, 4.61626551e-05, -0.00010214452, 0.000263719819, -0.000432350731,
       0.000484638964, 0.000279635802, -0.00497786561, 3.15146184, 6.99508619},
      {-1.2865634849137901e-09, 3.7508805895801158e-09,  6.8196158737016354e-10, -1.2529777254190381e-08,
       1.342555145133933e-08,   -6.1838662651107027e-09, 1.7154273635274046e-08, -3.5964991166813595e-08,
       3.4950978034000815e-08,  -2.6673305862016131e-08, 3.2817789406707269e-08, -5.6638663461440108e-08,
       1.284506788753038e-07,   -3.664664456230228e-07,  1.1057607798577655e-06, -3.2984236844174246e-06,
       9.5707684715181788e-06,  -2.6736679627160555e-05, 7.075802612232158e-05,  -0.00017140419210433895,
       0.00034525692256073788,  -0.00034339982154281401, -0.0018913598316051363, 2.0192102441988182,
       5.8599131439462449});
  // sqrt(w) in [8, 27.5]
  if (full)
    high = select(gt(root, c(w, 8)),
                  horner(mapped(root, 8, 27.5),
                         {-2.6748016589956539e-08, 4.5044931926765633e-08,  1.0501151007579323e-07,
                          -1.6667786559282038e-07, -2.7911419402088247e-07, 4.3164156427130447e-07,
                          2.8843489942301416e-07,  -3.9684764342188152e-07, -5.5474782455089647e-07,
                          8.3381715626575028e-07,  -4.0901356699748209e-07, 7.7283982707203326e-07,
                          -1.8378766010613859e-06, 2.9091425752266971e-06,  -4.2994579943095702e-06,
                          6.3558809484929515e-06,  -8.6352216176234543e-06, 9.6492890164874311e-06,
                          -5.2592578097491654e-06, -1.5524742194400982e-05, 8.0028313426560286e-05,
                          -0.00025394658000517118, 0.00069307849172901652,  -0.0017672623770856408,
                          0.0043702832473020989,   -0.010761254366470038,   9.7772722873581817,
                          17.672285929517603}),
                  high);
  return select(lt(w, c(w, 6.25)), low, select(lt(root, c(w, 4)), middle, high));
}

}  // namespace

Expr erfinv(const Expr& y) {
  Expr one = c(y, 1), w = neg(log((one - y) * (one + y)));
  return select(eq(abs(y), one), y * c(y, kInf), y * erfinv_ratio(w));
}

// sqrt(2) erfinv(2p - 1), with 1 - y * y computed as 4p (1 - p), which is exact for small p.
Expr ndtri(const Expr& p) {
  Expr zero = c(p, 0), one = c(p, 1), w = neg(log(c(p, 4) * p * (one - p)));
  Expr inside = c(p, std::numbers::sqrt2) * fma(c(p, 2), p, neg(one)) * erfinv_ratio(w);
  return select(eq(p, zero), c(p, -kInf), select(eq(p, one), c(p, kInf), inside));
}

Expr log_ndtr(const Expr& x) {
  Expr z = x * c(x, kSqrtHalf), half = c(x, 0.5);
  return select(lt(x, c(x, -1)), log(erfcx(neg(z)) * half) - z * z, log1p(neg(erfc(z) * half)));
}

// The recurrence raises x to at least 10, where the asymptotic series holds. Negative x is reflected first.
Expr digamma(const Expr& x) {
  Expr zero = c(x, 0), one = c(x, 1), negative = lt(x, zero);
  Expr up = select(negative, one - x, x), sum = zero;
  for (int step = 0; step < 10; ++step) {
    Expr small = lt(up, c(x, 10));
    sum = sum - select(small, one / up, zero);
    up = up + select(small, one, zero);
  }
  Expr z = one / (up * up);
  Expr tail = z * horner(z, {1. / 12, -691. / 32760, 1. / 132, -1. / 240, 1. / 252, -1. / 120, 1. / 12});
  Expr right = sum + log(up) - c(x, 0.5) / up - tail;
  Expr fraction = from_nearest(x), pole = c(x, std::numeric_limits<double>::quiet_NaN());
  Expr left = select(eq(fraction, zero), pole, right - c(x, kPi) * cotangent_of_pi(fraction));
  return select(eq(x, zero), copysign(c(x, kInf), neg(x)), select(negative, left, right));
}

namespace {

// x ** n for an integer n >= 1, by squaring.
Expr whole_power(Expr x, int n) {
  Expr result;
  for (; n > 0; n >>= 1, x = x * x)
    if (n & 1) result = result ? result * x : x;
  return result;
}

// Bernoulli numbers B(2j) over (2j)!
constexpr double kBernoulli[] = {1. / 12,          -1. / 720,
                                 1. / 30240,       -1. / 1209600,
                                 1. / 47900160,    -691. / 1307674368000,
                                 1. / 74724249600, -3617. / 10670622842880000};

// The Hurwitz zeta function sum((x + k) ** -(n + 1)) for x > 0: ten terms, and the Euler-Maclaurin formula
// for the rest.
Expr hurwitz(const Expr& x, int n) {
  Expr one = c(x, 1), up = x, sum = c(x, 0);
  for (int k = 0; k < 10; ++k) {
    sum = sum + one / whole_power(up, n + 1);
    up = up + one;
  }
  Expr inverse = one / up, square = inverse * inverse, series;
  double rising = n + 1;  // (n + 1) (n + 2) ... over 2j - 1 factors
  std::vector<double> coefficients;
  for (int j = 0; j < std::ssize(kBernoulli); ++j) {
    coefficients.push_back(kBernoulli[j] * rising);
    rising *= (n + 2 * j + 2.) * (n + 2 * j + 3.);
  }
  for (auto each = coefficients.rbegin(); each != coefficients.rend(); ++each)
    series = series ? fma(series, square, c(x, *each)) : c(x, *each);
  Expr rest = c(x, 1. / n) + inverse * c(x, 0.5) + square * series;
  return sum + whole_power(inverse, n) * rest;
}

// The n-th derivative of cot(pi x) as a polynomial in c = cot(pi x), by the chain rule with dc/dx = -pi (1 +
// c * c). The coefficients are ordered by power of c.
std::vector<double> cotangent_derivative(int n) {
  std::vector<double> p = {0, 1};
  for (int step = 0; step < n; ++step) {
    std::vector<double> next(p.size() + 1);
    for (size_t k = 1; k < p.size(); ++k) {
      const double slope = -std::numbers::pi * static_cast<double>(k) * p[k];
      next[k - 1] += slope;
      next[k + 1] += slope;
    }
    p = next;
  }
  return p;
}

}  // namespace

// (-1) ** (n + 1) n! zeta(n + 1, x); negative x is reflected.
Expr polygamma(const Expr& x, int n) {
  if (n == 0) return digamma(x);
  const double sign = n % 2 ? 1 : -1;
  Expr zero = c(x, 0), left = lt(x, zero);
  Expr right = c(x, sign * std::tgamma(n + 1.)) * hurwitz(select(left, c(x, 1) - x, x), n);
  Expr fraction = from_nearest(x), cotangent = cotangent_of_pi(fraction), derivative;
  const std::vector<double> p = cotangent_derivative(n);
  for (auto each = p.rbegin(); each != p.rend(); ++each)
    derivative = derivative ? fma(derivative, cotangent, c(x, *each)) : c(x, *each);
  Expr reflected = c(x, -sign) * right - c(x, kPi) * derivative;
  Expr pole = le(x, zero) & eq(fraction, zero);
  return select(pole, c(x, sign * kInf), select(left, reflected, right));
}

namespace {

// The Hurwitz zeta function with an exponent that is data, sum((q + k) ** -x) for x > 1 and q > 0
// (DLMF 25.11.28). For large x the tenth term and the integral of the following terms vanish in the sum, and
// the series for the rest may not converge: it is left out then. The integral is computed by itself, not from
// the tenth term, which may underflow.
Expr hurwitz_zeta(const Expr& x, const Expr& q) {
  const double place = is_double(x) ? 0x1p-53 : 0x1p-24;
  Expr one = c(x, 1), last = q + c(x, 9), tenth = pow(last, neg(x)), sum = tenth;
  for (int k = 8; k >= 0; --k) sum = sum + pow(q + c(x, k), neg(x));
  Expr inverse = one / last, ratio = min(x * inverse, c(x, 100)), series;
  for (int j = std::ssize(kBernoulli) - 1; j >= 0; --j) {
    Expr coefficient = c(x, kBernoulli[j]);
    Expr factors = fma(inverse, c(x, 2 * j + 1), ratio) * fma(inverse, c(x, 2 * j + 2), ratio);
    series = series ? fma(series, factors, coefficient) : coefficient;
  }
  Expr integral = pow(last, one - x) / (x - one), nan = c(x, std::numeric_limits<double>::quiet_NaN());
  integral = select(isinf(last), nan, integral);  // as in eager
  Expr rest = integral + tenth * (ratio * series - c(x, 0.5));
  return select(lt(max(tenth, integral), sum * c(x, place)), sum, sum + rest);
}

}  // namespace

// For q <= 0, x must be an integer. The terms with a negative base are, up to sign, the difference of two
// such sums.
Expr zeta(const Expr& x, const Expr& q) {
  Expr one = c(x, 1), zero = c(x, 0), half = x * c(x, 0.5);
  Expr below = floor(q), left = le(q, zero), odd = ne(half, floor(half));
  Expr right = hurwitz_zeta(x, select(left, q - below, q));
  Expr negative = hurwitz_zeta(x, ceil(q) - q), beyond = hurwitz_zeta(x, one - q);
  Expr both = select(odd, right - negative + beyond, right + negative - beyond);
  Expr value = select(left, both, right);
  Expr nan = c(x, std::numeric_limits<double>::quiet_NaN());
  value = select(left & ne(x, floor(x)), nan, value);
  value = select(eq(x, one) | (left & eq(q, below)), c(x, kInf), value);
  // Eager's series has 23 factors proportional to x; where they overflow, the result is NaN, not 0.
  Expr overflows = gt(x, c(x, 2.5e13)) & gt(q, one);
  return select(lt(x, one) | overflows, nan, value);
}

namespace {

Expr log_of_sum(const Expr& x, const Expr& y, const Expr& rest) {
  Expr same_infinity = isinf(x) & eq(x, y);
  return select(same_infinity, x, max(x, y) + rest);
}

}  // namespace

Expr logaddexp(const Expr& x, const Expr& y) { return log_of_sum(x, y, log1p(exp(neg(abs(x - y))))); }
Expr logaddexp2(const Expr& x, const Expr& y) {
  return log_of_sum(x, y, c(x, std::numbers::log2e) * log1p(exp2(neg(abs(x - y)))));
}

Expr sinc(const Expr& x) {
  Expr angle = x * c(x, kPi);
  return select(eq(x, c(x, 0)), c(x, 1), sin(angle) / angle);
}

Expr entr(const Expr& x) {
  Expr zero = c(x, 0);
  return select(eq(x, zero), zero, select(lt(x, zero), c(x, -kInf), neg(x) * log(x)));
}

namespace {

// Floats of one sign have the order of their bits. One step of the result's type is `step` steps in the type
// of x.
Expr next_after(const Expr& x, const Expr& y, int step) {
  Expr here = bits(x), zero = c(x, 0), by = c(here, step);
  Expr away = eq(gt(y, x), gt(x, zero));
  Expr next = number(select(away, here + by, here - by), x);
  Expr from_zero = copysign(number(by, x), y);
  return select(isnan(x) | isnan(y), x + y, select(eq(x, y), y, select(eq(x, zero), from_zero, next)));
}

// Half values are given in f32, and a value that the same kernel computed is not yet rounded.
Expr rounded(Dtype dtype, const Expr& x) { return make_cast(x->type.dtype, make_cast(dtype, x)); }

}  // namespace

Expr next_after(const Expr& x, const Expr& y) { return next_after(x, y, 1); }

Expr next_after_bf16(const Expr& x, const Expr& y) {
  return next_after(rounded(Dtype::kBF16, x), rounded(Dtype::kBF16, y), 1 << 16);
}

// Every f16 number divided by 2 ** 112, denormal or not, is an f32 number whose last 13 bits are 0. The
// number after the largest finite one is 2 ** 16 in f32, which becomes infinity in f16.
Expr next_after_f16(const Expr& x, const Expr& y) {
  Expr beyond = c(x, 0x1p16), scale = c(x, 0x1p-112);
  auto scaled = [&](const Expr& v) { return max(min(rounded(Dtype::kF16, v), beyond), neg(beyond)) * scale; };
  return next_after(scaled(x), scaled(y), 1 << 13) * c(x, 0x1p112);
}

namespace {

// A number scaled into the normal range, for reading its exponent field and mantissa.
struct Parts {
  Expr normal, is_special, shift;
};
Parts parts(const Expr& x) {
  const double scale = is_double(x) ? 0x1p54 : 0x1p25, tiny = is_double(x) ? 0x1p-1022 : 0x1p-126;
  Expr denormal = lt(abs(x), c(x, tiny));
  return {select(denormal, x * c(x, scale), x), eq(x, c(x, 0)) | isnan(x) | isinf(x),
          select(denormal, c(x, is_double(x) ? -54 : -25), c(x, 0))};
}
int mantissa_bits(const Expr& x) { return is_double(x) ? 52 : 23; }

}  // namespace

Expr mantissa(const Expr& x) {
  const Parts p = parts(x);
  Expr b = bits(p.normal);
  const int64_t half = is_double(x) ? 1022 : 126, exponents = is_double(x) ? 2047 : 255;
  auto in_field = [&](int64_t value) { return make_int(b->type.with_lanes(1), value << mantissa_bits(x)); };
  return select(p.is_special, x, number((b & ~in_field(exponents)) | in_field(half), x));
}

Expr exponent(const Expr& x) {
  const Parts p = parts(x);
  const int64_t half = is_double(x) ? 1022 : 126;
  Expr field = shr(bits(abs(p.normal)), c(bits(x), mantissa_bits(x)));
  return select(p.is_special, c(x, 0),
                make_cast(x->type.dtype, field - c(field, static_cast<double>(half))) + p.shift);
}

}  // namespace ipex::ops::body
