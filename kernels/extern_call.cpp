// See extern_call.h. Results are passed to the run without a copy, except if the graph's layout differs from
// ATen's, or if the operator returned (a view of) an operand or another result, whose memory will be reused.
#include "kernels/extern_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/error.h"

namespace ipex::kernels {
namespace {

using Json = nlohmann::json;

at::Tensor view_of(const TensorView& view) {
  return at::from_blob(view.data, view.sizes, view.strides,
                       at::TensorOptions().dtype(scalar_type(view.dtype)));
}

// A copy of `source` with these strides. Dimensions with stride 0 are written once, because copy_ refuses
// targets that overlap themselves.
at::Tensor copied_to_strides(const at::Tensor& source, c10::IntArrayRef strides) {
  at::Tensor result = at::empty_strided(source.sizes(), strides, source.options());
  at::Tensor from = source, to = result;
  for (int64_t d = 0; d < source.dim(); ++d) {
    if (strides[d] != 0 || source.size(d) < 2) continue;
    from = from.narrow(d, 0, 1);
    to = to.narrow(d, 0, 1);
  }
  to.copy_(from);
  return result;
}

// Tensors on the graph's memory, for one call. The call may leave references to them, for example in a log of
// activations or in a traceback. detach() replaces the memory of such tensors by a copy, because the graph
// will reuse its memory.
class GraphViews {
 public:
  at::Tensor make(const TensorView& view) {
    at::Tensor tensor = view_of(view);
    storages_.push_back(tensor.storage().getWeakStorageImpl());
    return tensor;
  }

  // Call it after the call's own references are released: a storage that is still alive is referenced
  // elsewhere.
  void detach() const {
    for (const auto& storage : storages_) {
      const auto kept = storage.lock();
      if (!kept || kept->nbytes() == 0) continue;
      at::DataPtr copy = c10::GetCPUAllocator()->allocate(kept->nbytes());
      std::memcpy(copy.get(), kept->data(), kept->nbytes());
      kept->set_data_ptr_noswap(
          std::move(copy));  // affects all views, which get their memory from the storage
    }
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

// One argument: a constant, or a description of how to compute it from operands and symbols at each call.
struct Argument {
  enum class Kind : uint8_t { kConstant, kTensor, kTensors, kOptionalTensors, kSize, kSizes };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<int> operands;  // -1: none
  std::vector<SizeExpr> sizes;
};

class ArgumentParser {
 public:
  explicit ArgumentParser(const ExternCallDesc& desc) : desc_(desc) {}

  Argument parse(const Json& json, const c10::Argument& declared) const {
    c10::TypePtr type = declared.type();
    if (auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
      if (json.is_null()) return {};
    }
    if (auto list = type->cast<c10::ListType>()) return parse_list(json, list->getElementType(), declared);
    if (type->kind() == c10::TypeKind::TensorType) {
      if (json.is_null()) return {.constant = at::Tensor()};
      return {.kind = Argument::Kind::kTensor, .operands = {operand(json)}};
    }
    if (json.is_object() && json.contains("dim"))
      return {.kind = Argument::Kind::kSize, .sizes = {size(json)}};
    return {.constant = value(json, type, declared)};
  }

 private:
  [[noreturn]] void fail(const Json& json, const c10::Argument& declared) const {
    throw InternalError(desc_.overload + ": argument '" + declared.name() + "' of type " +
                        declared.type()->str() + " cannot be " + json.dump());
  }

  int operand(const Json& json) const {
    if (json.is_null()) return -1;
    const int index = json.at("t").get<int>();
    IPEX_CHECK(index >= 0 && index < static_cast<int>(desc_.operands.size()),
               desc_.overload + ": no such operand");
    return index;
  }

  SizeExpr size(const Json& json) const { return desc_.sizes.at(json.at("dim").get<size_t>()); }

  static double real(const Json& json) {
    return json.is_object() ? std::stod(json.at("f").get<std::string>()) : json.get<double>();
  }

  c10::IValue value(const Json& json, const c10::TypePtr& type, const c10::Argument& declared) const {
    if (json.is_null()) return {};
    if (json.is_object() && json.contains("dtype"))
      return static_cast<int64_t>(scalar_type(parse_dtype(json["dtype"].get<std::string>()).value()));
    if (json.is_object() && json.contains("device")) return c10::Device(c10::kCPU);
    if (json.is_object() && json.contains("layout")) return static_cast<int64_t>(c10::kStrided);
    if (json.is_object() && json.contains("memory_format")) {
      const auto name = json["memory_format"].get<std::string>();
      for (auto [text, format] : {std::pair{"contiguous_format", at::MemoryFormat::Contiguous},
                                  {"preserve_format", at::MemoryFormat::Preserve},
                                  {"channels_last", at::MemoryFormat::ChannelsLast},
                                  {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}})
        if (name == text) return static_cast<int64_t>(format);
      fail(json, declared);
    }
    switch (type->kind()) {
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        if (json.is_boolean()) return static_cast<int64_t>(json.get<bool>());
        if (json.is_number_integer()) return json.get<int64_t>();
        break;
      case c10::TypeKind::FloatType:
      case c10::TypeKind::SymFloatType:
        if (json.is_number() || json.is_object()) return real(json);
        break;
      case c10::TypeKind::BoolType:
      case c10::TypeKind::SymBoolType:
        if (json.is_boolean()) return json.get<bool>();
        if (json.is_number_integer()) return json.get<int64_t>() != 0;
        break;
      case c10::TypeKind::NumberType:
        if (json.is_boolean()) return c10::Scalar(json.get<bool>());
        if (json.is_number_integer()) return c10::Scalar(json.get<int64_t>());
        if (json.is_number_float() || json.is_object()) return c10::Scalar(real(json));
        break;
      case c10::TypeKind::StringType:
      case c10::TypeKind::AnyType:  // the name of a process group
        if (json.is_string()) return json.get<std::string>();
        break;
      default:
        break;
    }
    fail(json, declared);
  }

  Argument parse_list(const Json& given, const c10::TypePtr& element, const c10::Argument& declared) const {
    // A single number is accepted for a list.
    const Json json = given.is_array() ? given : Json(std::vector<Json>(declared.N().value_or(1), given));
    const bool optional = element->kind() == c10::TypeKind::OptionalType;
    const c10::TypePtr type = optional ? element->castRaw<c10::OptionalType>()->getElementType() : element;
    if (type->kind() == c10::TypeKind::TensorType) {
      Argument list{.kind = optional ? Argument::Kind::kOptionalTensors : Argument::Kind::kTensors};
      for (const Json& item : json) list.operands.push_back(operand(item));
      return list;
    }
    bool symbolic = false;
    for (const Json& item : json) symbolic |= item.is_object() && item.contains("dim");
    if (symbolic) {
      Argument list{.kind = Argument::Kind::kSizes};
      for (const Json& item : json)
        list.sizes.push_back(item.is_object() ? size(item) : SizeExpr(item.get<int64_t>()));
      return list;
    }
    c10::impl::GenericList values(type->kind() == c10::TypeKind::SymIntType ? c10::IntType::get() : type);
    for (const Json& item : json) values.push_back(value(item, type, declared));
    return {.constant = values};
  }

  const ExternCallDesc& desc_;
};

// Replaces sizes given as text by their index in desc.sizes.
void number_sizes(Json& json, ExternCallDesc& desc) {
  if (json.is_array())
    for (Json& item : json) number_sizes(item, desc);
  if (!json.is_object() || !json.contains("dim") || !json["dim"].is_string()) return;
  desc.sizes.push_back(desc.size(json["dim"].get<std::string>()));
  json["dim"] = desc.sizes.size() - 1;
}

constexpr char kWord[] = "extern";

void fields(auto& io, ExternCallDesc& d) {
  io("op", d.overload);
  io("args", d.args);
  io("sizes", d.sizes);
  io("why", d.why);
  io("operands", d.operands);
  io("results", d.results);
  io("returns", d.returns);
  io("strides", d.strides);
}

class ExternCall final : public Step {
 public:
  explicit ExternCall(ExternCallDesc desc)
      : op_(find(desc.overload)),
        operands_(desc.operands),
        results_(desc.results),
        returns_(desc.returns),
        strides_(desc.strides) {
    IPEX_CHECK(returns_.size() == results_.size(), desc.overload + ": one position per result");
    IPEX_CHECK(strides_.empty() || strides_.size() == operands_.size(),
               desc.overload + ": strides for every operand, or for none");
    Json args = Json::parse(desc.args);
    number_sizes(args, desc);
    desc.args = args.dump();
    FieldWriter line(kWord);
    fields(line, desc);
    text = line.text();
    const auto& declared = op_.schema().arguments();
    IPEX_CHECK(args.size() == declared.size(), desc.overload + ": one argument per parameter of the schema");
    const ArgumentParser parser(desc);
    for (size_t i = 0; i < declared.size(); ++i) arguments_.push_back(parser.parse(args[i], declared[i]));
    waits_ = op_.schema().getNamespace() == "_c10d_functional";
    info.kind = StepKind::kExtern;
    info.name = desc.overload;
    info.detail = desc.why;
    for (const TensorSpec& spec : operands_) reads.push_back(spec.buffer);
    for (const TensorSpec& spec : results_)
      if (spec.buffer >= 0) writes.push_back(spec.buffer);
  }

  void run(RunContext& context) const override {
    GraphViews views;
    try {
      call(context, views);
    } catch (...) {
      views.detach();
      throw;
    }
    // A collective's worker thread may still reference operands, but it no longer uses them.
    if (!waits_) views.detach();
  }

 private:
  void call(RunContext& context, GraphViews& views) const {
    // Skip autograd and autocast, whose effect is already part of the graph.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::autocast_dispatch_keyset);
    std::vector<at::Tensor> operands;
    operands.reserve(operands_.size());
    for (size_t k = 0; k < operands_.size(); ++k) operands.push_back(operand(context, k, views));
    torch::jit::Stack stack;
    stack.reserve(arguments_.size());
    for (const Argument& argument : arguments_)
      stack.push_back(materialize(argument, operands, context.symbols()));
    op_.callBoxed(stack);

    // Results are matched by position, because an operator may return no tensor for an unused result that
    // tracing saw, and vice versa.
    std::vector<at::Tensor> returned;
    for (const c10::IValue& value : stack) {
      if (value.isTensorList())
        for (const at::Tensor& tensor : value.toTensorVector()) returned.push_back(tensor);
      else
        returned.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    }
    stack.clear();
    if (waits_)
      for (const at::Tensor& tensor : returned)
        if (tensor.defined()) wait_for(tensor);
    for (size_t r = 0; r < results_.size(); ++r) {
      if (results_[r].buffer < 0) continue;  // unused
      const auto at = static_cast<size_t>(returns_[r]);
      if (at >= returned.size() || !returned[at].defined())
        throw InternalError(info.name + " returned no tensor, but tracing saw one (result " +
                            std::to_string(returns_[r]) + ")");
      accept(context, results_[r], returned[at], operands);
      operands.push_back(std::move(returned[at]));  // a later result may be a view of this one
    }
  }

  static c10::OperatorHandle find(const std::string& overload) {
    const auto op = find_operator(overload);
    if (!op) throw UserError("no operator " + overload + " is registered; import the module that defines it");
    return *op;
  }

  // Waits for a collective, which returns before its result is complete. This needs the tensor that it
  // returned, which only this step has.
  static void wait_for(const at::Tensor& tensor) {
    static const c10::OperatorHandle wait = find("_c10d_functional::wait_tensor.default");
    torch::jit::Stack stack = {tensor};
    wait.callBoxed(stack);
  }

  static c10::IValue materialize(const Argument& argument, const std::vector<at::Tensor>& operands,
                                 const int64_t* symbols) {
    switch (argument.kind) {
      case Argument::Kind::kConstant:
        return argument.constant;
      case Argument::Kind::kTensor:
        return operands[argument.operands[0]];
      case Argument::Kind::kTensors: {
        c10::List<at::Tensor> list;
        for (int i : argument.operands) list.push_back(operands[i]);
        return list;
      }
      case Argument::Kind::kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (int i : argument.operands) list.push_back(i < 0 ? std::nullopt : std::optional(operands[i]));
        return list;
      }
      case Argument::Kind::kSize:
        return argument.sizes[0].eval(symbols);
      case Argument::Kind::kSizes: {
        c10::List<int64_t> list;
        for (const SizeExpr& size : argument.sizes) list.push_back(size.eval(symbols));
        return list;
      }
    }
    return {};
  }

  // An operand in the graph's layout, or copied to the strides that the op requires.
  at::Tensor operand(RunContext& context, size_t k, GraphViews& views) const {
    const at::Tensor view = views.make(context.view(operands_[k]));
    if (strides_.empty() || view.numel() == 0) return view;
    std::vector<int64_t> exact;
    for (const SizeExpr& stride : strides_[k]) exact.push_back(stride.eval(context.symbols()));
    for (int64_t d = 0; d < view.dim(); ++d)
      if (view.size(d) != 1 && view.stride(d) != exact[d]) return copied_to_strides(view, exact);
    return view;
  }

  void accept(RunContext& context, const TensorSpec& spec, at::Tensor tensor,
              const std::vector<at::Tensor>& operands) const {
    const TensorView expected = context.view(spec);
    if (tensor.scalar_type() != scalar_type(spec.dtype) || tensor.sizes() != c10::IntArrayRef(expected.sizes))
      throw InternalError(info.name + " returned a dtype or shape that differs from tracing");
    bool in_place = tensor.strides() == c10::IntArrayRef(expected.strides) || tensor.numel() == 0;
    for (const at::Tensor& operand : operands) in_place &= !tensor.is_alias_of(operand);
    if (context.data(spec.buffer) != nullptr) {  // the caller's memory
      view_of(expected).copy_(tensor);
      return;
    }
    if (!in_place) tensor = copied_to_strides(tensor, expected.strides);
    void* data = tensor.mutable_data_ptr();
    context.provide(spec.buffer, data, std::make_shared<at::Tensor>(std::move(tensor)));
  }

  c10::OperatorHandle op_;
  std::vector<TensorSpec> operands_, results_;
  std::vector<int64_t> returns_;
  std::vector<std::vector<SizeExpr>> strides_;
  std::vector<Argument> arguments_;
  bool waits_ = false;
};

}  // namespace

c10::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return c10::kBool;
    case Dtype::kU8:
      return c10::kByte;
    case Dtype::kI8:
      return c10::kChar;
    case Dtype::kI16:
      return c10::kShort;
    case Dtype::kI32:
      return c10::kInt;
    case Dtype::kI64:
      return c10::kLong;
    case Dtype::kF16:
      return c10::kHalf;
    case Dtype::kBF16:
      return c10::kBFloat16;
    case Dtype::kF32:
      return c10::kFloat;
    case Dtype::kF64:
      return c10::kDouble;
  }
  throw InternalError("a dtype without a PyTorch counterpart");
}

std::unique_ptr<Step> make_extern_call(ExternCallDesc desc) {
  return std::make_unique<ExternCall>(std::move(desc));
}

MadeSteps read_extern_call(FieldReader& io, const StepReader& others) {
  if (io.word() != kWord) return others(io);
  ExternCallDesc desc;
  fields(io, desc);
  return {make_extern_call(std::move(desc))};
}

std::optional<c10::OperatorHandle> find_operator(const std::string& overload) {
  const size_t dot = std::min(overload.rfind('.'), overload.size());
  std::string suffix = dot < overload.size() ? overload.substr(dot + 1) : "";
  if (suffix == "default") suffix.clear();
  return c10::Dispatcher::singleton().findSchema({overload.substr(0, dot), suffix});
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace ipex::kernels
