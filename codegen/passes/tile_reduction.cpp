// tile_reduction: a parallel loop that carries a Reduction becomes two stages: partial results for each
// chunk, then a serial merge.
//
//   for c in K { for parallel t in chunks reduce(s) {..} yield(y) merge(m); rest }
//     =>  alloc part[chunks * K];
//         for parallel t in chunks { for c in K { part[t*K + c] = y, from the identity } };
//         for c in K { for t in chunks reduce(s) { s' = part[t*K + c] } yield(m(s, s')); rest }
//
// The loop over chunks is outermost, so that a chunk is read once for all of K. A chunk with long rows is
// read row by row, while the sums in part[] stay in L1. Reading it column by column would touch one cache
// line of each row, and memory is several times slower at that. If the sums of a row would not fit into L1,
// several rows are processed at once: on Zen 4, two streams per thread get half the memory bandwidth of one,
// but eight streams in pages of their own get all of it. (Blocks of columns would read parts of pages, at
// half the speed.) If several reductions follow one another (a mean, then a variance around it), each has its
// own two stages and passes its results on in an array over K. If the number of chunks is known only at run
// time, they are merged in groups and then the groups are merged, because a running sum over thousands of
// partial sums would lose digits.
#include <algorithm>
#include <bit>
#include <optional>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

constexpr int64_t kMergeColumns = 256;   // of a block of columns that one thread merges
constexpr int64_t kMaxSerialMerge = 64;  // chunks; a reduction of constant length never has more

const For* parallel_reduction(const Stmt& stmt) {
  const auto* loop = std::get_if<For>(&stmt);
  return loop && loop->kind == ForKind::kParallel && loop->reduction ? loop : nullptr;
}

bool holds_parallel_reduction(const Block& block) {
  for (const Stmt& stmt : block->stmts)
    if (parallel_reduction(stmt)) return true;
  return false;
}

// Where the chunks leave a state: at number * size + position in a scratch buffer.
struct Partial {
  std::string buffer;
  Expr size, position;

  Expr at(const Expr& number) const { return simplify(number * size + position); }
};

class ReductionTiler {
 public:
  ReductionTiler(const Function& f, const Target& target) : target_(target), names_(f) {}

  Block top(const Block& block) {
    std::vector<Stmt> out;
    for (const Stmt& stmt : block->stmts) {
      const auto* before = out.empty() ? nullptr : std::get_if<For>(&out.back());
      follows_rows_ = before && before->kind == ForKind::kParallel && !before->reduction;
      if (parallel_reduction(stmt)) {
        stages({}, make_block({stmt}), out);
        continue;
      }
      std::vector<For> kept;
      for (const auto* loop = std::get_if<For>(&stmt); loop;) {
        kept.push_back(*loop);
        if (loop->reduction || loop->kind == ForKind::kParallel) break;
        if (holds_parallel_reduction(loop->body)) {
          const Block body = loop->body;
          for (For& level : kept) level.body = nullptr;
          stages(kept, body, out);
          kept.clear();
          break;
        }
        loop = loop->body->stmts.size() == 1 ? std::get_if<For>(&loop->body->stmts[0]) : nullptr;
      }
      const bool split = std::holds_alternative<For>(stmt) && kept.empty();
      if (!split) out.push_back(stmt);
    }
    return make_block(std::move(out));
  }

 private:
  // The kept loops for merging the partial results of `loop`. If there are many results, the threads merge
  // blocks of columns.
  std::vector<For> parallel_merge(std::vector<For> kept, const For& loop) {
    if (kept.size() != 1 || kept[0].kind != ForKind::kVector) return kept;
    For& column = kept[0];
    const auto partial = as_const_int(simplify((column.end - column.begin) * (loop.end - loop.begin)));
    const auto columns = as_const_int(simplify(column.end - column.begin));
    if (!partial || *partial * std::ssize(loop.reduction->states) < target_.parallel_merge ||
        *columns <= kMergeColumns)
      return kept;
    For block{.var = names_.fresh(column.var + "_block"), .kind = ForKind::kParallel};
    const Expr width = index_const(kMergeColumns);
    block.begin = index_const(0);
    block.end = simplify(ceildiv(column.end - column.begin, width));
    const Expr first = column.begin + make_var(block.var) * width;
    column.end = make_apply(ScalarOp::min_, {simplify(first + width), column.end});
    column.begin = simplify(first);
    return {block, column};
  }

  // The kept loops around `stmts`.
  static std::vector<Stmt> around(const std::vector<For>& kept, std::vector<Stmt> stmts) {
    for (size_t i = kept.size(); i-- > 0;) {
      For loop = kept[i];
      loop.body = make_block(std::move(stmts));
      stmts.clear();
      stmts.emplace_back(std::move(loop));
    }
    return stmts;
  }

  void append_copy(std::vector<Stmt> stmts, std::vector<Stmt>& out) {
    const Block copy = fresh_copy(make_block(std::move(stmts)), names_);
    out.insert(out.end(), copy->stmts.begin(), copy->stmts.end());
  }

  void stages(const std::vector<For>& kept, const Block& body, std::vector<Stmt>& out) {
    const auto [size, position] = flattened(kept);
    size_t last = 0;
    for (size_t i = 0; i < body->stmts.size(); ++i)
      if (parallel_reduction(body->stmts[i])) last = i;
    std::vector<Stmt> prefix;  // what the next reduction may use: lets, and earlier results
    for (size_t i = 0; i <= last; ++i) {
      const Stmt& stmt = body->stmts[i];
      const For* loop = parallel_reduction(stmt);
      if (!loop) {
        IPEX_CHECK(std::holds_alternative<Let>(stmt),
                   "only lets may be between reductions that are split into chunks");
        prefix.push_back(stmt);
        continue;
      }
      const std::vector<Partial> partial = first_stage(kept, *loop, prefix, size, position, out);
      std::vector<Stmt> merge = prefix;
      merge.push_back(second_stage(*loop, partial));
      if (i == last) {
        merge.insert(merge.end(), body->stmts.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                     body->stmts.end());
        std::vector<Stmt> nest = around(parallel_merge(kept, *loop), std::move(merge));
        out.insert(out.end(), nest.begin(), nest.end());
        return;
      }
      for (const State& s : loop->reduction->states) {
        const std::string result = names_.fresh(s.name + "_all");
        out.push_back(Alloc{result, s.type.dtype, size});
        merge.push_back(Store{result, position, make_var(s.name, s.type), nullptr});
        prefix.push_back(Let{s.name, make_load(result, s.type.dtype, position)});
      }
      append_copy(around(kept, std::move(merge)), out);
    }
  }

  // The loops over the rows of a chunk, outermost first, if it is to be read row by row. This requires that
  // `stmts` are lets and one reduction from the identity, over long rows. Otherwise none.
  std::vector<For> loops_over_rows(const std::vector<For>& kept, const std::vector<Stmt>& stmts,
                                   const std::vector<Expr>& yield, const Expr& size) const {
    const auto columns = as_const_int(size);
    const auto* root = stmts.empty() ? nullptr : std::get_if<For>(&stmts.back());
    if (!columns || !root || !root->reduction || kept.empty() ||
        *columns <= int64_t{kept.back().lanes} * kept.back().unroll)
      return {};
    for (size_t i = 0; i + 1 < stmts.size(); ++i)
      if (!std::holds_alternative<Let>(stmts[i])) return {};
    std::vector<For> rows = perfect_levels(*root);
    for (const For& level : rows)
      for (const For& column : kept)
        if (level.kind != ForKind::kSerial || uses(level.begin, column.var) || uses(level.end, column.var))
          return {};
    for (size_t i = 0; i < yield.size(); ++i) {
      const State &first = root->reduction->states[i], &last = rows.back().reduction->states[i];
      if (!equal(first.init, first.identity) || !equal(yield[i], make_var(first.name, first.type)) ||
          !equal(last.identity, first.identity))
        return {};
    }
    int64_t row_bytes = 0;
    const auto count = [&](const ExprNode& e) {
      if (e.is(ExprKind::kLoad)) row_bytes += *columns * itemsize(e.type.dtype);
    };
    visit(rows.back().body, [](const Stmt&) {}, count);
    for (const Expr& y : rows.back().reduction->yield) visit(y, count);
    return row_bytes < target_.long_row_bytes ? std::vector<For>{} : rows;
  }

  // How many rows are processed at once. More than one only if their sums do not fit into L1, and if no
  // earlier loop leaves each row in cache (fuse_loops).
  int64_t row_unroll_factor(const std::vector<For>& kept, const For& rows) const {
    int64_t bytes = 0, streams = 0;
    for (const State& s : rows.reduction->states) bytes += itemsize(s.type.dtype);
    const auto add = [&](const ExprNode& e) {
      streams += e.is(ExprKind::kLoad) && uses(e.args[0], rows.var) && uses(e.args[0], kept.back().var);
    };
    visit(rows.body, nullptr, add);
    for (const Expr& y : rows.reduction->yield) visit(y, add);
    const int64_t unroll =
        target_.memory_streams / static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(streams)));
    const auto columns = as_const_int(flattened(kept).size),
               count = as_const_int(simplify(rows.end - rows.begin));
    const bool crowds = columns && *columns * bytes > target_.cached_sum_bytes;
    return crowds && !follows_rows_ && unroll > 1 && count && *count % unroll == 0 ? unroll : 1;
  }

  // For each state, whether it is the same in every column, like a count of rows. Such a state takes one
  // number per chunk, and its reciprocal needs no vector division.
  static std::vector<bool> same_in_columns(const std::vector<For>& kept, const For& rows,
                                           const std::vector<Stmt>& prefix) {
    const std::vector<State>& states = rows.reduction->states;
    const std::optional<Substitution> lets = inlined(prefix, rows.body->stmts);
    if (!lets) return std::vector<bool>(states.size(), false);
    std::set<std::string> varying;
    for (const For& column : kept) varying.insert(column.var);
    const auto varies = [&](const Expr& e) {
      return std::any_of(varying.begin(), varying.end(), [&](const std::string& v) { return uses(e, v); });
    };
    for (bool grows = true; grows;) {
      grows = false;
      for (size_t i = 0; i < states.size(); ++i)
        if (varies(substitute(rows.reduction->yield[i], *lets)))
          grows |= varying.insert(states[i].name).second;
    }
    std::vector<bool> same;
    for (const State& s : states) same.push_back(varying.count(s.name) == 0);
    return same;
  }

  // The values of lets, each with the earlier ones inlined. None if there are other statements.
  static std::optional<Substitution> inlined(const std::vector<Stmt>& outer, const std::vector<Stmt>& inner) {
    Substitution lets;
    for (const std::vector<Stmt>* stmts : {&outer, &inner})
      for (const Stmt& stmt : *stmts)
        if (!inline_let(stmt, lets)) return std::nullopt;
    return lets;
  }

  //   for rows { for c in K { lets; s = part[..], next; part[..] = s } }
  //
  // A state that is the same in every column is loaded before the columns and stored after them.
  std::vector<Stmt> row_by_row(const std::vector<For>& kept, std::vector<For> rows, std::vector<Stmt> lets,
                               const std::vector<Partial>& partial, const std::vector<bool>& same,
                               const Expr& number) const {
    const For last = rows.back();
    const std::vector<State>& states = last.reduction->states;
    const std::optional<Substitution> all_lets = inlined(lets, last.body->stmts);
    const int64_t unroll = row_unroll_factor(kept, last);
    std::vector<Stmt> row_body, after;
    Substitution values, of_row;
    for (size_t i = 0; i < partial.size(); ++i) {
      const State& s = states[i];
      values[s.name] = make_load(partial[i].buffer, s.type.dtype, partial[i].at(number));
      if (!same[i]) continue;
      row_body.push_back(Let{s.name + ".all", values[s.name]});
      values[s.name] = of_row[s.name] = make_var(s.name + ".all", s.type);
    }
    for (int64_t row = 0; row < unroll; ++row) {
      if (unroll > 1)
        values[last.var] = of_row[last.var] =
            simplify(last.begin + make_var(last.var) * index_const(unroll) + index_const(row));
      std::vector<Stmt> step = substitute(last.body, values)->stmts;
      for (size_t i = 0; i < partial.size(); ++i)
        step.push_back(Let{states[i].name + ".next", substitute(last.reduction->yield[i], values)});
      const std::string suffix = unroll == 1 ? "" : ".row" + std::to_string(row);
      const Block renamed = rename_bound(make_block(std::move(step)), suffix);
      lets.insert(lets.end(), renamed->stmts.begin(), renamed->stmts.end());
      Substitution next = of_row;
      for (size_t i = 0; i < partial.size(); ++i) {
        const State& s = states[i];
        values[s.name] = make_var(s.name + ".next" + suffix, s.type);
        if (same[i]) next[s.name] = substitute(substitute(last.reduction->yield[i], *all_lets), of_row);
      }
      of_row = std::move(next);
    }
    for (size_t i = 0; i < partial.size(); ++i) {
      const Expr& value = same[i] ? of_row[states[i].name] : values[states[i].name];
      (same[i] ? after : lets).push_back(Store{partial[i].buffer, partial[i].at(number), value, nullptr});
    }
    if (unroll > 1) {
      rows.back().begin = index_const(0);
      rows.back().end = simplify(floordiv(last.end - last.begin, index_const(unroll)));
    }
    for (For& level : rows) {
      level.reduction.reset();
      level.body = nullptr;
    }
    const std::vector<Stmt> columns = around(kept, std::move(lets));
    row_body.insert(row_body.end(), columns.begin(), columns.end());
    row_body.insert(row_body.end(), after.begin(), after.end());
    return around(rows, std::move(row_body));
  }

  // Emits the parallel loop over chunks. Returns where it leaves the partial results.
  std::vector<Partial> first_stage(const std::vector<For>& kept, const For& loop, std::vector<Stmt> body,
                                   const Expr& size, const Expr& position, std::vector<Stmt>& out) {
    const Reduction& r = *loop.reduction;
    Substitution start;
    for (const State& s : r.states) start[s.name] = s.identity;
    const Block chunk = substitute(loop.body, start);
    std::vector<Expr> results;
    for (const Expr& yield : r.yield) results.push_back(substitute(yield, start));
    const std::vector<For> rows = loops_over_rows(kept, chunk->stmts, results, size);
    std::vector<bool> same(r.states.size(), false);
    if (!rows.empty()) {
      body.insert(body.end(), chunk->stmts.begin(), chunk->stmts.end() - 1);
      same = same_in_columns(kept, rows.back(), body);
    }

    const Expr number = make_var(loop.var) - loop.begin;
    std::vector<Partial> partial;
    std::vector<Stmt> identities, columns_identities;
    for (size_t i = 0; i < r.states.size(); ++i) {
      const State& s = r.states[i];
      const std::string buffer = names_.fresh(s.name + "_part");
      partial.push_back(same[i] ? Partial{buffer, index_const(1), index_const(0)}
                                : Partial{buffer, size, position});
      const Expr extent = (loop.end - loop.begin) * partial[i].size;
      out.push_back(Alloc{buffer, s.type.dtype, simplify(extent)});
      (same[i] ? identities : columns_identities)
          .push_back(Store{buffer, partial[i].at(number), s.identity, nullptr});
    }
    For chunks = loop;
    chunks.reduction.reset();
    if (!rows.empty()) {
      std::vector<Stmt> stmts;
      append_copy(std::move(identities), stmts);
      append_copy(around(kept, std::move(columns_identities)), stmts);
      append_copy(row_by_row(kept, rows, std::move(body), partial, same, number), stmts);
      chunks.body = make_block(std::move(stmts));
    } else {
      body.insert(body.end(), chunk->stmts.begin(), chunk->stmts.end());
      for (size_t i = 0; i < partial.size(); ++i)
        body.push_back(Store{partial[i].buffer, partial[i].at(number), results[i], nullptr});
      chunks.body = make_block(around(kept, std::move(body)));
    }
    append_copy({std::move(chunks)}, out);
    return partial;
  }

  // Merges all chunks into the states of `loop`.
  For second_stage(const For& loop, const std::vector<Partial>& partial) {
    const Expr chunks = simplify(loop.end - loop.begin);
    if (const auto count = as_const_int(chunks); count && *count <= kMaxSerialMerge)
      return merge_chunks(loop, loop.begin, partial);
    For groups = loop;
    groups.var = names_.fresh(loop.var + "_group");
    groups.kind = ForKind::kSerial;
    groups.grain = 1;
    groups.begin = index_const(0);
    groups.end = simplify(floordiv(chunks + index_const(kMaxSerialMerge - 1), index_const(kMaxSerialMerge)));

    For group = loop;
    std::vector<State> states = loop.reduction->states;
    for (State& s : states) {
      s.name = names_.fresh(s.name + "_group");
      s.init = s.identity;
    }
    group.begin = simplify(loop.begin + make_var(groups.var) * index_const(kMaxSerialMerge));
    group.end = make_apply(ScalarOp::min_, {simplify(group.begin + index_const(kMaxSerialMerge)), loop.end});
    group.reduction->yield = group.reduction->merge;  // replaced below by the values of the chunk
    rename_states(group, states);
    group = merge_chunks(group, loop.begin, partial);
    std::vector<Expr> own, of_group;
    for (size_t i = 0; i < states.size(); ++i) {
      own.push_back(make_var(loop.reduction->states[i].name, states[i].type));
      of_group.push_back(make_var(states[i].name, states[i].type));
    }
    for (size_t i = 0; i < states.size(); ++i)
      groups.reduction->yield[i] = merged(*loop.reduction, i, own, of_group);
    groups.body = make_block({std::move(group)});
    return groups;
  }

  // Merges the chunks that `loop` runs over, counted from `first`, into its states.
  For merge_chunks(const For& loop, const Expr& first, const std::vector<Partial>& partial) {
    For merge = loop;
    merge.kind = ForKind::kSerial;
    merge.grain = 1;
    std::vector<Stmt> loads;
    std::vector<Expr> states, others;
    const Expr number = make_var(loop.var) - first;
    for (size_t i = 0; i < partial.size(); ++i) {
      const State& s = loop.reduction->states[i];
      const std::string name = names_.fresh(s.name + "_chunk");
      loads.push_back(Let{name, make_load(partial[i].buffer, s.type.dtype, partial[i].at(number))});
      states.push_back(make_var(s.name, s.type));
      others.push_back(make_var(name, s.type));
    }
    for (size_t i = 0; i < partial.size(); ++i)
      merge.reduction->yield[i] = merged(*loop.reduction, i, states, others);
    merge.body = make_block(std::move(loads));
    return merge;
  }

  const Target& target_;
  Names names_;
  bool follows_rows_ = false;  // the current reduction follows a parallel loop over rows
};

}  // namespace

Function tile_reduction(const Function& f, const Target& target) {
  Function out = f;
  out.body = ReductionTiler(f, target).top(f.body);
  return out;
}

}  // namespace ipex::loop
