// The gradient of the weights: the adjoint of the method, in the same sixteen planes. With the transformed
// input V and gradient E of a tile, dU = sum over tiles of V^T E, and the window's gradient is G^T dU G.
//
// Tiles are many and the sums of all planes are large, so they go in chunks: all threads transform a chunk's
// tiles, then share out planes and panels of columns.
#include "backend/lower/winograd_builder.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_load;
using loop::make_ramp;
using loop::make_var;
using loop::ScalarOp;
using loop::simplify;
using loop::Store;

namespace {

class WinogradGradient : WinogradBuilder {
 public:
  WinogradGradient(const Graph& body, const std::vector<OperandLayout>& inputs,
                   const std::vector<OperandLayout>& outputs, const loop::Target& target)
      : WinogradBuilder(body, inputs, outputs, target), grad_(inputs_[0]), x_(inputs_[1]), w_(outputs_[0]) {}

  loop::Function run(const std::string& name) {
    chunk_ = winograd_chunk(set_shape(x_, grad_), target_);
    panels_ = columns_ / panel();
    input_plane_ = chunk_ * terms_ + kApart;
    grad_plane_ = chunk_ * columns_ + kApart;
    const Expr size = index_const(chunk_);
    Body body;
    const std::string sums = alloc(body, "sums", index_const(kPlanes * terms_ * columns_)),
                      parts = alloc(body, "parts", index_const(kPlanes * input_plane_)),
                      grads = alloc(body, "grads", index_const(kPlanes * grad_plane_));
    parallel(body, index_const(kPlanes * panels_), index_const(terms_ * panel()),
             [&](const Expr& part, Body& each) {
               vectors(each, "cleared", index_const(terms_ * panel()), [&](const Expr& at, Body& lanes) {
                 store(lanes, sums, part * index_const(terms_ * panel()) + at, number(0));
               });
             });
    serial(body, "chunk", index_const(0), ceildiv(tiles_, size), [&](const Expr& chunk, Body& inner) {
      const Expr first = let(inner, "first_tile", chunk * size),
                 count = let(inner, "tile_count", least(size, tiles_ - first));
      parallel(inner, count, index_const(kPlanes * (terms_ + columns_)), [&](const Expr& tile, Body& each) {
        transform_input(each, x_, tile, first + tile, parts);
        transform_gradient(each, tile, first + tile, grads);
      });
      parallel(inner, index_const(kPlanes * panels_), index_const(chunk_ * terms_ * panel()),
               [&](const Expr& part, Body& each) { multiply(each, part, count, parts, grads, sums); });
    });
    parallel(body, index_const(panels_ * terms_), index_const(kPlanes * panel()),
             [&](const Expr& part, Body& each) { finish(each, part, sums); });
    return function(name, std::move(body));
  }

 private:
  // grads[plane, panel, row, lane]
  void transform_gradient(Body& out, const Expr& row, const Expr& tile, const std::string& grads) {
    const Place at = place_of(out, tile);
    const ExprRow<kOut> exists = seconds_of(out, at, grad_);
    const auto transform = [&](bool at_edge) {
      Body body;
      serial(body, "panel", index_const(0), index_const(panels_), [&](const Expr& p, Body& of_panel) {
        const Expr to = let(of_panel, "to", (p * index_const(chunk_) + row) * index_const(panel()));
        vectors(of_panel, "column", index_const(panel()), [&](const Expr& lane, Body& lanes) {
          const Expr column = p * index_const(panel()) + lane;
          std::array<ExprRow<kOut>, kTile> e;
          for (int64_t q = 0; q < kOut; ++q) {
            ExprRow<kOut> y;
            for (int64_t r = 0; r < kOut; ++r) {
              Expr mask;
              if (at_edge && r > 0) mask = exists[0];
              if (at_edge && q > 0) mask = mask ? both(mask, exists[1]) : exists[1];
              const Expr from = position(grad_, {at.image, column, simplify(at.row + index_const(r)),
                                                 simplify(at.column + index_const(q))});
              y[r] = let(lanes, "y", make_load(grad_.buffer, grad_.dtype, from, mask));
            }
            const ExprRow<kTile> once = output_row_back(y);
            for (int64_t r = 0; r < kTile; ++r) e[r][q] = let(lanes, "e", once[r]);
          }
          for (int64_t r = 0; r < kTile; ++r) {
            const ExprRow<kTile> twice = output_row_back(e[r]);
            for (int64_t q = 0; q < kTile; ++q)
              store(lanes, grads, index_const((r * kTile + q) * grad_plane_) + to + lane, twice[q]);
          }
        });
      });
      return body;
    };
    if (!is_even(grad_)) return branch(out, both(exists[0], exists[1]), transform(false), transform(true));
    for (loop::Stmt& stmt : transform(false)) out.push_back(std::move(stmt));
  }

  // sums[plane, panel, term, lane] += parts[plane, tile, term] * grads[plane, panel, tile, lane]
  void multiply(Body& out, const Expr& part, const Expr& count, const std::string& parts,
                const std::string& grads, const std::string& sums) {
    const Expr plane = let(out, "plane", floordiv(part, index_const(panels_))),
               p = let(out, "panel", floormod(part, index_const(panels_)));
    const Expr from = let(out, "from", plane * index_const(input_plane_)),
               by = let(out, "by", plane * index_const(grad_plane_) + p * index_const(chunk_ * panel())),
               to = let(out, "to", part * index_const(terms_ * panel()));
    const int64_t rows = loop::tile_rows(target_);
    const auto tile = [&](Body& body, const Expr& first, int64_t tile_rows) {
      loop::ProductTile product{.term = {.var = names_.fresh("tile")}};
      product.term.begin = index_const(0);
      product.term.end = count;
      const Expr term = make_var(product.term.var);
      const int width = static_cast<int>(lanes());
      const auto vector_at = [&](const Expr& at, int64_t v) {
        return make_ramp(simplify(at + index_const(v * width)), index_const(1), width);
      };
      for (int64_t r = 0; r < tile_rows; ++r)
        product.a.push_back(load(parts, from + term * index_const(terms_) + first + index_const(r)));
      for (int64_t v = 0; v < loop::kTileVectors; ++v)
        product.b.push_back(make_load(grads, dtype_, vector_at(by + term * index_const(panel()), v)));
      const std::vector<Expr> results = loop::multiply(product, names_, body);
      for (size_t i = 0; i < results.size(); ++i) {
        const auto r = static_cast<int64_t>(i) / loop::kTileVectors,
                   v = static_cast<int64_t>(i) % loop::kTileVectors;
        const Expr at = vector_at(to + (first + index_const(r)) * index_const(panel()), v);
        body.push_back(
            Store{sums, at, apply(ScalarOp::add_, make_load(sums, dtype_, at), results[i]), nullptr});
      }
    };
    serial(out, "rows", index_const(0), index_const(terms_ / rows), [&](const Expr& t, Body& body) {
      tile(body, let(body, "first_term", t * index_const(rows)), rows);
    });
    if (terms_ % rows != 0) tile(out, index_const(terms_ / rows * rows), terms_ % rows);
  }

  // The windows of one term and a panel of columns.
  void finish(Body& out, const Expr& part, const std::string& sums) {
    const Expr p = let(out, "panel", floordiv(part, index_const(terms_))),
               term = let(out, "channel", floormod(part, index_const(terms_)));
    vectors(out, "column", index_const(panel()), [&](const Expr& lane, Body& lanes) {
      std::array<ExprRow<kTile>, kWindow> once;
      for (int64_t q = 0; q < kTile; ++q) {
        ExprRow<kTile> u;
        for (int64_t r = 0; r < kTile; ++r) {
          const Expr plane = index_const((r * kTile + q) * panels_) + p;
          u[r] =
              let(lanes, "u", load(sums, (plane * index_const(terms_) + term) * index_const(panel()) + lane));
        }
        const ExprRow<kWindow> g = filter_row_back(u);
        for (int64_t r = 0; r < kWindow; ++r) once[r][q] = let(lanes, "g", g[r]);
      }
      for (int64_t r = 0; r < kWindow; ++r) {
        const ExprRow<kWindow> g = filter_row_back(once[r]);
        for (int64_t q = 0; q < kWindow; ++q)
          store(lanes, w_.buffer,
                position(w_, {p * index_const(panel()) + lane, term, index_const(r), index_const(q)}), g[q]);
      }
    });
  }

  const Tensor &grad_, &x_, &w_;
  int64_t chunk_ = 0, panels_ = 0;
  int64_t grad_plane_ = 0;  // elements of a plane of grads
};

}  // namespace

loop::Function lower_winograd_gradient(const Graph& body, const std::vector<OperandLayout>& inputs,
                                       const std::vector<OperandLayout>& outputs, const std::string& name,
                                       const loop::Target& target) {
  return WinogradGradient(body, inputs, outputs, target).run(name);
}

}  // namespace ipex::graph
