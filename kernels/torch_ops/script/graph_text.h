// Writes the text of a Graph with constant sizes (backend/graph/ir.h): values, ATen's type promotion, and the
// few views that import rules are made of. It is GraphWriter of python/, for programs without Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backend/ops/tables.h"
#include "kernels/torch_ops/compiled_ops.h"

namespace ipex::torch_ops::script {

using Shape = std::vector<int64_t>;

// A value of the graph.
struct Ref {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  Shape shape;
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
};

using Operand = std::variant<Ref, c10::Scalar>;
using ValueType = std::pair<c10::ScalarType, Shape>;

c10::ScalarType opmath(c10::ScalarType dtype);  // the type that arithmetic on `dtype` is done in
c10::ScalarType promote(std::span<const Operand> operands);
Shape broadcast(const Shape& a, const Shape& b);
Shape reduced(const Shape& shape, const Shape& axes, bool keepdim);
int64_t numel(const Shape& shape);

class GraphText {
 public:
  Ref input(const at::Tensor& like, bool is_static);
  // A node; `attributes` is the text between its operands and its type.
  Ref emit(std::string_view op, std::span<const Ref> operands, const std::string& attributes,
           c10::ScalarType dtype, Shape shape);
  Ref emit(std::string_view op, std::initializer_list<Ref> operands, const std::string& attributes,
           c10::ScalarType dtype, Shape shape) {
    return emit(op, std::span(operands.begin(), operands.size()), attributes, dtype, std::move(shape));
  }
  std::vector<Ref> emit_many(std::string_view op, std::span<const Ref> operands,
                             const std::string& attributes, std::span<const ValueType> types);

  Ref scalar(const c10::Scalar& value, c10::ScalarType dtype);
  Ref cast(const Ref& x, c10::ScalarType dtype);

  // A row of pointwise.def over tensors and numbers, which are promoted and broadcast.
  Ref pointwise(std::string_view row, const std::vector<Operand>& operands);
  Ref pointwise(const ops::PointwiseRow& row, const std::vector<Operand>& operands);
  Ref where(const Ref& condition, const Operand& x, const Operand& y);
  Ref reduce(std::string_view row, const Ref& x, const Shape& axes, bool keepdim);

  // Broadcasts; operand dim i becomes result dim dims[i] (default: aligned at the right).
  Ref expand(const Ref& x, const Shape& shape, std::optional<Shape> dims = {});
  Ref reshape(const Ref& x, const Shape& shape);
  Ref permute(const Ref& x, const Shape& dims);
  Ref slice(const Ref& x, int64_t dim, int64_t start, int64_t length, int64_t step = 1);

  // The whole text. The outputs have the layouts of `like`.
  std::string finish(std::span<const Ref> outputs, std::span<const Shape> strides) const;

 private:
  std::string fresh() { return "%v" + std::to_string(count_++); }
  // One operand in the compute type of `row`.
  Ref prepared(const Operand& operand, c10::ScalarType promoted, const ops::PointwiseRow& row);
  Ref node_of(const ops::PointwiseRow& row, std::span<const Ref> operands, c10::ScalarType dtype,
              const Shape& shape);

  std::string header_, nodes_;
  std::map<std::pair<std::string, c10::ScalarType>, Ref> scalars_;
  int64_t count_ = 0;
};

inline std::string ints(const Shape& values) { return ints_text(values); }  // "[1,2]"

}  // namespace ipex::torch_ops::script
