// Bessel functions of the first and second kind, J and Y, and the Airy function Ai: polynomials near 0, and
// elsewhere sine and cosine with slowly varying corrections of amplitude and phase
// (DLMF 10.17.3, 10.17.4, 9.7.5 and 9.7.9). The polynomials are Chebyshev interpolants, expanded in powers of
// t in [-1, 1]. They interpolate ATen's results, not the exact functions: ATen's rational approximations
// (from Cephes, Moshier 1989) omit the leading 1 of some denominators. This makes J and Y wrong by up to 9e-7
// for x > 5 and Ai by 3e-6 for x < -2.09, a difference that f64 would show.
#include <cmath>

#include "backend/ops/body_language.h"
#include "backend/ops/special_functions.h"

namespace ipex::ops::body {
namespace {

Expr nan_like(const Expr& x) { return c(x, std::numeric_limits<double>::quiet_NaN()); }

// ---- J and Y ----

constexpr double kNear = 5;  // largest |x| for the polynomials in x * x

// x * x for |x| <= kNear, and its mapping to t in [-1, 1].
Expr square_near(const Expr& x) {
  Expr bounded = min(abs(x), c(x, kNear));
  return bounded * bounded;
}
Expr mapped_near(const Expr& square) { return fma(square, c(square, 2 / (kNear * kNear)), c(square, -1)); }

// sqrt(pi x / 2) times J is p cos(x - shift) - q sin(x - shift); times Y it is p sin + q cos.
struct Wave {
  Expr p, q, angle, scale;
};
Expr first_kind(const Wave& w) { return (w.p * cos(w.angle) - w.q * sin(w.angle)) * w.scale; }
Expr second_kind(const Wave& w) { return (w.p * sin(w.angle) + w.q * cos(w.angle)) * w.scale; }

// For x >= kNear, p and x q are polynomials in (5 / x) ** 2.
Wave wave(const Expr& x, double shift, Expr (*p)(const Expr&), Expr (*q)(const Expr&)) {
  Expr inverse = c(x, 1) / max(x, c(x, kNear)), ratio = inverse * c(x, kNear);
  Expr t = fma(ratio * ratio, c(x, 2), c(x, -1));
  return {p(t), q(t) * inverse, x - c(x, shift), c(x, std::numbers::sqrt2 * std::sqrt(1 / kPi)) / sqrt(x)};
}

Expr p0(const Expr& t) {
  return polynomial(
      t, {3.15906047e-07, -2.52774685e-06, 3.4910205e-05, -0.00132747581, 0.998634766},
      {-2.1576925705283785e-12, 3.5641300945026244e-12, 3.1071148347269275e-12, -3.5433819598218248e-12,
       -1.3148863569594675e-11, 2.4502187005162371e-11, -3.5774543275883936e-11, 9.7516706403585907e-11,
       -2.8502501945169464e-10, 8.5610848892900692e-10, -2.8705666043674736e-09, 1.1058331335337133e-08,
       -5.0864325411700773e-08, 2.9759009845786995e-07, -2.4599633205990489e-06, 3.4917305810940452e-05,
       -0.0013274931272004428, 0.99863476590919908});
}
Expr q0(const Expr& t) {
  return polynomial(
      t, {3.32583617e-07, -1.45274517e-06, 4.32300976e-06, -6.56963669e-05, 0.00131298451, -0.12361521},
      {8.7851410168681448e-11,  -1.1087688586805162e-10, -3.8853946228750254e-10, 4.6682245702630384e-10,
       8.2742295425303983e-10,  -9.3781910349054429e-10, -1.0404066300199038e-09, 1.1302876834151631e-09,
       7.7015255699445372e-10,  -7.008470123359313e-10,  -6.9482774853559126e-10, 8.3788903365852308e-10,
       -4.8086886426514466e-10, 5.9646462998586304e-10,  -1.8496875661042082e-10, -2.3153201667466105e-09,
       8.0162801474677714e-09,  -1.0721773939102827e-08, -3.9907572563485325e-08, 3.5309875955851754e-07,
       -1.4047795647045614e-06, 4.3128488940529804e-06,  -6.5713086206899555e-05, 0.0013129857600063959,
       -0.12361520918626474});
}
Expr p1(const Expr& t) {
  return polynomial(
      t, {-3.67174819e-07, 3.05567269e-06, -4.57748629e-05, 0.00224144354, 1.00229065},
      {2.2795150838262933e-12, -3.7789168072094037e-12, -3.2388975089196707e-12, 3.6866417255096668e-12,
       1.3996867047467374e-11, -2.6250286893964952e-11, 3.8888951405069677e-11, -1.0625704719859751e-10,
       3.1160253974584005e-10, -9.4207709999378645e-10, 3.1849816117568309e-09, -1.2402735118622481e-08,
       5.7916681650239496e-08, -3.4667191121745725e-07, 2.9786211040639184e-06, -4.5782806529571492e-05,
       0.0022414632139172376, 1.0022906462560661});
}
Expr q1(const Expr& t) {
  return polynomial(
      t, {-4.9090121e-07, 2.21550577e-06, -2.96665439e-06, 8.42684704e-05, -0.00186207558, 0.373047984},
      {1.4409020682055597e-10,  -1.8404972854697093e-10, -6.6697500728648095e-10, 8.1054010097261789e-10,
       1.4979603089056866e-09,  -1.7266504918422199e-09, -1.9725036730330996e-09, 2.1636001687228559e-09,
       1.6497405546799481e-09,  -1.6101606276402424e-09, -1.2514152134551869e-09, 1.4382177094968328e-09,
       -4.8746058140519198e-10, 9.9683653918553929e-10,  -1.5829420853829852e-09, 8.3050554405425165e-11,
       6.3014471785629427e-09,  -2.210564298292792e-08,  4.0691087429949909e-08,  2.706716663658912e-08,
       -5.6911599029549662e-07, 2.2097654410339998e-06,  -2.9271697180723774e-06, 8.4266679800323464e-05,
       -0.0018620805072473289,  0.37304798415192419});
}
Wave wave0(const Expr& x) { return wave(x, kPi / 4, p0, q0); }
Wave wave1(const Expr& x) { return wave(x, 3 * kPi / 4, p1, q1); }

// The first two roots are factors, so that values near the roots are exact to their last places.
Expr j0_near(const Expr& x) {
  Expr square = square_near(x);
  Expr rest = polynomial(
      mapped_near(square),
      {2.43489083e-08, -4.72334032e-07, 6.85494312e-06, -7.12161631e-05, 0.000487682745, -0.00192108714,
       0.00318735563},
      {-5.6086698795517307e-16, 3.4406603695510199e-15, -1.0350402963786668e-14, 8.2191689297068451e-15,
       -6.5845662000583796e-13, 3.1486754343009692e-11, -9.8002475796723053e-10, 2.4285899801128931e-08,
       -4.7061747843899126e-07, 6.8549825102547332e-06, -7.1217021614259799e-05, 0.00048768273676691047,
       -0.0019210870374212197, 0.0031873556312721914});
  return (square - c(x, 5.7831859629467845)) * (square - c(x, 30.471262343662087)) * rest;
}
Expr j1_near(const Expr& x) {
  Expr square = square_near(x);
  Expr rest = polynomial(
      mapped_near(square),
      {1.30316347e-09, -2.81939208e-08, 4.62597636e-07, -5.51545136e-06, 4.42186893e-05, -0.000209326727,
       0.000432369873},
      {9.6575138846581038e-17, -4.4708081341917886e-16, 9.8065287424203636e-16, -2.8399586979557682e-14,
       1.3860681075673783e-12, -4.7495171373003282e-11, 1.3003882440168171e-09, -2.8110739207573704e-08,
       4.6259937156840116e-07, -5.5154929593329343e-06, 4.4218688959171271e-05, -0.00020932672186228985,
       0.00043236987344984792});
  return x * (square - c(x, 14.681970642123893)) * (square - c(x, 49.218456321694604)) * rest;
}

// The polynomials stand for Y0 - 2 / pi log(x) J0 and for (Y1 - 2 / pi (log(x) J1 - 1 / x)) / x.
Expr y0_near(const Expr& x) {
  Expr sum =
      polynomial(mapped_near(square_near(x)),
                 {-7.00966041e-06, 0.000130602861, -0.00180278973, 0.0176348505, -0.11151683, 0.388516537,
                  -0.470576364, -0.432655832, 0.483724858},
                 {-3.0041217652982043e-13, -4.2742883510222222e-12, 2.6480858717242469e-10,
                  -9.7438015109757494e-09, 2.914651172164018e-07, -6.9852832796544353e-06,
                  0.00012994615525399654, -0.0018028110691680837, 0.017635343256416393, -0.11151682284835192,
                  0.38851640020243922, -0.47057636452321761, -0.43265582181827583, 0.48372485788886499});
  return fma(c(x, 2 / kPi) * log(x), j0_near(x), sum);
}
Expr y1_near(const Expr& x) {
  Expr sum = polynomial(
      mapped_near(square_near(x)),
      {-4.12571368e-07, 8.76737866e-06, -0.000141417402, 0.00166877783, -0.013433433, 0.0663469617,
       -0.163120203, 0.091086508, 0.13974939},
      {1.9332868184580147e-13, -5.6601115098540181e-13, 9.3583096173905811e-12, -4.5284348261571514e-10,
       1.5306674016606287e-08, -4.1143692443021115e-07, 8.7329056116155922e-06, -0.00014141839497726772,
       0.0016688036950454025, -0.013433432661543059, 0.066346954536347633, -0.16312020307193104,
       0.091086508526784613, 0.13974939035256126});
  return x * sum + c(x, 2 / kPi) * (j1_near(x) * log(x) - c(x, 1) / x);
}

Expr near_or_far(const Expr& x, const Expr& near, const Expr& far) {
  return select(le(abs(x), c(x, kNear)), near, far);
}

// Handles x = 0 and negative x.
Expr right_of_zero(const Expr& x, const Expr& value) {
  return select(eq(x, c(x, 0)), c(x, -kInf), select(lt(x, c(x, 0)), nan_like(x), value));
}

}  // namespace

Expr bessel_j0(const Expr& x) { return near_or_far(x, j0_near(x), first_kind(wave0(abs(x)))); }
Expr bessel_j1(const Expr& x) {
  Expr far = first_kind(wave1(abs(x)));
  return near_or_far(x, j1_near(x), select(lt(x, c(x, 0)), neg(far), far));
}
Expr bessel_y0(const Expr& x) { return right_of_zero(x, near_or_far(x, y0_near(x), second_kind(wave0(x)))); }
Expr bessel_y1(const Expr& x) { return right_of_zero(x, near_or_far(x, y1_near(x), second_kind(wave1(x)))); }

// ---- Ai ----

namespace {

constexpr double kMiddle = 2.09, kLeft = -5, kUnderflow = 103.892;
constexpr double kLargestSquare = 0.018;  // zeta ** -2 at kLeft

// zeta = 2 / 3 x ** 1.5 is the variable of both expansions. It is rounded as in eager, because for negative x
// it is the angle of a sine.
Expr airy_angle(const Expr& x) { return c(x, 2) * x * sqrt(x) / c(x, 3); }

Expr airy_middle(const Expr& x) {
  return polynomial(
      x * c(x, 1 / kMiddle),
      {-6.31932504e-05, -0.000303215883, 0.00153485266, -0.000336413293, -0.00914872042, 0.0210982803,
       3.40412818e-05, -0.0895555685, 0.164378678, 2.16438719e-05, -0.411528228, 0.540192654, -4.90931311e-08,
       -0.540932501, 0.355028054},
      {6.3167765569403393e-10,  -8.2364522320913233e-10, -1.0502235287192927e-08, 4.2733933916666599e-08,
       -2.8387280540608055e-10, -5.4238270910600178e-07, 1.8700427621553213e-06,  3.167741817473033e-09,
       -2.0199182441892717e-05, 6.2667744928819369e-05,  1.2550161658526116e-10,  -0.00053100684617143532,
       0.0014415813637425922,   -2.9510356786882051e-10, -0.0090737466106101672,  0.020843672774028446,
       -1.5078679696781418e-12, -0.089452050192884852,   0.1643871565442466,      5.1258734494658988e-13,
       -0.41152927096746578,    0.54019465136191891,     1.0936438092788878e-16,  -0.54093255392696604,
       0.35502805388781722});
}
Expr airy_left(const Expr& x) {
  return polynomial(
      mapped(x, kLeft, -kMiddle),
      {0.000139219259, 0.000244628248, -0.0025423302, 0.00113335143, 0.0206372998, -0.0408252207,
       -0.0731299028, 0.304352212, 0.00214117222, -0.991963114, 0.546834612, 1.34622696, -0.584433804,
       -0.358761534},
      {1.3209230417130307e-10,  -2.0936894455313318e-10, -2.157470832682786e-09,  -6.0817729762186053e-09,
       -8.3493809991697438e-09, 4.1661967551288249e-08,  -9.5628431080090925e-08, -7.4905720047973036e-07,
       3.6849552580771482e-06,  1.318803084467563e-06,   -6.0851542249616794e-05, 0.00014015901049878318,
       0.00043139990520011794,  -0.002546585078064744,   0.00088819223097073342,  0.02064161806774981,
       -0.040661960268542484,   -0.073131928899675375,   0.30429587719850426,     0.002141633792475903,
       -0.99195381358855439,    0.54683456642569583,     1.3462263801469152,      -0.58443380269768441,
       -0.35876152827245278});
}

// For x <= kLeft, from `size` = -x.
Expr airy_far_left(const Expr& size) {
  Expr zeta = airy_angle(size), inverse = c(size, 1) / zeta, square = inverse * inverse;
  Expr t = mapped(min(square, c(size, kLargestSquare)), 0, kLargestSquare);
  Expr p = polynomial(
      t, {-1.55638487e-07, 4.1394903e-06, -0.000325431627, 0.999670272},
      {5.1798293636576062e-14, -1.5092224282567402e-13, 3.2214457599391824e-13, -1.2572932355181534e-12,
       5.6013726675945851e-12, -2.7051225286633953e-11, 1.552187529351911e-10, -1.1119419668190892e-09,
       1.067341790686591e-08, -1.5421120987165653e-07, 4.128666155448997e-06, -0.00032543198726471388,
       0.99967027316035661});
  Expr q = polynomial(
      t, {-4.27570244e-07, 7.89195677e-06, -0.000324785358, 0.0691113344},
      {-1.6585556369444878e-13, 4.2035135535472451e-13, -6.0453425310609095e-13, 2.1173800962828366e-12,
       -8.5135899111550793e-12, 3.2946569720853463e-11, -1.4449706853230016e-10, 7.4350642981803585e-10,
       -4.6358654564457084e-09, 3.7226114718802259e-08, -4.215735982041611e-07, 7.8540027289536577e-06,
       -0.00032478687437223849, 0.06911133919899308});
  Expr angle = zeta + c(size, kPi / 4);
  return c(size, std::numbers::inv_sqrtpi) / sqrt(sqrt(size)) * (sin(angle) * p - cos(angle) * (inverse * q));
}

// For x >= kMiddle.
Expr airy_right(const Expr& x) {
  Expr zeta = airy_angle(x), t = fma(c(x, 4), c(x, 1) / max(zeta, c(x, 2)), c(x, -1));
  Expr p = polynomial(
      t,
      {-1.21775799e-06, 3.62555127e-06, -9.91941615e-06, 4.07222699e-05, -0.000200669917, 0.00129190013,
       -0.013932238, 0.984519703},
      {4.3275065414278494e-11, -7.0290717149866894e-11, -1.2197848339365307e-10, 1.7388416450662866e-10,
       3.2026221201910751e-10, -4.9264852156159879e-10, 2.9161759101469968e-11,  -2.77158047205104e-10,
       1.5349357844428877e-09, -3.2466787123127917e-09, 6.91867552705641e-09,    -1.6673759125409396e-08,
       4.1854565788270841e-08, -1.0951037291260118e-07, 3.0295836479727432e-07,  -8.9573307731543018e-07,
       2.8709238752065725e-06, -1.018252168706897e-05,  4.1228651002436128e-05,  -0.0002005935847739076,
       0.0012917951264849832,  -0.013932243830769851,   0.98451970599404293});
  return c(x, std::numbers::inv_sqrtpi) * p / (c(x, 2) * sqrt(sqrt(x)) * exp(zeta));
}

}  // namespace

Expr airy_ai(const Expr& x) {
  Expr left = select(lt(x, c(x, kLeft)), airy_far_left(neg(x)), airy_left(x));
  Expr right = select(gt(x, c(x, kUnderflow)), c(x, 0), airy_right(x));
  Expr value = select(lt(x, c(x, -kMiddle)), left, select(lt(x, c(x, kMiddle)), airy_middle(x), right));
  return select(isinf(x), nan_like(x), value);
}

}  // namespace ipex::ops::body
