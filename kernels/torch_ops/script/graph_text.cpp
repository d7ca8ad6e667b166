#include "kernels/torch_ops/script/graph_text.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <numeric>

#include "runtime/error.h"

namespace ipex::torch_ops::script {
namespace {

using c10::ScalarType;

std::string joined(const Shape& values, char open, char close) {
  std::string text(1, open);
  for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + std::to_string(values[i]);
  return text + close;
}

std::string type_text(ScalarType dtype, const Shape& shape) { return dtype_text(dtype) + ints(shape); }

bool accepts(const ops::PointwiseRow& row, ScalarType dtype) {
  if (dtype == at::kBool) return row.booleans;
  return c10::isFloatingType(dtype) ? row.floats : row.integers;
}

ScalarType number_type(const c10::Scalar& value) {
  if (value.isBoolean()) return at::kBool;
  if (value.isIntegral(false)) return at::kLong;
  if (value.isFloatingPoint()) return c10::get_default_dtype_as_scalartype();
  throw Unsupported("a complex number");
}

ScalarType join(ScalarType a, ScalarType b) {
  return a == ScalarType::Undefined ? b : c10::promoteTypes(a, b);
}

ScalarType combine(ScalarType high, ScalarType low) {
  if (high == ScalarType::Undefined || low == ScalarType::Undefined)
    return high == ScalarType::Undefined ? low : high;
  if (c10::isFloatingType(high)) return high;
  return high == at::kBool || c10::isFloatingType(low) ? c10::promoteTypes(high, low) : high;
}

const ops::PointwiseRow& row_named(std::string_view name) {
  for (const ops::PointwiseRow& row : ops::pointwise_rows())
    if (row.name == name) return row;
  throw InternalError("pointwise.def has no row " + std::string(name));
}

// As in python/: eager does not round the second operand of these first if it is a 0-d tensor, and rounds
// numbers of those.
bool keeps_factor(std::string_view row) {
  return row == "mul" || row == "div" || row == "div_trunc" || row == "div_floor";
}
bool rounds_numbers(const ops::PointwiseRow& row) {
  return row.promotion == ops::Promotion::kAlwaysBool || row.name == "remainder" || row.name == "fmod";
}

}  // namespace

ScalarType opmath(ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
}

int64_t numel(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// torch.result_type: tensors with dimensions outrank 0-d tensors, which outrank numbers.
ScalarType promote(std::span<const Operand> operands) {
  ScalarType dimensioned = ScalarType::Undefined, zero_dim = dimensioned, number = dimensioned;
  for (const Operand& operand : operands) {
    if (const Ref* ref = std::get_if<Ref>(&operand)) {
      ScalarType& type = ref->shape.empty() ? zero_dim : dimensioned;
      type = join(type, ref->dtype);
    } else {
      number = join(number, number_type(std::get<c10::Scalar>(operand)));
    }
  }
  return combine(dimensioned, combine(zero_dim, number));
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape result = a.size() < b.size() ? b : a;
  const Shape& other = a.size() < b.size() ? a : b;
  const size_t lead = result.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d)
    if (result[lead + d] == 1) result[lead + d] = other[d];
  return result;
}

Shape reduced(const Shape& shape, const Shape& axes, bool keepdim) {
  Shape result;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool gone = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    if (!gone || keepdim) result.push_back(gone ? 1 : shape[d]);
  }
  return result;
}

// ---- nodes ----

Ref GraphText::input(const at::Tensor& like, bool is_static) {
  Ref ref{fresh(), like.scalar_type(), like.sizes().vec()};
  header_ += (header_.empty() ? "" : ", ") + ref.name + ": " + type_text(ref.dtype, ref.shape);
  if (!like.is_contiguous()) header_ += joined(like.strides().vec(), '{', '}');
  if (is_static) header_ += " static";
  return ref;
}

std::vector<Ref> GraphText::emit_many(std::string_view op, std::span<const Ref> operands,
                                      const std::string& attributes, std::span<const ValueType> types) {
  std::vector<Ref> results;
  std::string names, type_texts;
  for (const auto& [dtype, shape] : types) {
    results.push_back({fresh(), dtype, shape});
    names += (names.empty() ? "" : ", ") + results.back().name;
    type_texts += (type_texts.empty() ? "" : ", ") + type_text(dtype, shape);
  }
  nodes_ += names + " = " + std::string(op);
  for (size_t i = 0; i < operands.size(); ++i) nodes_ += (i ? ", " : "(") + operands[i].name;
  nodes_ += (operands.empty() ? " " : ") ") + attributes + " : " + type_texts + "\n";
  return results;
}

Ref GraphText::emit(std::string_view op, std::span<const Ref> operands, const std::string& attributes,
                    ScalarType dtype, Shape shape) {
  const ValueType type{dtype, std::move(shape)};
  return emit_many(op, operands, attributes, {&type, 1})[0];
}

Ref GraphText::scalar(const c10::Scalar& value, ScalarType dtype) {
  std::string text;
  if (c10::isFloatingType(dtype))
    text = number_text(value.to<double>());
  else if (dtype == at::kBool)
    text = value.to<bool>() ? "1" : "0";
  else if (value.isFloatingPoint())
    throw Unsupported("a fraction in a type of integers");
  else
    text = std::to_string(value.to<int64_t>());
  Ref& ref = scalars_[{text, dtype}];
  if (ref.name.empty()) ref = emit("constant", {}, "value=" + text, dtype, {});
  return ref;
}

Ref GraphText::cast(const Ref& x, ScalarType dtype) {
  if (x.dtype == dtype) return x;
  return emit("pointwise.cast", {x}, "", dtype, x.shape);
}

// ---- arithmetic ----

Ref GraphText::node_of(const ops::PointwiseRow& row, std::span<const Ref> operands, ScalarType dtype,
                       const Shape& shape) {
  std::vector<Ref> expanded;
  for (const Ref& operand : operands) expanded.push_back(expand(operand, shape));
  return emit("pointwise." + std::string(row.name), expanded, "", dtype, shape);
}

Ref GraphText::prepared(const Operand& operand, ScalarType promoted, const ops::PointwiseRow& row) {
  if (const Ref* ref = std::get_if<Ref>(&operand))
    return ref->dtype == promoted || opmath(ref->dtype) == promoted ? *ref : cast(*ref, promoted);
  const Ref number = scalar(std::get<c10::Scalar>(operand), opmath(promoted));
  return rounds_numbers(row) ? cast(cast(number, promoted), opmath(promoted)) : number;
}

Ref GraphText::pointwise(std::string_view row, const std::vector<Operand>& operands) {
  return pointwise(row_named(row), operands);
}

Ref GraphText::pointwise(const ops::PointwiseRow& row, const std::vector<Operand>& operands) {
  ScalarType promoted = promote(operands);
  if (row.promotion == ops::Promotion::kIntToFloat && !c10::isFloatingType(promoted))
    promoted = c10::get_default_dtype_as_scalartype();
  if (!accepts(row, promoted))
    throw Unsupported("pointwise." + std::string(row.name) + " of " + c10::toString(promoted));
  Shape shape;
  std::vector<Ref> refs;
  for (const Operand& operand : operands) {
    refs.push_back(prepared(operand, promoted, row));
    shape = broadcast(shape, refs.back().shape);
  }
  if (keeps_factor(row.name) && std::holds_alternative<Ref>(operands[1]) && refs[1].shape.empty())
    refs[1] = cast(std::get<Ref>(operands[1]), opmath(promoted));
  const bool test = row.promotion == ops::Promotion::kAlwaysBool;
  return node_of(row, refs, test ? at::kBool : promoted, shape);
}

Ref GraphText::where(const Ref& condition, const Operand& x, const Operand& y) {
  const ops::PointwiseRow& row = row_named("where");
  const Operand values[] = {x, y};
  const ScalarType promoted = promote(values);
  const std::vector<Ref> refs{cast(condition, at::kBool), prepared(x, promoted, row),
                              prepared(y, promoted, row)};
  return node_of(row, refs, promoted, broadcast(broadcast(refs[0].shape, refs[1].shape), refs[2].shape));
}

Ref GraphText::reduce(std::string_view row, const Ref& x, const Shape& axes, bool keepdim) {
  return emit("reduce." + std::string(row), {x},
              "axes=" + ints(axes) + " keepdim=" + (keepdim ? "true" : "false"), x.dtype,
              reduced(x.shape, axes, keepdim));
}

// ---- views ----

Ref GraphText::expand(const Ref& x, const Shape& shape, std::optional<Shape> dims) {
  if (x.shape == shape) return x;
  if (!dims) {
    dims.emplace(x.shape.size());
    std::iota(dims->begin(), dims->end(), static_cast<int64_t>(shape.size() - x.shape.size()));
  }
  return emit("expand", {x}, "dims=" + ints(*dims), x.dtype, shape);
}

Ref GraphText::reshape(const Ref& x, const Shape& shape) {
  return x.shape == shape ? x : emit("reshape", {x}, "", x.dtype, shape);
}

Ref GraphText::permute(const Ref& x, const Shape& dims) {
  if (std::is_sorted(dims.begin(), dims.end())) return x;
  Shape shape;
  for (const int64_t d : dims) shape.push_back(x.shape[d]);
  return emit("permute", {x}, "dims=" + ints(dims), x.dtype, shape);
}

Ref GraphText::slice(const Ref& x, int64_t dim, int64_t start, int64_t length, int64_t step) {
  if (start == 0 && length == x.shape[dim] && step == 1) return x;
  Shape starts(x.shape.size(), 0), steps(x.shape.size(), 1), shape = x.shape;
  starts[dim] = start;
  steps[dim] = step;
  shape[dim] = length;
  return emit("slice", {x}, "starts=" + joined(starts, '(', ')') + " steps=" + ints(steps), x.dtype, shape);
}

std::string GraphText::finish(std::span<const Ref> outputs, std::span<const Shape> strides) const {
  std::string results;
  for (size_t i = 0; i < outputs.size(); ++i)
    results += (i ? ", " : " ") + outputs[i].name + joined(strides[i], '{', '}');
  return "graph script(" + header_ + ") {\n" + nodes_ + "return" + results + "\n}";
}

}  // namespace ipex::torch_ops::script
