// Floor division and remainder of polynomials, which simplify the index arithmetic of views.
//
//   (i*4 + j)//4  =>  i          (i*s + j)%s  =>  j          (i*4 + j)//8  =>  i//2
//   (x//4)//3     =>  x//12      (i*12 + j)%4 =>  j%4        (i*4 + j)%8   =>  i%2*4 + j
//   where 0 <= j < 4, and 0 <= j < s
#pragma once

#include "codegen/loop/bounds.h"
#include "codegen/loop/polynomial.h"

namespace ipex::loop {

// Equal to floordiv(n, d) and floormod(n, d) for every value within the bounds. If no rule applies, the
// result is an atom of that op.
Polynomial floor_quotient(const Polynomial& n, const Polynomial& d, const Bounds& bounds);
Polynomial floor_remainder(const Polynomial& n, const Polynomial& d, const Bounds& bounds);

// x//d*d + x%d  =>  x
Polynomial recombine(Polynomial p, const Bounds& bounds);

}  // namespace ipex::loop
