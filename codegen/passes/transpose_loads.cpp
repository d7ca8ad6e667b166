// transpose_loads: vectors that are gathered down columns become contiguous loads of rows, and shuffles.
//
// The vector loop strides over memory along which the loop around it is contiguous. Together, as many
// iterations of that loop as a vector has lanes read a square block. The rows of the block are loaded and
// then transposed in registers, first within groups of 16 bytes, then by moving whole groups; each step is
// one instruction on x86. The body is repeated once for each column. Masked loads (those of the last, partial
// vector) stay gathers, in a loop of their own.
#include <algorithm>
#include <bit>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr int kMinLanes = 4;
constexpr size_t kMaxBodyStmts = 24;    // statements, which are repeated for each column
constexpr int64_t kMaxInnerBlocks = 4;  // with at most so many blocks, the vector loop is the outer one

// ---- the exchanges ----

// Transposes vectors. Each intermediate vector has a name, so that the following ones share it.
class RegisterTransposer {
 public:
  RegisterTransposer(Names& names, const Target& target, std::vector<Stmt>& out)
      : names_(names), target_(target), out_(out) {}

  std::vector<Expr> transposed(std::vector<Expr> rows) {
    const int lanes = rows[0]->type.lanes;
    const int group = std::min(lanes, target_.unpack_bytes / static_cast<int>(itemsize(rows[0]->type.dtype)));
    for (int done = 1; done < group; done *= 2) rows = interleaved(rows, group);
    for (int done = 1; done < lanes / group; done *= 2) rows = grouped(rows, group);
    return rows;
  }

 private:
  // Interleaves row i with the row half a group after it. The lower and upper halves of the result become the
  // rows 2i and 2i + 1. This rotates the bits of (row, element); repeating it once for each bit of either
  // swaps row and element.
  std::vector<Expr> interleaved(const std::vector<Expr>& rows, int group) {
    const int lanes = rows[0]->type.lanes, half = group / 2;
    std::vector<Expr> out(rows.size());
    for (int first = 0; first < lanes; first += group)
      for (int i = 0; i < half; ++i)
        for (int upper = 0; upper < 2; ++upper) {
          std::vector<int> mask;
          for (int base = 0; base < lanes; base += group)
            for (int j = 0; j < half; ++j) {
              mask.push_back(base + upper * half + j);
              mask.push_back(lanes + base + upper * half + j);
            }
          out[first + 2 * i + upper] = shuffled(rows[first + i], rows[first + i + half], mask);
        }
    return out;
  }

  // Combines the even and the odd groups of elements of the rows of neighbouring groups: the same rotation in
  // the other direction.
  std::vector<Expr> grouped(const std::vector<Expr>& rows, int group) {
    const int lanes = rows[0]->type.lanes, half = lanes / group / 2;
    std::vector<Expr> out(rows.size());
    for (int row = 0; row < group; ++row)
      for (int i = 0; i < half; ++i)
        for (int odd = 0; odd < 2; ++odd) {
          std::vector<int> mask;
          for (int base = odd * group; base < 2 * lanes; base += 2 * group)
            for (int j = 0; j < group; ++j) mask.push_back(base + j);
          out[(odd * half + i) * group + row] =
              shuffled(rows[2 * i * group + row], rows[(2 * i + 1) * group + row], mask);
        }
    return out;
  }

  Expr shuffled(const Expr& a, const Expr& b, std::vector<int> mask) {
    const std::string name = names_.fresh("mix");
    out_.push_back(Let{name, make_shuffle(a, b, std::move(mask))});
    return make_var(name, a->type);
  }

  Names& names_;
  const Target& target_;
  std::vector<Stmt>& out_;
};

// ---- the loops ----

// Whether a load reads a whole vector of elements that are not contiguous, and that can be transposed.
bool is_strided(const ExprNode& e, const Target& target) {
  const int lanes = e.type.lanes;
  if (!e.is(ExprKind::kLoad) || e.args.size() != 1 || !e.args[0]->is(ExprKind::kRamp) ||
      e.type.dtype == Dtype::kBool || lanes < kMinLanes ||
      !std::has_single_bit(static_cast<unsigned>(lanes)) ||
      lanes * itemsize(e.type.dtype) > target.max_transposed_bytes)
    return false;
  const auto step = as_const_int(e.args[0]->args[1]);
  return step != 0 && step != 1;
}

class LoadTransposer {
 public:
  LoadTransposer(const Function& f, const Target& target)
      : target_(target), names_(f), ranges_(variable_ranges(f)) {}

  Block block(const Block& b) {
    return transform_stmts(b, [&](Stmt stmt) -> std::vector<Stmt> {
      if (const auto* loop = std::get_if<For>(&stmt))
        if (auto blocks = in_blocks(*loop)) return std::move(*blocks);
      return {std::move(stmt)};
    });
  }

 private:
  // The loop along rows, and the parts of its body.
  struct Nest {
    const For* loop;
    std::set<std::string> bound;
    std::vector<Stmt> fixed, lets, rest;   // fixed: lets that are the same in each iteration
    std::vector<const For*> vector_loops;  // with loads that can be transposed
    int lanes = 0;
  };

  std::optional<std::vector<Stmt>> in_blocks(const For& loop) {
    if (loop.reduction) return std::nullopt;
    Nest nest{.loop = &loop};
    if (!classify(nest) || nest.vector_loops.empty()) return std::nullopt;
    const Expr extent = simplify(loop.end - loop.begin, ranges_), lanes = index_const(nest.lanes);
    if (auto trips = as_const_int(extent); trips && *trips < nest.lanes) return std::nullopt;
    Expr blocks = simplify(floordiv(extent, lanes), ranges_);
    if (!as_const_int(extent) && !provably_less(index_const(-1), extent, ranges_))
      blocks = make_apply(ScalarOp::max_, {blocks, index_const(0)});
    const Expr left = simplify(loop.begin + blocks * lanes, ranges_);

    std::vector<Stmt> out = nest.fixed;
    for (const For* inner : nest.vector_loops) out.emplace_back(blocked(nest, *inner, blocks));
    if (!nest.rest.empty()) {
      std::vector<Stmt> body = nest.lets;
      body.insert(body.end(), nest.rest.begin(), nest.rest.end());
      out.emplace_back(copied(loop, loop.begin, left, make_block(std::move(body))));
    }
    if (!provably_equal(left, loop.end)) out.emplace_back(copied(loop, left, loop.end, loop.body));
    return out;
  }

  For copied(const For& loop, Expr begin, Expr end, const Block& body) {
    const std::string var = names_.fresh(loop.var);
    For out{
        .var = var, .begin = std::move(begin), .end = std::move(end), .kind = loop.kind, .grain = loop.grain};
    out.body = substitute(fresh_copy(body, names_), {{loop.var, make_var(var)}});
    return out;
  }

  // Sorts the statements of the body. Returns whether iterations may run in another order: they share no
  // memory and call nothing.
  bool classify(Nest& nest) const {
    const Block& body = nest.loop->body;
    bool plain = true;
    std::set<std::string> loaded, stored;
    visit(
        body,
        [&](const Stmt& stmt) {
          plain &= !std::holds_alternative<Alloc>(stmt) && !std::holds_alternative<Call>(stmt);
          if (const auto* let = std::get_if<Let>(&stmt)) nest.bound.insert(let->name);
          if (const auto* store = std::get_if<Store>(&stmt)) {
            stored.insert(store->buffer);
            plain &= uses(store->index, nest.loop->var);
          }
        },
        [&](const ExprNode& e) {
          if (e.is(ExprKind::kLoad)) loaded.insert(e.name);
        });
    for (const std::string& buffer : stored) plain &= !loaded.contains(buffer);
    if (!plain) return false;
    for (const Stmt& stmt : body->stmts) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        const bool is_fixed = !varies(nest, let->value) && !loads(let->value);
        if (is_fixed) nest.bound.erase(let->name);
        (is_fixed ? nest.fixed : nest.lets).push_back(stmt);
        continue;
      }
      const auto* inner = std::get_if<For>(&stmt);
      if (inner && inner->reduction) return false;  // other statements read its results
      const int lanes = inner ? lanes_of(nest, *inner) : 0;
      if (lanes == 0 || (nest.lanes != 0 && nest.lanes != lanes)) {
        nest.rest.push_back(stmt);
      } else {
        nest.lanes = lanes;
        nest.vector_loops.push_back(inner);
      }
    }
    return true;
  }

  // The lanes of a vector loop that has loads to transpose; otherwise 0.
  int lanes_of(const Nest& nest, const For& inner) const {
    if (inner.kind != ForKind::kSerial) return 0;
    if (varies(nest, inner.begin) || varies(nest, inner.end)) return 0;
    if (inner.body->stmts.size() + nest.lets.size() > kMaxBodyStmts) return 0;
    for (const Stmt& stmt : inner.body->stmts)
      if (!std::holds_alternative<Let>(stmt) && !std::holds_alternative<Store>(stmt)) return 0;
    int lanes = 0;
    visit(inner.body, nullptr, [&](const ExprNode& e) {
      if (is_column(nest, e)) lanes = std::max(lanes, e.type.lanes);
    });
    return lanes;
  }

  static bool varies(const Nest& nest, const Expr& e) {
    for (const std::string& name : free_vars(e))
      if (name == nest.loop->var || nest.bound.contains(name)) return true;
    return false;
  }

  // Whether a load reads a column, and the next iteration of the nest's loop reads the next column.
  bool is_column(const Nest& nest, const ExprNode& e) const {
    if (!is_strided(e, target_)) return false;
    const Expr &base = e.args[0]->args[0], &stride = e.args[0]->args[1];
    if (varies(nest, stride)) return false;
    const auto along = affine(base, {nest.loop->var});
    if (!along || varies(nest, along->rest)) return false;
    const auto it = along->coefficients.find(nest.loop->var);
    return it != along->coefficients.end() && as_const_int(simplify(it->second)) == 1;
  }

  // One of the vector loops, in blocks of as many iterations as it has lanes.
  For blocked(const Nest& nest, const For& inner, const Expr& blocks) {
    const For& loop = *nest.loop;
    For over{.var = names_.fresh(loop.var + "_block"), .begin = index_const(0), .end = blocks};
    For along{.var = names_.fresh(inner.var), .begin = inner.begin, .end = inner.end};
    const Expr first = loop.begin + make_var(over.var) * index_const(nest.lanes);

    std::vector<Stmt> body;
    std::vector<Substitution> column(nest.lanes);
    for (int k = 0; k < nest.lanes; ++k) column[k][loop.var] = first + index_const(k);
    std::vector<Stmt> once = nest.lets;
    once.insert(once.end(), inner.body->stmts.begin(), inner.body->stmts.end());
    std::vector<Expr> known, placeholders;  // the loads, and the variables that replace them in `once`
    const Block pattern = transform(make_block(std::move(once)), [&](const Expr& e) {
      if (!is_column(nest, *e) || e->type.lanes != nest.lanes) return e;
      for (size_t i = 0; i < known.size(); ++i)
        if (equal(known[i], e)) return placeholders[i];
      known.push_back(e);
      return placeholders.emplace_back(make_var(names_.fresh("column"), e->type));
    });
    for (size_t i = 0; i < known.size(); ++i) {
      const std::vector<Expr> columns =
          block_of(known[i], {{loop.var, first}, {inner.var, make_var(along.var)}}, body);
      for (int k = 0; k < nest.lanes; ++k) column[k][placeholders[i]->name] = columns[k];
    }
    for (Substitution& values : column) {
      values[inner.var] = make_var(along.var);
      const Block copy = substitute(fresh_copy(pattern, names_), values);
      body.insert(body.end(), copy->stmts.begin(), copy->stmts.end());
    }
    const bool blocks_inside =
        loop.kind == ForKind::kSerial && provably_less(blocks, index_const(kMaxInnerBlocks + 1), ranges_);
    For& outside = blocks_inside ? along : over;
    For& inside = blocks_inside ? over : along;
    if (!blocks_inside) {
      over.kind = loop.kind;
      over.grain = std::max<int64_t>(1, loop.grain / nest.lanes);
    }
    inside.body = make_block(std::move(body));
    outside.body = make_block({std::move(inside)});
    return std::move(outside);
  }

  // The columns of the block that starts with `load`.
  std::vector<Expr> block_of(const Expr& load, const Substitution& start, std::vector<Stmt>& out) {
    const int lanes = load->type.lanes;
    const Expr base = substitute(load->args[0]->args[0], start),
               stride = substitute(load->args[0]->args[1], start);
    std::vector<Expr> rows;
    for (int r = 0; r < lanes; ++r) {
      const std::string name = names_.fresh("row");
      const Expr at = make_ramp(base + index_const(r) * stride, index_const(1), lanes);
      out.push_back(Let{name, make_load(load->name, load->type.dtype, at)});
      rows.push_back(make_var(name, load->type));
    }
    return RegisterTransposer(names_, target_, out).transposed(std::move(rows));
  }

  const Target& target_;
  Names names_;
  Ranges ranges_;
};

}  // namespace

Function transpose_loads(const Function& f, const Target& target) {
  bool any = false;
  visit(f.body, nullptr, [&](const ExprNode& e) { any |= is_strided(e, target); });
  if (!any) return f;
  Function out = f;
  out.body = LoadTransposer(f, target).block(f.body);
  return out;
}

}  // namespace ipex::loop
