// Each row of the op tables becomes one line of graph text, so new rows are measured automatically.
#include "benchmarks/kernels/table_graphs.h"

#include "backend/ops/tables.h"
#include "runtime/dtype.h"

namespace ipex::bench {
namespace {

// Rows of 1024 elements: about 16 KiB, 512 KiB and 64 MiB per operand in f32.
struct WorkingSet {
  const char* name;
  int64_t rows;
};
constexpr WorkingSet kWorkingSets[] = {{"L1", 4}, {"L2", 128}, {"memory", 16384}};
constexpr int64_t kColumns = 1024;

enum class Placement { kContiguous, kStrided, kBroadcast };
constexpr std::pair<Placement, const char*> kPlacements[] = {{Placement::kContiguous, "contiguous"},
                                                             {Placement::kStrided, "strided"},
                                                             {Placement::kBroadcast, "broadcast"}};

std::string type(Dtype dtype, int64_t rows, int64_t columns) {
  return std::string(name(dtype)) + "[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
}

Dtype result_of(ops::Promotion promotion, Dtype operand) {
  return promotion == ops::Promotion::kAlwaysBool ? Dtype::kBool : operand;
}

// The parameter list, the expands that follow it, and the operand list.
struct Operands {
  std::string parameters, body, list;
};
Operands operands(const std::vector<Dtype>& dtypes, int64_t rows, Placement placement) {
  Operands all;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const std::string x = "%x" + std::to_string(i), separator = i == 0 ? "" : ", ";
    const bool repeated = placement == Placement::kBroadcast;
    // The first operand is broadcast along rows, the others along columns.
    all.parameters += separator + x + ": " +
                      (repeated ? (i == 0 ? type(dtypes[i], rows, 1) : type(dtypes[i], 1, kColumns))
                                : type(dtypes[i], rows, kColumns));
    if (placement == Placement::kStrided) all.parameters += "{" + std::to_string(2 * kColumns) + ",2}";
    if (repeated)
      all.body += "  %e" + std::to_string(i) + " = expand(" + x +
                  ") dims=[0,1] : " + type(dtypes[i], rows, kColumns) + "\n";
    all.list += separator + (repeated ? "%e" + std::to_string(i) : x);
  }
  return all;
}

std::string graph(const Operands& in, const std::string& results, const std::string& node) {
  return "graph main(" + in.parameters + ") {\n" + in.body + "  " + results + " = " + node + "\n  return " +
         results + "\n}\n";
}

// f32 and bf16 if the op accepts floats, else i32, else bool.
std::vector<Dtype> dtypes_of(bool floats, bool integers) {
  if (floats) return {Dtype::kF32, Dtype::kBF16};
  return {integers ? Dtype::kI32 : Dtype::kBool};
}

template <typename MakeGraph>
void every_shape(std::vector<NamedGraph>& all, const std::string& op, Dtype dtype, MakeGraph make) {
  for (const WorkingSet& set : kWorkingSets)
    for (const auto& [placement, placement_name] : kPlacements)
      all.push_back({op + "/" + std::string(name(dtype)) + "/" + set.name + "/" + placement_name,
                     make(set.rows, placement)});
}

}  // namespace

std::vector<NamedGraph> table_graphs() {
  std::vector<NamedGraph> all;
  for (const ops::PointwiseRow& row : ops::pointwise_rows())
    for (Dtype dtype : dtypes_of(row.floats, row.integers)) {
      const std::string op = "pointwise." + std::string(row.name);
      every_shape(all, op, dtype, [&](int64_t rows, Placement placement) {
        std::vector<Dtype> dtypes(static_cast<size_t>(row.arity), dtype);
        if (row.name == "where") dtypes[0] = Dtype::kBool;
        const Operands in = operands(dtypes, rows, placement);
        return graph(in, "%y",
                     op + "(" + in.list + ") : " + type(result_of(row.promotion, dtype), rows, kColumns));
      });
    }
  auto add_reductions = [&](std::span<const ops::ReductionRow> rows_of_table, const std::string& kind,
                            const std::string& attributes, bool keeps_size) {
    for (const ops::ReductionRow& row : rows_of_table)
      for (Dtype dtype : dtypes_of(row.floats, row.integers)) {
        const std::string op = kind + "." + std::string(row.name);
        every_shape(all, op, dtype, [&](int64_t rows, Placement placement) {
          const Operands in = operands({dtype}, rows, placement);
          const bool index = row.name.starts_with("arg");
          const int64_t columns = keeps_size ? kColumns : 1;
          std::string types = type(index ? Dtype::kI64 : result_of(row.promotion, dtype), rows, columns);
          // The second of two results is an index, except for var_mean.
          if (row.results == 2)
            types += ", " + type(row.name == "var_mean" ? dtype : Dtype::kI64, rows, columns);
          return graph(in, row.results == 2 ? "%y, %z" : "%y",
                       op + "(" + in.list + ") " + attributes + " : " + types);
        });
      }
  };
  add_reductions(ops::reduction_rows(), "reduce", "axes=[1] keepdim=true", false);
  add_reductions(ops::scan_rows(), "scan", "axis=1", true);
  return all;
}

}  // namespace ipex::bench
