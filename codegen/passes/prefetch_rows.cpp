// prefetch_rows: software prefetching. A loop that reads a row again, or rows that are far apart, prefetches
// the same place of the next row.
//
//   for i {                                          for i {
//     for j reduce(m) { .. x[i*N + j*8 ..] }           for j reduce(m) { .. x[i*N + j*8 ..] }
//     for j { .. exp(x[i*N + j*8 ..] - m) }    =>      let next = min(i + 1, last)
//   }                                                  for j { prefetch(x[next*N + j*8])  .. exp(..) }
//                                                    }
//
// The first pass over a row waits for memory. Later passes compute on cached data, while memory is idle. The
// hardware prefetches to the end of a row. If the next row is somewhere else (the same channel of the next
// image), its first lines have to be waited for, so the first pass prefetches them too.
//
// Rows shorter than Target::distant_row_bytes whose successors are far away are not prefetched if L3 holds
// the tensor: pooling over contiguous channels took 2 to 4 % longer.
//
// This pass does not read the Schedule: which loops read a row again shows only after vectorize has written
// them.
#include <algorithm>
#include <set>

#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

class RowPrefetcher {
 public:
  RowPrefetcher(const Function& f, const Target& target) : f_(f), target_(target), tree_(f), names_(f) {}

  Function run() {
    Function out = f_;
    out.body = rebuilt(*f_.body);
    return out;
  }

 private:
  // A vector of a row that is read, in terms of the loop over rows and the loop along them.
  struct Read {
    std::string buffer;
    Dtype dtype;
    Expr first;
    int64_t bytes;
    bool is_distant;  // the next row is far away in memory
  };

  Block rebuilt(const BlockNode& block) {
    std::vector<Stmt> out;
    for (Stmt stmt : block.stmts) {
      if (auto* loop = std::get_if<For>(&stmt)) loop->body = rows(*loop);
      out.push_back(std::move(stmt));
    }
    return make_block(std::move(out));
  }

  Block rows(const For& outer) {
    std::vector<Stmt> out;
    std::set<std::string> read, prefetched;
    const Block inner = rebuilt(*outer.body);
    for (const Stmt& stmt : inner->stmts) {
      const auto* along = std::get_if<For>(&stmt);
      if (!along) {
        out.push_back(stmt);
        continue;
      }
      std::vector<Stmt> body;
      const std::vector<Read> reads = reads_of(outer, *along);
      const std::string next = names_.fresh("next");
      for (const Read& r : reads)
        if ((r.is_distant || read.count(r.buffer) > 0) && prefetched.insert(r.buffer).second)
          prefetch(r, {{outer.var, make_var(next)}}, body);
      if (!body.empty()) out.emplace_back(Let{next, following(outer)});
      for (const Read& r : reads) read.insert(r.buffer);
      body.insert(body.end(), along->body->stmts.begin(), along->body->stmts.end());
      For with_requests = *along;
      with_requests.body = make_block(std::move(body));
      out.emplace_back(std::move(with_requests));
    }
    return make_block(std::move(out));
  }

  // The reads of whole rows that take only a part of L2, from buffers that do not fit into it.
  std::vector<Read> reads_of(const For& outer, const For& along) const {
    std::vector<Read> out;
    const auto steps = as_const_int(simplify(along.end - along.begin));
    if (!steps) return out;
    // A prefetch at the start of an iteration cannot use names that the iteration binds.
    const auto known = [&](const Expr& index) {
      return std::none_of(along.body->stmts.begin(), along.body->stmts.end(), [&](const Stmt& stmt) {
        const auto* bound = std::get_if<Let>(&stmt);
        return bound && uses(index, bound->name);
      });
    };
    const auto add = [&](const ExprNode& e) {
      if (!e.is(ExprKind::kLoad) || e.args.size() != 1 || !e.args[0]->is(ExprKind::kRamp)) return;
      const Expr &first = e.args[0]->args[0], &step = e.args[0]->args[1];
      const int64_t bytes = e.type.lanes * itemsize(e.type.dtype), row = *steps * bytes;
      const auto distance = LoopTree::constant_stride(first, outer.var);
      if (as_const_int(step) == 1 && distance && *distance != 0 &&
          LoopTree::constant_stride(first, along.var) == e.type.lanes && row >= 4 * kCacheLine &&
          row <= target_.l2_bytes / 4 && is_larger(e.name, target_.l2_bytes) && known(first))
        out.push_back({e.name, e.type.dtype, first, bytes,
                       row >= target_.distant_row_bytes &&
                           std::abs(*distance) * itemsize(e.type.dtype) >= 2 * row &&
                           is_larger(e.name, target_.l3_bytes)});
    };
    for (const Stmt& stmt : along.body->stmts)
      if (!std::holds_alternative<For>(stmt)) visit(make_block({stmt}), [](const Stmt&) {}, add);
    if (along.reduction)
      for (const Expr& e : along.reduction->yield) visit(e, add);
    return out;
  }

  bool is_larger(const std::string& name, int64_t bytes) const {
    const auto buffer =
        std::find_if(f_.buffers.begin(), f_.buffers.end(), [&](const Buffer& b) { return b.name == name; });
    if (buffer == f_.buffers.end() || tree_.writes(name)) return false;
    const auto extent = as_const_int(buffer->extent);
    return !extent || *extent * itemsize(buffer->dtype) > bytes;
  }

  static Expr following(const For& outer) {
    const Expr one = index_const(1);
    return simplify(make_apply(ScalarOp::min_, {make_var(outer.var) + one, outer.end - one}));
  }

  static void prefetch(const Read& read, const Substitution& next, std::vector<Stmt>& out) {
    const Expr there = substitute(read.first, next);
    for (int64_t line = 0; line < read.bytes; line += kCacheLine) {
      const Expr at = simplify(there + index_const(line / itemsize(read.dtype)));
      out.push_back(Call{std::string(kPrefetch), {make_load(read.buffer, read.dtype, at)}});
    }
  }

  const Function& f_;
  const Target& target_;
  LoopTree tree_;
  Names names_;
};

}  // namespace

Function prefetch_rows(const Function& f, const Target& target) { return RowPrefetcher(f, target).run(); }

}  // namespace ipex::loop
