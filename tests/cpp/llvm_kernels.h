// Small kernels for the tests of the LLVM backend: arrays of any dtype, elementwise functions at any width,
// and running one function by the interpreter and as machine code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codegen/llvm/jit.h"
#include "codegen/loop/ir.h"

namespace ipex::loop::testing {

// Elements of one dtype in memory, written and read as the widest C++ type of its kind; behind them a guard
// that nobody may write.
struct Array {
  Array(Dtype dtype, int64_t size);
  static Array of_ints(Dtype dtype, const std::vector<int64_t>& values);
  static Array of_floats(Dtype dtype, const std::vector<double>& values);
  void set_int(int64_t i, int64_t value);
  void set_float(int64_t i, double value);
  int64_t get_int(int64_t i) const;  // half types: their bits
  double get_float(int64_t i) const;
  void* data() { return bytes.data(); }
  bool guard_is_intact() const;

  Dtype dtype;
  int64_t size;
  std::vector<std::byte> bytes;
};

// "" when both hold the same elements; any NaN equals any NaN; floats may differ by `ulps` units in the last
// place.
std::string difference(const Array& expected, const Array& actual, double ulps = 0);

// out[i] = fn(in0[i], in1[i], ...) for i in [0, n), `lanes` at a time; n is a multiple of lanes.
using Body = std::function<Expr(const std::vector<Expr>&)>;
Function elementwise(const std::string& name, const std::vector<Dtype>& inputs, Dtype output, int64_t n,
                     int lanes, const Body& fn);

// lower_math and legalize, the passes an emitter cannot do without.
Function lowered(const Function& f, const Target& target);

void run(const FunctionLibrary& library, const std::string& name, std::vector<Array*> arrays,
         const std::vector<int64_t>& symbols = {});
void interpret(const Function& f, std::vector<Array*> arrays, const std::vector<int64_t>& symbols = {});

// Runs f both ways on copies of `arrays` and compares every one. For every ISA of this CPU.
void expect_same(const Function& f, const std::vector<Array>& arrays,
                 const std::vector<int64_t>& symbols = {}, double ulps = 0);

// Values where conversions and arithmetic go wrong.
std::vector<double> float_edges(Dtype dtype);
std::vector<int64_t> int_edges(Dtype dtype);

}  // namespace ipex::loop::testing
