// fuse_loops: loop fusion. A loop over rows and the following loop, which sums the same rows, become one, so
// that a row is summed while it is in cache.
//
//   for parallel i in 0..R { y[i*C + ..] = f(x[i*C + ..]) }            the gradient of a layer norm
//   alloc part[..]
//   for parallel t { part = 0; for i in t*K..t*K+K { part += g(x[i*C + ..]) } }      and of its weight
//     =>  alloc part[..]
//         for parallel t { part = 0; for i in t*K..t*K+K { y[i*C + ..] = f(..);  part += g(..) } }
//
// The sums may read results of the first loop, but only those that the same row has just stored. If both
// parts end in the same vector loop over the columns, these loops are fused too, and share loads and
// conversions.
//
// This pass does not read the Schedule, which describes one nest at a time: fusion depends on how
// tile_reduction has written two nests.
#include <algorithm>
#include <optional>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

// The fused loop distributes chunks to the threads. With fewer chunks per thread, threads would wait for each
// other.
constexpr int64_t kMinChunksPerThread = 2;

// The second loop: chunks of rows, in which each row is added to sums.
struct ChunkedReduction {
  const For* chunks;
  const For* rows;  // the last statement of the body of `chunks`
  Expr count;       // number of rows
};

class LoopFuser {
 public:
  LoopFuser(const Function& f, const Target& target)
      : target_(target), ranges_(variable_ranges(f)), names_(f) {}

  Block run(const Block& body) {
    std::vector<Stmt> out;
    for (const Stmt& stmt : body->stmts) {
      const size_t before = previous_loop(out);
      scratch_.clear();
      for (size_t i = before + 1; i < out.size(); ++i) scratch_.insert(std::get<Alloc>(out[i]).buffer);
      const auto sums = match_reduction(stmt);
      if (sums && before < out.size())
        if (auto fused = fuse(std::get<For>(out[before]), *sums)) {
          out.erase(out.begin() + static_cast<std::ptrdiff_t>(before));
          out.emplace_back(std::move(*fused));
          continue;
        }
      out.push_back(stmt);
    }
    return make_block(std::move(out));
  }

 private:
  // The index of the loop that `out` ends with, apart from allocations; the size of `out` if it does not end
  // with one.
  static size_t previous_loop(const std::vector<Stmt>& out) {
    size_t at = out.size();
    while (at > 0 && std::holds_alternative<Alloc>(out[at - 1])) --at;
    return at > 0 && std::holds_alternative<For>(out[at - 1]) ? at - 1 : out.size();
  }

  std::optional<ChunkedReduction> match_reduction(const Stmt& stmt) const {
    const auto* chunks = std::get_if<For>(&stmt);
    if (!chunks || chunks->kind != ForKind::kParallel || chunks->reduction || chunks->body->stmts.empty())
      return std::nullopt;
    const auto* rows = std::get_if<For>(&chunks->body->stmts.back());
    const auto parts = as_const_int(chunks->end);
    if (!rows || rows->kind != ForKind::kSerial || rows->reduction || as_const_int(chunks->begin) != 0 ||
        (parts && *parts < kMinChunksPerThread * target_.threads))
      return std::nullopt;
    for (size_t i = 0; i + 1 < chunks->body->stmts.size(); ++i)  // the initial values of the sums
      if (const auto* first = std::get_if<For>(&chunks->body->stmts[i]); first && first->reduction)
        return std::nullopt;
    const Expr count = tiled_extent(*chunks, *rows);
    return count ? std::optional<ChunkedReduction>({chunks, rows, count}) : std::nullopt;
  }

  // The extent that `tiles`, each of which runs over `tile`, cover from 0 without a gap; null if it is not
  // known.
  static Expr tiled_extent(const For& tiles, const For& tile) {
    const auto begin = affine(tile.begin, {tiles.var});
    if (!begin || begin->coefficients.count(tiles.var) == 0 || as_const_int(simplify(begin->rest)) != 0)
      return nullptr;
    const Expr length = simplify(begin->coefficients.at(tiles.var));
    if (!as_const_int(length)) return nullptr;
    const Expr next = tile.begin + length;
    if (provably_equal(tile.end, next)) return simplify(tiles.end * length);
    const Expr& end = tile.end;
    if (!end->is(ExprKind::kApply) || end->op != ScalarOp::min_) return nullptr;
    for (int i = 0; i < 2; ++i)
      if (const Expr& last = end->args[i]; !uses(last, tiles.var) && provably_equal(end->args[1 - i], next))
        return provably_equal(tiles.end, simplify(ceildiv(last, length))) ? last : nullptr;
    return nullptr;
  }

  std::optional<For> fuse(const For& first, const ChunkedReduction& sums) {
    auto row = row_of(first, sums);
    if (!row || !is_row_local(*row, sums)) return std::nullopt;
    std::vector<Stmt> summed = sums.rows->body->stmts;
    fuse_columns(*row, summed);
    row->insert(row->end(), summed.begin(), summed.end());
    For rows = *sums.rows;
    rows.body = make_block(std::move(*row));
    For chunks = *sums.chunks;
    std::vector<Stmt> body = chunks.body->stmts;
    body.back() = std::move(rows);
    chunks.body = make_block(std::move(body));
    return chunks;
  }

  // What the first loop does for the row that the variable of the sums names.
  std::optional<std::vector<Stmt>> row_of(const For& first, const ChunkedReduction& sums) {
    if (first.kind != ForKind::kParallel || first.reduction || as_const_int(first.begin) != 0)
      return std::nullopt;
    const Expr row = make_var(sums.rows->var);
    if (provably_equal(first.end, sums.count)) return substitute(first.body, {{first.var, row}})->stmts;
    // The first loop may run over all elements, tiled for the threads. A row of it is recovered.
    const auto* columns = last_vector_loop(sums.rows->body->stmts);
    const auto* elements = first.body->stmts.size() == 1 ? std::get_if<For>(&first.body->stmts[0]) : nullptr;
    if (!columns || !elements || elements->kind != ForKind::kVector || elements->reduction)
      return std::nullopt;
    const Expr all = tiled_extent(first, *elements);
    if (!all || !provably_equal(all, columns->end * sums.count)) return std::nullopt;
    For along = *columns;
    along.var = names_.fresh(columns->var);
    along.lanes = elements->lanes;
    along.unroll = elements->unroll;
    ranges_[along.var] = {along.begin, along.end};
    along.body = substitute(elements->body, {{elements->var, row * columns->end + make_var(along.var)}});
    return std::vector<Stmt>{std::move(along)};
  }

  static const For* last_vector_loop(const std::vector<Stmt>& stmts) {
    const auto* loop = stmts.empty() ? nullptr : std::get_if<For>(&stmts.back());
    return loop && loop->kind == ForKind::kVector && !loop->reduction && as_const_int(loop->begin) == 0
               ? loop
               : nullptr;
  }

  // Whether the sums are in scratch memory, and read only elements of the same row of what `row` stores.
  bool is_row_local(const std::vector<Stmt>& row, const ChunkedReduction& sums) const {
    std::set<std::string> stored, read;
    std::vector<std::pair<std::string, Expr>> places;
    const auto add_store = [&](const Stmt& stmt) {
      if (const auto* store = std::get_if<Store>(&stmt)) {
        stored.insert(store->buffer);
        places.emplace_back(store->buffer, store->index);
      }
    };
    visit(make_block(row), add_store, nullptr);
    bool to_scratch = true;
    const auto check_store = [&](const Stmt& stmt) {
      const auto* store = std::get_if<Store>(&stmt);
      to_scratch &= !store || scratch_.count(store->buffer) > 0;
    };
    const auto add_load = [&](const ExprNode& e) {
      if (!e.is(ExprKind::kLoad) || stored.count(e.name) == 0) return;
      read.insert(e.name);
      places.emplace_back(e.name, e.args[0]);
    };
    visit(sums.chunks->body, check_store, add_load);
    if (!to_scratch) return false;
    std::map<std::string, Expr> row_stride;  // for each buffer, the distance between rows
    for (const auto& [buffer, index] : places)
      if (read.count(buffer) > 0 && !lies_in_row(index, sums.rows->var, row_stride[buffer])) return false;
    return true;
  }

  bool lies_in_row(const Expr& index, const std::string& row, Expr& row_stride) const {
    const auto split = affine(index, {row});
    if (!split || split->coefficients.count(row) == 0) return false;
    const Expr stride = simplify(split->coefficients.at(row));
    if (!row_stride) row_stride = stride;
    return provably_equal(row_stride, stride) && provably_less(index_const(-1), split->rest, ranges_) &&
           provably_less(split->rest, row_stride, ranges_);
  }

  // Fuses the sums' loop over the columns into the last loop of the row. What that loop has loaded or stored
  // is not loaded again.
  static void fuse_columns(std::vector<Stmt>& row, std::vector<Stmt>& summed) {
    const For *last = last_vector_loop(row), *sums = last_vector_loop(summed);
    if (!last || !sums || summed.size() != 1 || !provably_equal(last->end, sums->end)) return;
    std::vector<Known> known;
    std::set<std::string> stored;
    if (!collect_stores(last->body, known, stored)) return;
    std::set<std::string> changed;
    visit(
        make_block(row),
        [&](const Stmt& stmt) {
          if (const auto* store = std::get_if<Store>(&stmt)) changed.insert(store->buffer);
        },
        nullptr);
    for (const Block& block : {make_block(row), last->body})
      for (const Stmt& stmt : block->stmts)
        if (const auto* let = std::get_if<Let>(&stmt);
            let && is_plain_load(*let->value) && changed.count(let->value->name) == 0)
          known.push_back({let->value->name, let->value->args[0], make_var(let->name, let->value->type)});

    For both = *last;
    std::vector<Stmt> body = last->body->stmts;
    bool reads_elsewhere = false;
    const Block moved =
        transform(substitute(sums->body, {{sums->var, make_var(last->var)}}), [&](const Expr& e) {
          if (!e->is(ExprKind::kLoad)) return e;
          for (const Known& k : known)
            if (k.buffer == e->name && is_plain_load(*e) && equal(k.index, e->args[0])) return k.value;
          reads_elsewhere |= stored.count(e->name) > 0;
          return e;
        });
    if (reads_elsewhere) return;
    body.insert(body.end(), moved->stmts.begin(), moved->stmts.end());
    both.body = make_block(std::move(body));
    row.back() = std::move(both);
    summed.clear();
  }

  struct Known {  // the value that a buffer holds at an index
    std::string buffer;
    Expr index, value;
  };

  static bool is_plain_load(const ExprNode& e) { return e.is(ExprKind::kLoad) && e.args.size() == 1; }

  // Returns false if a place is stored more than once or under a condition.
  static bool collect_stores(const Block& body, std::vector<Known>& known, std::set<std::string>& stored) {
    bool once = true;
    for (const Stmt& stmt : body->stmts) {
      const auto* store = std::get_if<Store>(&stmt);
      if (!store) {
        once &= std::holds_alternative<Let>(stmt);
        continue;
      }
      once &= !store->mask && stored.insert(store->buffer).second;
      known.push_back({store->buffer, store->index, store->value});
    }
    return once;
  }

  const Target& target_;
  Ranges ranges_;
  std::set<std::string> scratch_;  // allocated directly before the current loop
  Names names_;
};

}  // namespace

Function fuse_loops(const Function& f, const Target& target) {
  Function out = f;
  out.body = LoopFuser(f, target).run(f.body);
  return out;
}

}  // namespace ipex::loop
