// distribute: loop distribution. A nest that reduces down the columns of a matrix, and then runs down the
// same columns again, becomes two nests.
//
//   for c in C { for r in R reduce(s) {.. x[r*C + c] ..}; rest; for q in R { y[q*C + c] = x[q*C + c] - s } }
//     =>  alloc s_all[C];
//         for c in C { for r in R reduce(s) {.. x[r*C + c] ..}; rest; s_all[c] = s };
//         for c in C { for q in R { y[q*C + c] = x[q*C + c] - s_all[c] } }
//
// As one nest, both loops visit one vector of columns at a time, which is part of a cache line from another
// page in every row, and what follows a reduction in two stages runs on one thread. As a nest of its own, the
// second part runs row by row, because collapse_loops puts its loops into memory order. The typical case is
// the gradient of batch norm in channels_last. A nest that reduces along rows stays whole: a row is still in
// cache when it is visited again.
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

class Distributor {
 public:
  Distributor(const Function& f, const Target& target) : tree_(f), target_(target), names_(f) {}

  Block run(const Block& body) {
    std::vector<Stmt> out;
    for (const Stmt& stmt : body->stmts) {
      const auto* loop = std::get_if<For>(&stmt);
      if (!loop || !split(*loop, out)) out.push_back(stmt);
    }
    return make_block(std::move(out));
  }

 private:
  // Appends the two nests to `out`, or returns false.
  bool split(const For& root, std::vector<Stmt>& out) {
    std::vector<For> kept;  // the loops around the statements that are divided
    const For* innermost = &root;
    for (;; innermost = &std::get<For>(innermost->body->stmts[0])) {
      if (innermost->kind != ForKind::kSerial || innermost->reduction ||
          !tree_.reorderable(tree_.id_of(*innermost)))
        return false;
      for (const For& outer : kept)
        if (uses(innermost->begin, outer.var) || uses(innermost->end, outer.var)) return false;
      kept.push_back(*innermost);
      kept.back().body = nullptr;
      const std::vector<Stmt>& stmts = innermost->body->stmts;
      if (stmts.size() != 1 || !std::holds_alternative<For>(stmts[0])) break;
    }
    const std::vector<Stmt>& stmts = innermost->body->stmts;
    const size_t cut = find_split(stmts);
    if (cut == stmts.size() || !worthwhile(*innermost)) return false;

    std::vector<Stmt> first(stmts.begin(), stmts.begin() + static_cast<std::ptrdiff_t>(cut));
    std::vector<Stmt> second(stmts.begin() + static_cast<std::ptrdiff_t>(cut), stmts.end());
    const Block rest = pass_through_arrays(first, make_block(std::move(second)), kept, out);
    kept.back().body = make_block(std::move(first));
    out.emplace_back(join_levels(kept));
    kept.back().body = rest;
    const Block copy = fresh_copy(make_block({join_levels(kept)}), names_);
    out.insert(out.end(), copy->stmts.begin(), copy->stmts.end());
    return true;
  }

  // The first loop after the last reduction, or the end if there is none.
  static size_t find_split(const std::vector<Stmt>& stmts) {
    size_t cut = stmts.size();
    bool reduces = false;
    for (size_t i = 0; i < stmts.size(); ++i) {
      if (std::holds_alternative<Alloc>(stmts[i])) return stmts.size();
      const auto* loop = std::get_if<For>(&stmts[i]);
      if (!loop) continue;
      if (loop->reduction) {
        reduces = true;
        cut = stmts.size();
      } else if (cut == stmts.size()) {
        cut = i;
      }
    }
    return reduces ? cut : stmts.size();
  }

  // Whether most of what the reductions read is contiguous along the loop around them and not along their own
  // loops.
  bool worthwhile(const For& around) const {
    const int parent = tree_.id_of(around);
    int along_columns = 0, along_rows = 0;
    double rows = 0;
    for (const LoopTree::Access& access : tree_.accesses()) {
      bool reduced = false, contiguous = false;
      double trips = 1;
      int loop = access.loop;
      for (; loop >= 0 && loop != parent; loop = tree_.at(loop).parent) {
        const For& node = *tree_.at(loop).node;
        reduced |= node.reduction && uses(access.index, node.var);
        contiguous |= LoopTree::constant_stride(access.index, node.var) == 1;
        trips *= trips_of(loop);
      }
      if (loop < 0 || !reduced || access.is_store) continue;
      along_columns += LoopTree::constant_stride(access.index, around.var) == 1;
      along_rows += contiguous;
      rows = std::max(rows, trips);
    }
    double elements = rows;
    for (int loop = parent; loop >= 0; loop = tree_.at(loop).parent) elements *= trips_of(loop);
    return along_columns > along_rows && rows >= static_cast<double>(target_.cached_rows) &&
           elements >= cached_elements();
  }

  double trips_of(int loop) const {  // a symbol may be large
    const auto extent = tree_.extent(loop);
    return extent ? static_cast<double>(*extent) : cached_elements();
  }

  // Rewrites `second` to read what it uses of `first` from arrays over the kept loops, and makes `first` fill
  // them. Indices are computed again instead, so that they remain recognizable as indices.
  Block pass_through_arrays(std::vector<Stmt>& first, const Block& second, const std::vector<For>& kept,
                            std::vector<Stmt>& out) {
    std::set<std::string> used;
    const auto use = [&](const ExprNode& e) {
      if (e.is(ExprKind::kVar)) used.insert(e.name);
    };
    visit(second, [](const Stmt&) {}, use);
    const auto [size, position] = flattened(kept);
    Substitution loaded;
    std::vector<Stmt> stores;
    std::vector<const Let*> indices;
    const auto store_array = [&](const std::string& name, Dtype dtype) {
      const std::string all = names_.fresh(name + "_all");
      out.push_back(Alloc{all, dtype, size});
      stores.push_back(Store{all, position, make_var(name, {dtype, 1}), nullptr});
      loaded[name] = make_load(all, dtype, position);
    };
    for (size_t i = first.size(); i-- > 0;) {
      if (const auto* let = std::get_if<Let>(&first[i]); let && used.count(let->name) > 0) {
        if (let->value->type == kIndex && !loads(let->value)) {
          visit(let->value, use);
          indices.push_back(let);
        } else {
          store_array(let->name, let->value->type.dtype);
        }
      } else if (const auto* loop = std::get_if<For>(&first[i]); loop && loop->reduction) {
        for (const State& s : loop->reduction->states)
          if (used.count(s.name) > 0) store_array(s.name, s.type.dtype);
      }
    }
    for (size_t i = indices.size(); i-- > 0;)  // in their original order: each may use those before it
      loaded[indices[i]->name] = substitute(indices[i]->value, loaded);
    const Block rest = substitute(second, loaded);
    first.insert(first.end(), stores.rbegin(), stores.rend());
    return rest;
  }

  double cached_elements() const { return static_cast<double>(target_.cached_elements); }

  LoopTree tree_;
  const Target& target_;
  Names names_;
};

}  // namespace

Function distribute(const Function& f, const Target& target) {
  Function out = f;
  out.body = Distributor(f, target).run(f.body);
  return out;
}

}  // namespace ipex::loop
