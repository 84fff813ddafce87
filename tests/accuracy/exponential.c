/* SPDX-License-Identifier: MIT
 * The exponential and the activations in double-double, against values of another source and against identities. */
#include <math.h>
#include "dd_exp.h"
#include "harness.h"
#include "random.h"

/* What dd_exp.h promises. */
#define RELATIVE  0x1p-99
#define SUBNORMAL 0x1p-1074

static void near_dd(dd want, dd have, double most) {
  T_NEAR(0.0, dd_subtract(have, want).hi, most);
}

/* From mpmath with 700 digits, each rounded to a sum of two doubles: exp(z), sigmoid(z), silu(z), and the slopes of
 * sigmoid and of silu. */
static const struct known {
  double z;
  dd exp, sigmoid, silu, sigmoid_slope, silu_slope;
} known[] = {
    {0x1p-60, {0x1p+0, 0x1p-60}, {0x1p-1, 0x1p-62}, {0x1p-61, 0x1p-122}, {0x1p-2, -0x1p-124}, {0x1p-1, 0x1p-61}},
    {-0x1p-60, {0x1p+0, -0x1p-60}, {0x1p-1, -0x1p-62}, {-0x1p-61, 0x1p-122}, {0x1p-2, -0x1p-124}, {0x1p-1, -0x1p-61}},
    {-0x1.0624dd2f1a9fcp-10,
     {0x1.ff7cfe56f1a9ep-1, -0x1.1719f90b09522p-55},
     {0x1.ffbe76c90fd99p-2, 0x1.bdc58592c8976p-56},
     {-0x1.06034f40081d8p-11, 0x1.088633144b3a7p-66},
     {0x1.fffff79c84472p-3, -0x1.8a948dd5b0176p-57},
     {0x1.ff7ced92d6f3bp-2, -0x1.5dc66f9a259e1p-56}},
    {0x1.62e33eff19503p-2,
     {0x1.6a099138a089dp+0, -0x1.5882059b8f8c7p-54},
     {0x1.2bec15f4fd39ap-1, 0x1.dc5e635b5359dp-57},
     {0x1.9fc6b28249897p-3, 0x1.c5ffc18834ea9p-61},
     {0x1.f0edadce6ab35p-3, -0x1.50cd74892ad4ap-57},
     {0x1.56fa326b11f2ap-1, -0x1.70181a6b85efap-55}},
    {-0x1.62e5de15ca6cap-2,
     {0x1.6a094e536e572p-1, 0x1.90695b35d2e01p-55},
     {0x1.a8273140addb4p-2, 0x1.9cb1f3c81c04ep-57},
     {-0x1.260186904b4a6p-3, 0x1.5b2be96f87412p-62},
     {0x1.f0ed75ee362c0p-3, -0x1.af8b479cdff54p-57},
     {0x1.520a5f2dea25bp-2, -0x1.1c6497afe540ap-56}},
    {0x1p-1,
     {0x1.a61298e1e069cp+0, -0x1.b4690082a4906p-55},
     {0x1.3eb2fd4d34391p-1, -0x1.0765394713dc7p-55},
     {0x1.3eb2fd4d34391p-2, -0x1.0765394713dc7p-56},
     {0x1.e149a052c16c2p-3, -0x1.976933df20019p-58},
     {0x1.7adc31578c669p-1, -0x1.06de64282ee42p-58}},
    {-0x1p+0,
     {0x1.78b56362cef38p-2, -0x1.ca8a4270fadf5p-57},
     {0x1.136561454ba86p-2, 0x1.35dae23bc734ap-56},
     {-0x1.136561454ba86p-2, -0x1.35dae23bc734ap-56},
     {0x1.92a946fa34394p-3, 0x1.bfcf92fb36388p-60},
     {0x1.2842f720c62f1p-4, 0x1.9dde90c13d117p-60}},
    {-0x1.474973c84120cp+0,
     {0x1.1d25cf210482dp-2, 0x1.a118319749f17p-56},
     {0x1.be1410460527ep-3, 0x1.538fe1bf9e8e2p-58},
     {-0x1.1d25cf210482ep-2, 0x1.ca2d0d94faaf3p-60},
     {0x1.5cead2fd3469dp-3, -0x1.a3233b661ac6ep-60},
     {-0x1.c450cd12a2a57p-56, 0x1.34cc8811bb1b0p-112}},
    {0x1.4000000000000p+1,
     {0x1.85d6fd931e0bbp+3, 0x1.d4dec34de84a0p-53},
     {0x1.d9291ddb596f7p-1, 0x1.3b6dd4e6b805ap-57},
     {0x1.27b9b2a917e5ap+1, 0x1.b14929440cc0ep-53},
     {0x1.1f25131e3a8c0p-4, -0x1.de68cdfd24bd0p-58},
     {0x1.197259ea65dd9p+0, 0x1.dcad5a6d49433p-54}},
    {-0x1.e000000000000p+1,
     {0x1.81509354f0d29p-6, 0x1.75db52f890742p-60},
     {0x1.78761313f225ap-6, 0x1.e15477fb21e12p-64},
     {-0x1.60eeb1e2b3034p-4, -0x1.9c33f307b6fc3p-58},
     {0x1.6fcfa6d9f1693p-6, -0x1.9b7b8de9b9601p-60},
     {-0x1.f56a4f4eab926p-5, 0x1.25249bac29465p-60}},
    {0x1.4000000000000p+3,
     {0x1.5829dcf950560p+14, -0x1.83e055cfea4bbp-40},
     {0x1.fffa0cb346f89p-1, -0x1.95ffd239e4d2ap-55},
     {0x1.3ffc47f00c5b5p+3, 0x1.82401c9bd0fc6p-51},
     {0x1.7ccec13a9e846p-15, -0x1.6d9a2eca80717p-69},
     {0x1.001ac680bc10ap+0, 0x1.cac386d765c4ap-54}},
    {0x1.1400000000000p+4,
     {0x1.d94295464477bp+24, -0x1.9f265eafebf28p-31},
     {0x1.fffffeeb0b62ep-1, -0x1.a01287b108266p-55},
     {0x1.13ffff6ab4235p+4, -0x1.b049fd256e64bp-50},
     {0x1.14f49c90b01bdp-25, 0x1.a4712504deedap-80},
     {0x1.000008ca4377dp+0, -0x1.a89a8886b8471p-55}},
    {-0x1.1400000000000p+4,
     {0x1.14f49dbc5078cp-25, -0x1.2db5313fb7a86p-79},
     {0x1.14f49d26804a2p-25, -0x1.3bdf6692dc0c6p-81},
     {-0x1.2a97b96d824ffp-21, 0x1.b52336a5954f5p-75},
     {0x1.14f49c90b01bdp-25, 0x1.a4712504deedap-80},
     {-0x1.19486ef995d96p-21, 0x1.10d708e228c77p-76}},
    {0x1.2400000000000p+5,
     {0x1.940b4acc4e544p+52, 0x1.09ac4cb558a8ep-4},
     {0x1.fffffffffffffp-1, -0x1.1199d470aef9ep-55},
     {0x1.23fffffffffffp+5, 0x1.1bf644d7bc358p-49},
     {0x1.4466751c2bbe7p-53, -0x1.ad330ea8a1400p-108},
     {0x1.0000000000016p+0, 0x1.f86a7ad021d01p-54}},
    {-0x1.2400000000000p+5,
     {0x1.4466751c2bbe8p-53, 0x1.95b47e6f0a5f3p-107},
     {0x1.4466751c2bbe8p-53, -0x1.a0728472a3208p-107},
     {-0x1.7204dd9421e54p-48, -0x1.49fac1da7bddfp-103},
     {0x1.4466751c2bbe7p-53, -0x1.ad330ea8a1400p-108},
     {-0x1.67e1a9eb40874p-48, -0x1.078eb8ed2450ap-107}},
    {-0x1.0200000000000p+6,
     {0x1.ed3f877f42b71p-94, 0x1.55a20b1094465p-148},
     {0x1.ed3f877f42b71p-94, 0x1.55a20b10908ffp-148},
     {-0x1.f11a068e413c8p-88, -0x1.c09a9e4d63622p-143},
     {0x1.ed3f877f42b71p-94, 0x1.55a20b108cd99p-148},
     {-0x1.e96508704431ap-88, -0x1.caf6c6fa6bb10p-142}},
    {0x1.9000000000000p+6,
     {0x1.3494a9b171bf5p+144, -0x1.4cf76bdb3376fp+90},
     {0x1p+0, -0x1.a8c1f14e2af5dp-145},
     {0x1.9000000000000p+6, -0x1.4bd7848511900p-138},
     {0x1.a8c1f14e2af5dp-145, -0x1.43089bb228e2cp-199},
     {0x1p+0, 0x1.488600a2753a2p-138}},
    {-0x1.9000000000000p+6,
     {0x1.a8c1f14e2af5dp-145, -0x1.43089bb228e2cp-199},
     {0x1.a8c1f14e2af5dp-145, -0x1.43089bb228e2cp-199},
     {-0x1.4bd7848511900p-138, -0x1.a3a1465cd00eep-192},
     {0x1.a8c1f14e2af5dp-145, -0x1.43089bb228e2cp-199},
     {-0x1.488600a2753a2p-138, 0x1.41d8a86bcb9f6p-192}},
    {0x1.2c00000000000p+8,
     {0x1.c05c0a7166b4ap+432, 0x1.cf59a9e7d8cb5p+378},
     {0x1p+0, -0x1.245639c3a49f7p-433},
     {0x1.2c00000000000p+8, -0x1.56950bb144eaep-425},
     {0x1.245639c3a49f7p-433, 0x1.2f081eb716d99p-487},
     {0x1p+0, 0x1.5570b57781464p-425}},
    {-0x1.2c00000000000p+9,
     {0x1.4dd4d0d12c071p-866, 0x1.2167a13398003p-921},
     {0x1.4dd4d0d12c071p-866, 0x1.2167a13398003p-921},
     {-0x1.873564b51f985p-857, 0x1.a66d478bc4efep-911},
     {0x1.4dd4d0d12c071p-866, 0x1.2167a13398003p-921},
     {-0x1.868e7a4cb7024p-857, -0x1.774a5e8bee2a2p-911}},
    {0x1.5e00000000000p+9,
     {0x1.d945df4f8ec8ep+1009, 0x1.183392684a46ep+954},
     {0x1p+0, -0x1.14f2b0fb9307fp-1010},
     {0x1.5e00000000000p+9, -0x1.7aa3cdf7f304ep-1001},
     {0x1.14f2b0fb9307fp-1010, 0x0.00000000000acp-1022},
     {0x1p+0, 0x1.7a19549f753b5p-1001}},
    {-0x1.5e00000000000p+9,
     {0x1.14f2b0fb9307fp-1010, 0x0.00000000000acp-1022},
     {0x1.14f2b0fb9307fp-1010, 0x0.00000000000acp-1022},
     {-0x1.7aa3cdf7f304ep-1001, 0x0.000000009ea41p-1022},
     {0x1.14f2b0fb9307fp-1010, 0x0.00000000000acp-1022},
     {-0x1.7a19549f753b5p-1001, -0x0.00000000e2513p-1022}},
    {-0x1.7480000000000p+9,
     {0x0.0000000000001p-1022, 0},
     {0x0.0000000000001p-1022, 0},
     {-0x0.00000000001aap-1022, 0},
     {0x0.0000000000001p-1022, 0},
     {-0x0.00000000001a9p-1022, 0}},
};

static void known_values(void) {
  for (size_t i = 0; i < T_COUNT(known); i++) {
    const struct known *k = &known[i];
    dd z = dd_from(k->z);
    double slope_parts = k->sigmoid.hi + fabs(k->z) * k->sigmoid_slope.hi;
    t_context("z = %g", k->z);
    near_dd(k->exp, dd_exp(z), RELATIVE * k->exp.hi + SUBNORMAL);
    near_dd(k->sigmoid, dd_sigmoid(z), RELATIVE * k->sigmoid.hi + SUBNORMAL);
    near_dd(k->sigmoid, dd_activation(z, true), RELATIVE * k->sigmoid.hi + SUBNORMAL);
    near_dd(k->silu, dd_activation(z, false), RELATIVE * fabs(k->silu.hi) + SUBNORMAL);
    near_dd(k->sigmoid_slope, dd_activation_slope(z, true), RELATIVE * k->sigmoid_slope.hi + SUBNORMAL);
    near_dd(k->silu_slope, dd_activation_slope(z, false), RELATIVE * slope_parts + SUBNORMAL);
  }
}

/* exp(a) exp(b) = exp(a + b), also where b = -a; a + b is no double in general. */
static void products(void) {
  verify_random random = verify_random_start(t_seed(), 0);
  for (int i = 0; i < 20000; i++) {
    double a = 340 * (2 * verify_random_uniform(&random) - 1), b = 340 * (2 * verify_random_uniform(&random) - 1);
    t_context("a = %.17g, b = %.17g", a, b);
    near_dd(dd_from(1), dd_multiply(dd_exp(dd_from(a)), dd_exp(dd_from(-a))), 3 * RELATIVE);
    dd product = dd_multiply(dd_exp(dd_from(a)), dd_exp(dd_from(b)));
    near_dd(dd_exp(dd_exact_sum(a, b)), product, 4 * RELATIVE * product.hi);
  }
}

/* sigmoid(z) + sigmoid(-z) = 1, silu(z) - silu(-z) = z, and the slopes by central differences. */
static void symmetries(void) {
  verify_random random = verify_random_start(t_seed(), 1);
  const double step = 0x1p-24;
  for (int i = 0; i < 20000; i++) {
    double z = 60 * (2 * verify_random_uniform(&random) - 1);
    dd at = dd_from(z), opposite = dd_from(-z), above = dd_exact_sum(z, step), below = dd_exact_sum(z, -step);
    t_context("z = %.17g", z);
    near_dd(dd_from(1), dd_add(dd_sigmoid(at), dd_sigmoid(opposite)), 2 * RELATIVE);
    near_dd(at, dd_subtract(dd_activation(at, false), dd_activation(opposite, false)), 3 * RELATIVE * fabs(z));
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
      dd rise = dd_subtract(dd_activation(above, sigmoid), dd_activation(below, sigmoid));
      /* the third derivatives are below 1, so the difference is off by at most step^2/6 */
      near_dd(dd_activation_slope(at, sigmoid), dd_scale(rise, 23), step * step / 6 + RELATIVE * (fabs(z) + 1) / step);
    }
  }
}

/* Beyond the range of doubles. */
static void limits(void) {
  T_EQ_F64(0, dd_exp(dd_from(-2500)).hi);
  T_CHECK(isinf(dd_exp(dd_from(2500)).hi));
  T_EQ_F64(1, dd_sigmoid(dd_from(1e300)).hi);
  T_EQ_F64(0, dd_sigmoid(dd_from(-1e300)).hi);
  T_EQ_F64(1e300, dd_activation(dd_from(1e300), false).hi);
  T_EQ_F64(0, dd_activation(dd_from(-1e300), false).hi);
  T_EQ_F64(1, dd_activation_slope(dd_from(1e300), false).hi);
  T_EQ_F64(0, dd_activation_slope(dd_from(-1e300), false).hi);
}

int main(int argc, char **argv) {
  static const t_case cases[] = {
      {"known_values", known_values}, {"products", products}, {"symmetries", symmetries}, {"limits", limits}};
  return t_main(argc, argv, cases, T_COUNT(cases));
}
