// The extension module _C: all bindings of C++ for Python, such as the op tables, the Graph builder,
// compile() and knobs.
#include <ATen/core/dispatch/Dispatcher.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "backend/ahead_of_time.h"
#include "backend/compile.h"
#include "backend/lower/lower.h"
#include "backend/ops/tables.h"
#include "codegen/llvm/cache_directory.h"
#include "codegen/llvm/cache_text.h"
#include "codegen/llvm/object_cache.h"
#include "kernels/extern_call.h"
#include "kernels/library.h"
#include "kernels/torch_ops/input_version.h"
#include "kernels/torch_ops/tensor_kinds.h"
#include "python/csrc/ahead_of_time.h"
#include "python/csrc/compiled_graph.h"
#include "python/csrc/distributed.h"
#include "python/csrc/graph_builder.h"
#include "python/csrc/saved_graph.h"
#include "python/csrc/signature.h"
#include "python/csrc/streams.h"
#include "python/csrc/tensor_objects.h"
#include "runtime/arena.h"
#include "runtime/code_pages.h"
#include "runtime/cpu.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/index_errors.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/roofline.h"
#include "runtime/time_limit.h"

namespace ipex::python {
namespace {

namespace py = pybind11;
using namespace py::literals;

std::string_view text(ops::Promotion promotion) {
  switch (promotion) {
    case ops::Promotion::kDefault:
      return "default";
    case ops::Promotion::kIntToFloat:
      return "int_to_float";
    case ops::Promotion::kAlwaysBool:
      return "always_bool";
    case ops::Promotion::kNoOpmath:
      return "no_opmath";
  }
  return "";
}

template <class Row>
py::dict row_dict(const Row& row) {
  return py::dict("name"_a = row.name, "aten"_a = row.aten, "promotion"_a = text(row.promotion),
                  "integers"_a = row.integers, "floats"_a = row.floats, "booleans"_a = row.booleans,
                  "summary"_a = row.summary);
}

py::list pointwise_rows() {
  py::list rows;
  for (const auto& row : ops::pointwise_rows()) {
    rows.append(row_dict(row));
    rows[rows.size() - 1]["arity"] = row.arity;
    rows[rows.size() - 1]["recomputable"] = row.has(ops::kRecomputable);
  }
  return rows;
}

py::list rows_of(std::span<const ops::ReductionRow> table) {
  py::list rows;
  for (const auto& row : table) {
    rows.append(row_dict(row));
    rows[rows.size() - 1]["results"] = row.results;
  }
  return rows;
}

std::unique_ptr<CompiledGraph> compile_graph(const GraphBuilder& builder, const py::list& arguments,
                                             const py::list& symbols, const py::list& outputs, bool hoist,
                                             bool autotune, const std::optional<double>& seconds) {
  const graph::Graph& graph = builder.graph();
  Signature signature = make_signature({arguments, symbols, outputs}, graph);
  CompileOptions options;
  options.target = loop::current_target();
  options.hoist = hoist;
  if (autotune) options.matmul = MatmulSelection::kMeasured;
  options.make_extern = extern_factory(graph);
  ipex::CompiledGraph compiled;
  {
    py::gil_scoped_release unlocked;
    const TimeLimit limit(seconds ? deadline_after(*seconds) : kNoDeadline);
    if (env::get("IPEX_INJECT_FAULT") == "compile")
      throw InternalError("compile failed: IPEX_INJECT_FAULT=compile");
    compiled = compile(graph, options);
    compiled.functions.clear();                                         // only artifacts need them
    release_code_pages(reinterpret_cast<const void*>(&ipex::compile));  // LLVM's, in the same library
    release_code_pages(kernels::onednn_code());
  }
  return std::make_unique<CompiledGraph>(std::move(compiled), std::move(signature));
}

// Runs a graph in the reference interpreter. Returns its outputs, and (input, contents) for each updated
// input. Tensors are bytes of contiguous data.
py::tuple evaluate(const GraphBuilder& builder, const std::vector<std::string>& inputs,
                   const std::vector<int64_t>& symbols) {
  graph::Graph graph = builder.graph();
  const size_t output_count = graph.outputs.size();
  for (const graph::InputMutation& m : graph.mutations) graph.outputs.push_back({m.value, {}});
  std::vector<graph::HostTensor> values;
  for (const std::string& input : inputs) {
    const auto bytes = std::as_bytes(std::span(input));
    values.emplace_back(bytes.begin(), bytes.end());
  }
  py::list outputs, changed;
  for (const graph::HostTensor& result : graph::eval(graph, values, symbols)) {
    const py::bytes data(reinterpret_cast<const char*>(result.data()), result.size());
    if (outputs.size() < output_count)
      outputs.append(data);
    else
      changed.append(py::make_tuple(graph.mutations[changed.size()].input, data));
  }
  return py::make_tuple(outputs, changed);
}

// Compiles a graph to text for any ISA, without running it.
py::dict compile_to_text(const GraphBuilder& builder, const std::string& isa, bool hoist) {
  CompileOptions options;
  options.target = loop::portable_target(parse_isa(isa));
  options.hoist = hoist;
  options.jit = false;
  options.make_extern = extern_factory(builder.graph());
  ipex::CompiledGraph compiled;
  std::vector<KernelTexts> texts;
  {
    py::gil_scoped_release unlocked;
    compiled = compile(builder.graph(), options);
    texts = texts_of_kernels(compiled, parse_isa(isa));
  }
  py::dict kernels;
  for (const KernelTexts& kernel : texts)
    kernels[py::str(kernel.name)] =
        py::dict("lowered"_a = kernel.lowered, "scheduled"_a = kernel.scheduled, "llvm"_a = kernel.llvm);
  return py::dict("graph"_a = compiled.report.graph_text, "steps"_a = step_dicts(*compiled.executable),
                  "kernels"_a = kernels);
}

py::dict report_dict(const CompiledGraph& compiled) {
  const CompileReport& report = compiled.report();
  py::list times;
  for (const auto& time : report.times) times.append(py::make_tuple(time.name, time.ms));
  return py::dict("kernel_steps"_a = report.kernel_steps, "library_steps"_a = report.library_steps,
                  "extern_steps"_a = report.extern_steps, "extern_ops"_a = report.extern_ops,
                  "choices"_a = report.choices, "measured"_a = report.measured,
                  "arena_bytes"_a = report.arena_bytes, "naive_bytes"_a = report.naive_bytes,
                  "argument_bytes"_a = report.argument_bytes, "times"_a = times,
                  "kernels"_a = report.kernels.kernels, "cache_hits"_a = report.kernels.cache_hits,
                  "loop_passes_ms"_a = report.kernels.passes_ms, "llvm_ms"_a = report.kernels.llvm_ms,
                  "link_ms"_a = report.kernels.link_ms, "graph"_a = report.graph_text,
                  "loops"_a = report.loop_text, "steps"_a = step_dicts(compiled.executable()));
}

// Forwards C++ log messages from any thread to Python's `ipex` logger.
void log_to_python(LogLevel level, const std::string& message) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire locked;
  static constexpr const char* kMethods[] = {"error", "warning", "info", "debug"};
  try {
    py::module_::import("logging").attr("getLogger")("ipex").attr(kMethods[static_cast<int>(level)])("%s",
                                                                                                     message);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("ipex log");
  }
}

// For warm starts: compiled kernels as bytes, and whether the contents of a directory can be trusted.
void bind_cache(py::module_& m) {
  m.def("cache_directory", &env::cache_directory);
  m.def("distrust_reason", &loop::distrust_reason,
        "Why a directory's contents cannot be trusted; '' when they can be.");
  m.def("build_identity", [] {
    return py::bytes(loop::build_identity() +
                     loop::binary_identity(reinterpret_cast<const void*>(&bind_cache)));
  });
  m.def("cached_kernel", [](const std::string& key) -> py::object {
    const auto entry = loop::ObjectCache(env::cache_directory()).load_entry(key);
    return entry ? py::object(py::bytes(*entry)) : py::none();
  });
  m.def("store_cached_kernel", [](const std::string& key, const py::bytes& entry) {
    return loop::ObjectCache(env::cache_directory()).store_entry(key, std::string(entry));
  });
}

// All translators are local, because pybind11 shares global ones with PyTorch's modules.
void register_errors(py::module_& m) {
  py::register_local_exception<InternalError>(m, "InternalError", PyExc_RuntimeError);
  py::register_local_exception<OutOfTime>(m, "OutOfTime", PyExc_RuntimeError);
  py::register_local_exception<Unsupported>(m, "Unsupported", PyExc_RuntimeError);
  py::register_local_exception<UserError>(m, "UserError", PyExc_RuntimeError);
  // Exceptions that ATen throws in an Extern step become the exceptions of eager.
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const RuntimeIndexError& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what());
    } catch (const IndexError& e) {
      PyErr_SetString(PyExc_IndexError, e.what());
    } catch (python_error& e) {
      e.restore();
    } catch (const c10::IndexError& e) {
      PyErr_SetString(PyExc_IndexError, e.what_without_backtrace());
    } catch (const c10::ValueError& e) {
      PyErr_SetString(PyExc_ValueError, e.what_without_backtrace());
    } catch (const c10::TypeError& e) {
      PyErr_SetString(PyExc_TypeError, e.what_without_backtrace());
    } catch (const c10::LinAlgError& e) {
      PyErr_SetString(py::module_::import("torch._C").attr("_LinAlgError").ptr(), e.what_without_backtrace());
    } catch (const c10::NotImplementedError& e) {
      PyErr_SetString(PyExc_NotImplementedError, e.what_without_backtrace());
    } catch (const c10::Error& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
    }
  });
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  register_errors(m);
  set_log_sink(&log_to_python);
  torch_ops::set_python_references([](const PyObject* object) -> int64_t { return Py_REFCNT(object); });

  m.attr("__version__") = IPEX_VERSION;
  m.def("pointwise_rows", &pointwise_rows, "Rows of the pointwise op table, as dicts.");
  m.def(
      "reduction_rows", [] { return rows_of(ops::reduction_rows()); },
      "Rows of the reduction table, as dicts.");
  m.def("scan_rows", [] { return rows_of(ops::scan_rows()); }, "Rows of the scan table, as dicts.");

  py::class_<GraphBuilder>(m, "Graph", "A graph under construction; see python/csrc/graph_builder.h.")
      .def(py::init<>())
      .def_static("parse", [](const std::string& text) { return GraphBuilder(graph::parse(text)); })
      .def("symbol", &GraphBuilder::symbol)
      .def("symbols", [](const GraphBuilder& b) { return b.graph().symbols; })
      .def("source", &GraphBuilder::source)
      .def("input", &GraphBuilder::input)
      .def("constant", &GraphBuilder::constant)
      .def("constant_data", &GraphBuilder::constant_data)
      .def("add", &GraphBuilder::add)
      .def("pointwise", &GraphBuilder::pointwise)
      .def("extern_call", &GraphBuilder::extern_call)
      .def("output", &GraphBuilder::output)
      .def("mutate", &GraphBuilder::mutate)
      .def("is_of_input", &GraphBuilder::is_of_input)
      .def("verify", [](const GraphBuilder& b) { graph::verify(b.graph()); })
      .def("evaluate", &evaluate)
      .def("compile_to_text", &compile_to_text, "isa"_a, "hoist"_a,
           "The graph after all passes, its steps, and each kernel as text: lowered, scheduled and as LLVM "
           "IR.")
      .def("__str__", [](const GraphBuilder& b) { return graph::print(b.graph()); });

  py::class_<CompiledGraph>(m, "CompiledGraph", "A compiled graph; see python/csrc/compiled_graph.h.")
      .def("run", &CompiledGraph::run)
      .def("call",
           [](const CompiledGraph& c, const py::args& arguments) { return c.run(py::list(arguments)); })
      .def("output_strides", &CompiledGraph::output_strides)
      .def("writes_arguments",
           [](const CompiledGraph& c) {
             const std::vector<bool>& mutated = c.signature().mutated;
             return std::find(mutated.begin(), mutated.end(), true) != mutated.end();
           })
      .def("start_profile", &CompiledGraph::start_profile)
      .def(
          "take_profile",
          [](CompiledGraph& c) {
            py::list events;
            for (const StepTimes::Event& event : c.take_profile())
              events.append(py::make_tuple(event.step, event.begin_ns, event.end_ns));
            return events;
          },
          "The events since start_profile(): (step, begin, end), in nanoseconds of the steady clock.")
      .def("kernel_keys",
           [](const CompiledGraph& c) {
             std::set<std::string> keys;
             for (const auto& [kernel, key] : c.report().kernels.keys) keys.insert(key);
             return keys;
           })
      .def("save", &save_graph, "Plain data for load(); None if a step cannot be saved.")
      .def("report", &report_dict);
  m.def("compile", &compile_graph, "graph"_a, "arguments"_a, "symbols"_a, "outputs"_a, "hoist"_a,
        "autotune"_a, "seconds"_a = py::none(), "Raises OutOfTime if it takes longer than `seconds`.");
  m.def(
      "load", &load_graph, "saved"_a, "arguments"_a, "symbols"_a, "outputs"_a,
      "Loads a saved graph; None if it was made for another machine or a kernel is not in the object cache.");

  bind_ahead_of_time(m);
  bind_distributed(m);
  bind_streams(m);

  m.def(
      "require_dense",
      [](const py::object& tensor, const std::string& what) {
        torch_ops::require_dense(tensor_of(tensor), what);
      },
      "Raises UserError unless the tensor is dense and on the CPU.");
  m.def("flag", [](const std::string& knob) { return env::flag(knob); });
  m.def("knob", [](const std::string& knob) { return env::get(knob); });
  m.def(
      "knobs",
      [] {
        py::list all;
        for (const env::Knob& knob : env::knobs())
          all.append(py::dict("name"_a = knob.name, "value"_a = env::get(knob.name),
                              "default"_a = knob.default_value, "help"_a = knob.help));
        return all;
      },
      "Every IPEX_* knob with its value.");
  m.def("versions", [] {
    return py::dict("ipex"_a = IPEX_VERSION, "llvm"_a = loop::llvm_version(),
                    "onednn"_a = kernels::onednn_version());
  });
  m.def("target", [] { return std::string(name(current_isa())); }, "The ISA for which kernels are compiled.");
  m.def("supported_targets", [] {
    std::vector<std::string> names;
    for (Isa isa : supported_isas()) names.emplace_back(name(isa));
    return names;
  });
  m.def("set_onednn_verbose", &kernels::set_onednn_verbose, "level"_a,
        "0: off, 1: primitives that run, 2: primitives that are created too.");
  m.def(
      "onednn_has_bf16_support", [] { return cpu_supports(Isa::kAvx512); },
      "Whether this CPU computes products of bf16 in its vector units: AVX-512 with BW, VL and DQ.");
  m.def(
      "onednn_has_fp16_support",
      [] {
        const auto op = kernels::find_operator("mkldnn::_is_mkldnn_fp16_supported");
        return op && op->typed<bool()>().call();
      },
      "Whether PyTorch's library computes products of f16 on this CPU.");
  m.def("num_threads", &num_threads);
  m.def(
      "machine_limits",
      [](int64_t bytes) {
        MachineLimits limits;
        {
          py::gil_scoped_release unlocked;
          limits = measure_limits(bytes);
        }
        return py::dict("threads"_a = limits.threads, "copy_gbs"_a = limits.copy_gbs,
                        "triad_gbs"_a = limits.triad_gbs, "read_gbs"_a = limits.read_gbs,
                        "f32_gflops"_a = limits.f32_gflops, "bf16_gflops"_a = limits.bf16_gflops);
      },
      "bytes"_a,
      "Peak memory bandwidth, for arrays of `bytes`, and peak arithmetic throughput; see "
      "runtime/roofline.h.");
  bind_cache(m);
  m.def("memory", [] {
    const CachingAllocator& allocator = CachingAllocator::instance();
    return py::dict("cached_bytes"_a = allocator.cached_bytes(), "live_bytes"_a = allocator.live_bytes());
  });
  m.def("trim_memory", [] { CachingAllocator::instance().trim(); });
}

}  // namespace ipex::python
