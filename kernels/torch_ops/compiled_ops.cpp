#include "kernels/torch_ops/compiled_ops.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "kernels/extern_call.h"
#include "kernels/torch_ops/graph_program.h"

namespace ipex::torch_ops {
namespace {

// How a symbolic size is found in a call.
struct Symbol {
  int input, dim;
};

struct Program {
  TensorProgram program;
  std::vector<Symbol> symbols;
};

// The programs of one operator with the same settings, types and fixed dims.
struct Family {
  std::mutex compiling;
  int exact = 0;  // programs with exact sizes
};

class Programs {
 public:
  std::shared_ptr<const Program> find(const ProgramKey& key) {
    std::shared_lock lock(mutex_);
    const auto found = programs_.find(key);
    return found == programs_.end() ? nullptr : found->second;
  }
  void add(const ProgramKey& key, std::shared_ptr<const Program> program) {
    std::unique_lock lock(mutex_);
    programs_.emplace(key, std::move(program));
  }
  Family& family(const ProgramKey& key) {
    std::unique_lock lock(mutex_);
    std::unique_ptr<Family>& family = families_[key];
    if (!family) family = std::make_unique<Family>();
    return *family;
  }
  static Programs& instance() {
    static auto* programs = new Programs;  // never destroyed: calls may come at exit
    return *programs;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<ProgramKey, std::shared_ptr<const Program>, ProgramKeyHash> programs_;
  std::unordered_map<ProgramKey, std::unique_ptr<Family>, ProgramKeyHash> families_;
};

enum Layout : int64_t { kContiguous, kChannelsLast, kStrided };

// kStrided: only a program with exact sizes takes the strides as they are.
Layout layout_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return kContiguous;
  return is_channels_last(tensor) ? kChannelsLast : kStrided;
}

std::string join(const Dims& dims, char open, char close) {
  std::string text(1, open);
  for (size_t d = 0; d < dims.size(); ++d) text += (d ? "," : "") + dims[d];
  return text + close;
}

// The product of dims[from:], "1" if there is none.
std::string product(const Dims& dims, size_t from) {
  std::string text;
  for (size_t d = from; d < dims.size(); ++d) text += (text.empty() ? "" : "*") + ("(" + dims[d] + ")");
  return text.empty() ? "1" : text;
}

std::string strides_text(Layout layout, const Dims& dims, c10::IntArrayRef strides) {
  if (layout == kContiguous) return "";
  if (layout == kChannelsLast) return channels_last_strides(dims);
  Dims texts;
  for (const int64_t stride : strides) texts.push_back(std::to_string(stride));
  return join(texts, '{', '}');
}

bool is_symbol(const std::string& dim) {
  return std::isalpha(static_cast<unsigned char>(dim[0])) &&
         std::all_of(dim.begin(), dim.end(), [](unsigned char c) { return std::isalnum(c); });
}

// Whether the program with symbolic sizes takes any size of the dim. It takes sizes 0 and 1 as numbers,
// because the compiler specialises for them: a family has the same dims of these sizes.
bool is_free(const OpInput& input, int64_t dim) {
  return (input.free_dims >> dim & 1) && input.tensor.size(dim) > 1;
}

// What the keys of both kinds of programs begin with.
ProgramKey family_key(std::string_view op, std::span<const OpInput> inputs, const OpSettings& settings) {
  ProgramKey key{reinterpret_cast<int64_t>(op.data()), static_cast<int64_t>(settings.size())};
  key.append(settings.begin(), settings.end());
  for (const OpInput& input : inputs) {
    const at::Tensor& tensor = input.tensor;
    key.append(
        {static_cast<int64_t>(tensor.scalar_type()), tensor.dim(), layout_of(tensor), input.is_static});
    for (int64_t d = 0; d < tensor.dim(); ++d) key.push_back(is_free(input, d) ? -1 : tensor.size(d));
    // A free dim of an odd layout makes a contiguous copy; other odd layouts are compiled as they are.
    if (layout_of(tensor) == kStrided && !input.free_dims)
      key.append(tensor.strides().begin(), tensor.strides().end());
  }
  return key;
}

ProgramKey exact_key(ProgramKey key, std::span<const OpInput> inputs) {
  for (const OpInput& input : inputs) {
    if (!input.free_dims) continue;
    key.append(input.tensor.sizes().begin(), input.tensor.sizes().end());
    if (layout_of(input.tensor) == kStrided)
      key.append(input.tensor.strides().begin(), input.tensor.strides().end());
  }
  return key;
}

std::vector<Dims> free_dims(std::span<const OpInput> inputs, SymbolicDims symbolic_dims) {
  if (symbolic_dims) return symbolic_dims();
  std::vector<Dims> all;
  for (const OpInput& input : inputs) {
    Dims& dims = all.emplace_back();
    for (int64_t d = 0; d < input.tensor.dim(); ++d) dims.push_back("s" + std::to_string(d));
  }
  return all;
}

// The symbols that are a free dim of an input.
std::set<std::string> symbols_of(std::span<const OpInput> inputs, const std::vector<Dims>& free) {
  std::set<std::string> symbols;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int64_t d = 0; d < inputs[i].tensor.dim(); ++d)
      if (is_free(inputs[i], d) && is_symbol(free[i][d])) symbols.insert(free[i][d]);
  return symbols;
}

// Whether all symbols of the expression are among these.
bool has_symbols(const std::string& expression, const std::set<std::string>& symbols) {
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0; };
  for (auto at = expression.begin(); at != expression.end();) {
    const auto end = std::find_if_not(at, expression.end(), is_word);
    const std::string word(at, end);
    if (!word.empty() && is_symbol(word) && !symbols.contains(word)) return false;
    at = end == expression.end() ? end : end + 1;
  }
  return true;
}

// Whether one program serves all sizes of the free dims. It does not where a dim of size 1 depends on them.
bool can_be_symbolic(std::span<const OpInput> inputs, SymbolicDims symbolic_dims) {
  const std::vector<Dims> free = free_dims(inputs, symbolic_dims);
  const std::set<std::string> symbols = symbols_of(inputs, free);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int64_t d = 0; d < inputs[i].tensor.dim(); ++d)
      if ((inputs[i].free_dims >> d & 1) && !is_free(inputs[i], d) && has_symbols(free[i][d], symbols))
        return false;
  return true;
}

std::shared_ptr<const Program> compile_program(std::string_view op, std::span<const OpInput> inputs,
                                               GraphBody body, bool symbolic, SymbolicDims symbolic_dims) {
  std::vector<Symbol> symbols;
  std::vector<Dims> dims;
  std::string header, names, separator;
  const std::vector<Dims> free = symbolic ? free_dims(inputs, symbolic_dims) : std::vector<Dims>();
  const std::set<std::string> declared = symbolic ? symbols_of(inputs, free) : std::set<std::string>();
  std::set<std::string> known;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = inputs[i].tensor;
    Dims& own = dims.emplace_back(dims_of(tensor));
    for (int64_t d = 0; symbolic && d < tensor.dim(); ++d) {
      if (!is_free(inputs[i], d)) continue;
      const std::string& dim = free[i][d];
      if (has_symbols(dim, declared)) own[d] = dim;  // else the dims that it depends on are numbers too
      if (!is_symbol(dim) || !known.insert(dim).second) continue;
      names += (symbols.empty() ? "" : ", ") + own[d] + "=" + std::to_string(tensor.size(d));
      symbols.push_back({static_cast<int>(i), static_cast<int>(d)});
    }
    Layout layout = layout_of(tensor);
    if (symbolic && inputs[i].free_dims && layout == kStrided) layout = kContiguous;
    header += separator + "%" + std::string(inputs[i].name) + ": " + type_text(tensor.scalar_type(), own) +
              strides_text(layout, own, tensor.strides()) + (inputs[i].is_static ? " static" : "");
    separator = ", ";
  }
  const std::string parameters = symbols.empty() ? "" : " symbols(" + names + ")";
  const std::string text =
      "graph " + std::string(op) + "(" + header + ")" + parameters + " {\n" + body(dims) + "\n}";
  return std::make_shared<const Program>(Program{compile_graph(text), std::move(symbols)});
}

std::shared_ptr<const Program> program_for(std::string_view op, std::span<const OpInput> inputs,
                                           const OpSettings& settings, GraphBody body,
                                           SymbolicDims symbolic_dims) {
  Programs& programs = Programs::instance();
  const ProgramKey common = family_key(op, inputs, settings), exact = exact_key(common, inputs);
  const auto find = [&] {
    std::shared_ptr<const Program> program = programs.find(exact);
    return program ? program : programs.find(common);
  };
  if (auto program = find()) return program;
  Family& family = programs.family(common);
  std::lock_guard lock(family.compiling);
  if (auto program = find()) return program;  // another thread compiled it
  const bool symbolic = family.exact >= kExactPrograms && can_be_symbolic(inputs, symbolic_dims);
  auto program = compile_program(op, inputs, body, symbolic, symbolic_dims);
  programs.add(symbolic ? common : exact, program);
  ++family.exact;
  return program;
}

}  // namespace

bool is_channels_last(const at::Tensor& tensor) {
  if (tensor.dim() < 3 || tensor.dim() > 5) return false;
  int64_t stride = 1;
  const auto fits = [&](int64_t d) {
    if (tensor.size(d) > 1 && tensor.stride(d) != stride) return false;
    stride *= tensor.size(d);
    return true;
  };
  bool all = fits(1);
  for (int64_t d = tensor.dim() - 1; all && d >= 2; --d) all = fits(d);
  return all && fits(0);
}

std::string channels_last_strides(const Dims& dims) {
  Dims strides{product(dims, 1), "1"};
  for (size_t d = 2; d < dims.size(); ++d) strides.push_back("(" + dims[1] + ")*" + product(dims, d + 1));
  return join(strides, '{', '}');
}

std::string contiguous_strides(const Dims& dims) {
  Dims strides;
  for (size_t d = 0; d < dims.size(); ++d) strides.push_back(product(dims, d + 1));
  return join(strides, '{', '}');
}

c10::SmallVector<at::Tensor, 3> run_compiled(std::string_view op, std::span<const OpInput> inputs,
                                             const OpSettings& settings, GraphBody body,
                                             SymbolicDims symbolic_dims) {
  const std::shared_ptr<const Program> program = program_for(op, inputs, settings, body, symbolic_dims);
  Sizes symbols;
  for (const Symbol& symbol : program->symbols)
    symbols.push_back(inputs[symbol.input].tensor.size(symbol.dim));
  TensorProgram::Call call(program->program, std::move(symbols));
  for (size_t i = 0; i < inputs.size(); ++i) call.add_input(inputs[i].tensor, static_cast<int>(i));
  call.run();
  c10::SmallVector<at::Tensor, 3> results;
  for (size_t i = 0; i < program->program.executable().parts().outputs.size(); ++i)
    results.push_back(call.result(static_cast<int>(i)));
  return results;
}

std::string dtype_text(c10::ScalarType dtype) {
  for (size_t i = 0; i < kDtypes.size(); ++i)
    if (kernels::scalar_type(static_cast<Dtype>(i)) == dtype) return std::string(kDtypes[i].name);
  TORCH_CHECK_NOT_IMPLEMENTED(false, "tensors of ", c10::toString(dtype), " are not supported on the CPU");
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string dims_text(const Dims& dims) { return join(dims, '[', ']'); }

std::string ints_text(c10::IntArrayRef values) {
  Dims texts;
  for (const int64_t value : values) texts.push_back(std::to_string(value));
  return join(texts, '[', ']');
}

std::string type_text(c10::ScalarType dtype, const Dims& dims) { return dtype_text(dtype) + dims_text(dims); }

Dims dims_of(const at::Tensor& tensor) {
  Dims dims;
  for (const int64_t size : tensor.sizes()) dims.push_back(std::to_string(size));
  return dims;
}

}  // namespace ipex::torch_ops
