// The text of saved programs, and the checks of the reader; see program.h.
#include "runtime/program.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <set>

#include "runtime/error.h"
#include "runtime/kernel_steps.h"
#include "runtime/parallel.h"

namespace ipex {

std::vector<std::string> Interface::symbol_names() const {
  std::vector<std::string> names;
  for (const Symbol& symbol : symbols) names.push_back(symbol.name);
  return names;
}

void fields(auto& io, Interface::Symbol& s) {
  io("name", s.name);
  io("input", s.input);
  io("stride", s.is_stride);
  io("dim", s.dim);
  io("divisor", s.divisor);
  io("offset", s.offset);
  io("low", s.low);
  io("high", s.high);
}

void fields(auto& io, Interface::Condition& c) {
  io("text", c.text);
  io("nonnegative", c.nonnegative);
}

void fields(auto& io, OutputSpec& o) {
  io("spec", o.spec);
  io("alias", o.alias_input);
}

void fields(auto& io, Interface::Result& r) {
  io.choice("kind", r.kind, Interface::Result::kKinds);
  io("name", r.name);
  io("index", r.index);
  io("dim", r.dim);
  io("constant", r.constant);
  io("sizes", r.sizes);
  io("strides", r.strides);
  io("dtype", r.dtype);
}

namespace {

constexpr std::array<std::string_view, 6> kBufferKinds = {"input",     "output",  "constant",
                                                          "temporary", "hoisted", "provided"};
constexpr int64_t kMaxBuffers = 1 << 22, kMaxSymbols = 1 << 12;
constexpr int64_t kMaxBytes = int64_t{1} << 47;  // address space of a process

struct Header {
  int64_t version = Program::kVersion;
  int64_t symbols = 0, buffers = 0;
};
void fields(auto& io, Header& h) {
  io("version", h.version);
  io("symbols", h.symbols);
  io("buffers", h.buffers);
}

struct BufferLine {
  BufferKind kind{};
  int index = -1;
  SizeExpr bytes = 0;
  std::optional<std::string> member;  // constants
  std::optional<int> takes;           // in_place_of
};
void fields(auto& io, BufferLine& b) {
  io.choice("kind", b.kind, kBufferKinds);
  io("index", b.index);
  io("bytes", b.bytes);
  io("member", b.member);
  io("takes", b.takes);
}

struct InputLine {
  std::string name;
  std::optional<std::string> member;
  std::optional<bool> written;
  TensorSpec spec;
};
void fields(auto& io, InputLine& i) {
  io("name", i.name);
  io("member", i.member);
  io("written", i.written);
  io("spec", i.spec);
}

// The fields at the end of every step's line.
struct StepTail {
  bool hoisted = false;
  StepInfo info;
};
void fields(auto& io, StepTail& t) {
  io("hoisted", t.hoisted);
  io("bytes", t.info.bytes);
  io("flops", t.info.flops);
  io("sources", t.info.sources);
}

class Reader {
 public:
  Reader(const StepReader& read_step, std::shared_ptr<const FunctionLibrary> kernels)
      : read_step_(read_step), kernels_(std::move(kernels)) {}

  Program run(std::string_view text) {
    for (int line = 1; !text.empty(); ++line) {
      const size_t end = std::min(text.find('\n'), text.size());
      where_ = "program:" + std::to_string(line);
      if (end == text.size()) fail("the last line does not end");
      require(!ended_, "text after the end");
      FieldReader io(text.substr(0, end), where_, limits_);
      if (line == 1 ? read_header(io) : read_line(io))
        io.finish();
      else
        step_lines_.push_back({text.substr(0, end), where_});
      text.remove_prefix(end + 1);
    }
    where_ = "program";
    require(ended_, "it is truncated");
    read_steps();
    finish();
    return std::move(program_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ParseError(where_ + ": " + what); }
  void require(bool holds, const char* what) const {
    if (!holds) fail(what);
  }

  bool read_header(FieldReader& io) {
    Header header;
    if (io.word() != "ipex.program") io.fail("this is not a program");
    fields(io, header);
    if (header.version != Program::kVersion)
      fail("its format has version " + std::to_string(header.version) + ", but this library reads version " +
           std::to_string(Program::kVersion) +
           ": compile the model again, or use the library that it was compiled with");
    require(header.symbols >= 0 && header.symbols <= kMaxSymbols, "bad number of symbols");
    require(header.buffers >= 0 && header.buffers <= kMaxBuffers, "bad number of buffers");
    limits_ = {static_cast<int>(header.buffers), static_cast<int>(header.symbols)};
    program_.parts.symbol_count = limits_.symbols;
    return true;
  }

  // False for the line of a step. Steps are read later, in parallel.
  bool read_line(FieldReader& io) {
    Executable::Parts& parts = program_.parts;
    if (io.word() == "symbol") {
      fields(io, program_.interface.symbols.emplace_back());
    } else if (io.word() == "condition") {
      fields(io, program_.interface.conditions.emplace_back());
    } else if (io.word() == "buffer") {
      BufferLine line;
      fields(io, line);
      require(static_cast<int>(parts.buffers.size()) < limits_.buffers, "more buffers than announced");
      require(!line.bytes.is_const() || (line.bytes.constant() >= 0 && line.bytes.constant() < kMaxBytes),
              "bad size of a buffer");
      parts.buffers.push_back({line.kind, line.index, line.bytes, nullptr});
      program_.constants.push_back(line.member.value_or(""));
      in_place_.push_back(line.takes.value_or(-1));
    } else if (io.word() == "input") {
      InputLine line;
      fields(io, line);
      const auto& input = program_.interface.inputs.emplace_back(
          Interface::Input{line.name, line.member.value_or(""), line.written.value_or(false)});
      if (input.is_weight()) parts.static_inputs.push_back(static_cast<int>(parts.inputs.size()));
      parts.inputs.push_back(line.spec);
    } else if (io.word() == "output") {
      fields(io, parts.outputs.emplace_back());
    } else if (io.word() == "result") {
      fields(io, program_.interface.results.emplace_back());
    } else if (io.word() == "end") {
      ended_ = true;
    } else {
      require(static_cast<int>(parts.buffers.size()) == limits_.buffers, "buffers come before steps");
      return false;
    }
    return true;
  }

  struct StepLine {
    std::string_view text;
    std::string where;
    MadeSteps made = {};
    StepTail tail = {};
    std::exception_ptr error = nullptr;
  };

  // Reads steps in parallel, because library steps generate code, which takes most of the loading time
  // besides the data. The first step of each kind is read first: it creates what all steps of this kind
  // share.
  void read_steps() {
    std::vector<StepLine*> order, others;
    std::set<std::string_view> kinds;
    for (StepLine& line : step_lines_)
      (kinds.insert(line.text.substr(0, line.text.find(' '))).second ? order : others).push_back(&line);
    order.insert(order.end(), others.begin(), others.end());
    const int threads = num_threads();  // steps are created for this number of threads
    parallel_tasks(static_cast<int64_t>(order.size()), [&](int64_t i) {
      const ThreadLimit limit(threads);
      StepLine& line = *order[i];
      try {
        read_step(line);
      } catch (...) {
        line.error = std::current_exception();
      }
    });
    for (StepLine& line : step_lines_) {
      if (line.error) std::rethrow_exception(line.error);
      where_ = line.where;
      add(line);
    }
    where_ = "program";
  }

  void read_step(StepLine& line) const {
    FieldReader io(line.text, line.where, limits_);
    if (auto kernel = read_kernel_step(io)) {
      if (kernels_) kernel->link(kernels_);
      line.made.main = std::move(kernel);
    } else {
      line.made = read_step_(io);
    }
    fields(io, line.tail);
    io.finish();
  }

  void add(StepLine& line) {
    auto& [main, pack, packed_buffer, packed_bytes] = line.made;
    StepInfo& info = line.tail.info;
    main->info.bytes = info.bytes;
    main->info.flops = info.flops;
    main->info.sources = info.sources;
    if (pack) {
      pack->info.sources = std::move(info.sources);
      BufferInfo& packed = program_.parts.buffers[packed_buffer];
      require(packed.kind == BufferKind::kHoisted, "weights are packed into a buffer that is not hoisted");
      packed.bytes = packed_bytes;
      add(std::move(pack), true);
    }
    add(std::move(main), line.tail.hoisted);
  }

  void add(std::unique_ptr<Step> step, bool hoisted) {
    program_.parts.steps.push_back(std::move(step));
    program_.parts.hoisted.push_back(hoisted);
  }

  void finish() {
    Executable::Parts& parts = program_.parts;
    require(limits_.buffers == static_cast<int>(parts.buffers.size()), "fewer buffers than announced");
    require(program_.interface.symbols.size() == static_cast<size_t>(limits_.symbols),
            "the number of symbols differs from the announced one");
    check_buffers();
    check_names();
    check_steps();
    parts.lifetimes = lifetimes(parts.buffers, parts.steps, in_place_);
  }

  void check_buffers() const {
    const Executable::Parts& parts = program_.parts;
    std::vector<bool> seen_input(parts.inputs.size()), seen_output(parts.outputs.size());
    for (size_t b = 0; b < parts.buffers.size(); ++b) {
      const BufferInfo& buffer = parts.buffers[b];
      if (buffer.kind == BufferKind::kInput || buffer.kind == BufferKind::kOutput) {
        std::vector<bool>& seen = buffer.kind == BufferKind::kInput ? seen_input : seen_output;
        require(buffer.index >= 0 && buffer.index < static_cast<int>(seen.size()),
                "a buffer without a tensor");
        seen[buffer.index] = true;
      }
      require((buffer.kind == BufferKind::kConstant) == !program_.constants[b].empty(),
              "constants must have a member, other buffers must not");
      require(buffer.kind != BufferKind::kConstant || buffer.bytes.is_const(), "a constant of symbolic size");
      require(in_place_[b] >= -1 && in_place_[b] < limits_.buffers,
              "a buffer takes over a buffer that does not exist");
    }
  }

  const Interface::Input* input_of(int buffer) const {
    const BufferInfo& info = program_.parts.buffers[buffer];
    return info.kind == BufferKind::kInput ? &program_.interface.inputs[info.index] : nullptr;
  }

  bool is_input(int index) const {
    return index >= 0 && index < static_cast<int>(program_.parts.inputs.size());
  }

  void check_names() const {
    const Executable::Parts& parts = program_.parts;
    const auto kind = [&](int buffer) { return parts.buffers[buffer].kind; };
    for (size_t i = 0; i < parts.inputs.size(); ++i) {
      const int buffer = parts.inputs[i].buffer;
      require(buffer >= 0 && kind(buffer) == BufferKind::kInput &&
                  parts.buffers[buffer].index == static_cast<int>(i),
              "an input without its buffer");
    }
    for (const Interface::Symbol& symbol : program_.interface.symbols) {
      require(symbol.input == -1 || (is_input(symbol.input) && symbol.dim >= 0 &&
                                     symbol.dim < static_cast<int>(parts.inputs[symbol.input].sizes.size())),
              "a symbol that no input determines");
      require(symbol.low <= symbol.high && symbol.divisor > 0, "a symbol without a valid value");
      require(std::abs(symbol.offset) <= kMaxBytes && std::abs(symbol.low) <= kMaxBytes / symbol.divisor,
              "a symbol whose sizes are impossible");
    }
    for (const OutputSpec& output : parts.outputs) {
      require(output.alias_input == -1 || is_input(output.alias_input),
              "an output aliases an input that does not exist");
      require(output.spec.buffer >= 0 && (kind(output.spec.buffer) == BufferKind::kOutput ||
                                          (output.alias_input >= 0 &&
                                           output.spec.buffer == parts.inputs[output.alias_input].buffer)),
              "an output without its buffer");
    }
    for (const Interface::Result& result : program_.interface.results) {
      require(result.kind != Interface::Result::Kind::kSame ||
                  (result.index >= 0 && &program_.interface.results[result.index] < &result),
              "a result is the same as a later one");
      require(result.kind != Interface::Result::Kind::kArgument || (is_input(result.index) && !result.sizes),
              "no such argument");
      require(result.kind != Interface::Result::Kind::kTensor ||
                  (result.index >= 0 && result.index < static_cast<int>(parts.outputs.size())),
              "no such output");
      require(result.sizes.has_value() == result.strides.has_value() &&
                  (!result.sizes || result.sizes->size() == result.strides->size()),
              "a view has as many strides as sizes");
    }
  }

  // Checks that no step reads a buffer before it is written, or writes a buffer that it must not write.
  void check_steps() const {
    const Executable::Parts& parts = program_.parts;
    std::vector<bool> written(parts.buffers.size());
    for (size_t b = 0; b < parts.buffers.size(); ++b) {
      const BufferInfo& buffer = parts.buffers[b];
      const bool empty = buffer.bytes.is_const() && buffer.bytes.constant() == 0;
      written[b] = buffer.kind == BufferKind::kInput || buffer.kind == BufferKind::kConstant ||
                   (empty && buffer.kind == BufferKind::kTemporary);
    }
    for (size_t s = 0; s < parts.steps.size(); ++s) {
      const Step& step = *parts.steps[s];
      for (const int buffer : step.reads) {
        require(buffer >= 0 && written[buffer], "a step reads a buffer that no earlier step wrote");
        const BufferInfo& info = parts.buffers[buffer];
        const Interface::Input* input = input_of(buffer);
        require(!parts.hoisted[s] || info.kind == BufferKind::kConstant ||
                    info.kind == BufferKind::kHoisted || (input && input->is_weight()),
                "a hoisted step reads a buffer that changes between calls");
      }
      for (const int buffer : step.writes) {
        require(buffer >= 0, "a step without a result");
        const BufferKind kind = parts.buffers[buffer].kind;
        const Interface::Input* input = input_of(buffer);
        require((kind == BufferKind::kHoisted) == parts.hoisted[s] && kind != BufferKind::kConstant &&
                    (!input || input->written),
                "a step writes a buffer that it must not write");
        written[buffer] = true;
      }
    }
  }

  const StepReader& read_step_;
  std::shared_ptr<const FunctionLibrary> kernels_;
  FieldReader::Limits limits_;
  std::string where_;
  bool ended_ = false;
  Program program_;
  std::vector<int> in_place_;
  std::vector<StepLine> step_lines_;
};

}  // namespace

std::string print_program(const Interface& interface, const Executable::Parts& parts,
                          const std::vector<std::string>& constants) {
  std::string text;
  const auto add = [&](std::string_view word, const auto& line) { text += to_line(word, line) + "\n"; };
  add("ipex.program",
      Header{.symbols = parts.symbol_count, .buffers = static_cast<int64_t>(parts.buffers.size())});
  for (const Interface::Symbol& symbol : interface.symbols) add("symbol", symbol);
  for (const Interface::Condition& condition : interface.conditions) add("condition", condition);
  std::vector<BufferLine> buffers;
  for (size_t b = 0; b < parts.buffers.size(); ++b) {
    BufferLine& line = buffers.emplace_back(BufferLine{parts.buffers[b].kind, parts.buffers[b].index,
                                                       parts.buffers[b].bytes, std::nullopt, std::nullopt});
    if (line.kind == BufferKind::kConstant) line.member = constants[b];
  }
  for (const Lifetime& life : parts.lifetimes)
    if (life.in_place_of >= 0) buffers[life.buffer].takes = life.in_place_of;
  for (size_t s = 0; s < parts.steps.size(); ++s)  // the reader computes the size of packed weights
    if (parts.steps[s]->implied)
      for (const int buffer : parts.steps[s]->writes) buffers[buffer].bytes = 0;
  for (const BufferLine& line : buffers) add("buffer", line);
  for (size_t i = 0; i < parts.inputs.size(); ++i) {
    InputLine line{interface.inputs[i].name, std::nullopt, std::nullopt, parts.inputs[i]};
    if (!interface.inputs[i].member.empty()) line.member = interface.inputs[i].member;
    if (interface.inputs[i].written) line.written = true;
    add("input", line);
  }
  for (const OutputSpec& output : parts.outputs) add("output", output);
  for (const Interface::Result& result : interface.results) add("result", result);
  for (size_t s = 0; s < parts.steps.size(); ++s) {
    const Step& step = *parts.steps[s];
    if (step.implied) continue;
    if (step.text.empty())
      throw Unsupported(step.info.name + " cannot be saved to an artifact" +
                        (step.info.sources.empty() ? "" : " (" + step.info.sources[0] + ")"));
    text += to_line(step.text, StepTail{parts.hoisted[s], step.info}) + "\n";
  }
  return text + "end\n";
}

Program parse_program(std::string_view text, const StepReader& read_step,
                      std::shared_ptr<const FunctionLibrary> kernels) {
  return Reader(read_step, std::move(kernels)).run(text);
}

}  // namespace ipex
