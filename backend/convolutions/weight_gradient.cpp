// The gradient of a convolution's weights: matrix products of the gradient of its results and its input, both
// with large strides between positions. Each thread packs chunks of positions, so that both operands are
// contiguous, and multiplies them itself.
//
//   for parallel share of the positions, group of panels {
//     for chunk { for position { parts[plane, panel, position, ..] = x; grads[.., position, ..] = grad }
//                 for plane, panel { for rows { for position reduce(tile) {..}; sums[share] += tile } } }
//   }
//   w = sum of sums over shares
//
// A plane is a tap of the window; all planes share `grads`. For 3 x 3 windows with stride 1, the planes may
// instead be the sixteen planes of Winograd's method: with the transformed input V and the transformed
// gradient E of a tile of 2 x 2 results, dU = sum over tiles of V^T E, and the gradient of the window is G^T
// dU G (the adjoint of winograd.h).
#include <numeric>

#include "backend/convolutions/winograd_builder.h"
#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_load;
using loop::make_var;
using loop::ScalarOp;
using loop::simplify;
using loop::Store;

namespace {

class WeightGradientLowering : WinogradBuilder {
 public:
  WeightGradientLowering(const Graph& body, const std::vector<OperandLayout>& inputs,
                         const std::vector<OperandLayout>& outputs, const loop::Target& target)
      : WinogradBuilder(body, inputs, outputs, target), grad_(inputs_[0]), x_(inputs_[1]), w_(outputs_[0]) {}

  loop::Function run(const std::string& name) {
    const WeightGradientParts work = set_sizes();
    Body body;
    const Chunks chunks = chunks_of(body);
    part_stride_ = chunks.most * panel() + kApart;
    grad_stride_ = chunks.most * lanes() + kApart;
    const std::string sums = alloc(body, "sums", index_const(shares_ * planes_ * of_plane_));
    const Expr cost =
        ceildiv(tiles_, index_const(shares_)) * index_const(planes_ * panels_of_group_ * panel() * columns_);
    parallel(body, index_const(shares_ * work.groups), cost, [&](const Expr& part, Body& each) {
      const Expr groups = index_const(work.groups);
      const Expr share = let(each, "share", floordiv(part, groups));
      multiply_share(each, share, floormod(part, groups), chunks, sums);
    });
    parallel(body, index_const(panels_ * columns_), index_const(planes_ * panel() * shares_),
             [&](const Expr& part, Body& each) { finish(each, part, sums); });
    return function(name, std::move(body));
  }

 private:
  // The chunks of positions: `size` positions each, at most `most`.
  struct Chunks {
    Expr size, all, of_share;
    int64_t most;
  };

  WeightGradientParts set_sizes() {
    winograd_ = node_.get<WeightGradient>().winograd;
    const WinogradShape shape = set_shape(x_, grad_);
    IPEX_CHECK(terms_ > 0 && columns_ > 0 && terms_ % panel() == 0 && columns_ % lanes() == 0,
               "weight_gradient: channels of x must fill panels, channels of the gradient must fill vectors");
    window_ = *as_const_int(w_.shape[3]);
    planes_ = winograd_ ? kPlanes : *as_const_int(w_.shape[2]) * window_;
    if (!winograd_) tiles_ = simplify(grad_.shape[0] * grad_.shape[2] * grad_.shape[3]);
    const WeightGradientParts work = weight_gradient_parts(shape, planes_, target_);
    shares_ = work.shares;
    panels_ = terms_ / panel();
    panels_of_group_ = work.panels;
    of_plane_ = panels_ * columns_ * panel();
    return work;
  }

  // All shares have chunks of one size.
  Chunks chunks_of(Body& out) {
    const Expr shares = index_const(shares_), one = index_const(1);
    const Expr share_size =
        let(out, "share_size", make_apply(ScalarOp::max_, {ceildiv(tiles_, shares), one}));
    const Expr size =
        let(out, "chunk_size", ceildiv(share_size, ceildiv(share_size, index_const(kMaxPositions))));
    const Expr all = let(out, "chunks", ceildiv(tiles_, size)),
               of_share = let(out, "chunks_of_share", ceildiv(all, shares));
    return {size, all, of_share, as_const_int(size).value_or(kMaxPositions)};
  }

  // Computes the sums of a share of the positions, for a group of panels.
  void multiply_share(Body& out, const Expr& share, const Expr& group, const Chunks& chunks,
                      const std::string& sums) {
    const Expr of_group = index_const(panels_of_group_), begin = let(out, "first_panel", group * of_group);
    const Groups of_terms{panel(), begin,
                          let(out, "end_panel", least(begin + of_group, index_const(panels_)))};
    const Expr own = let(out, "own_sums", share * index_const(planes_ * of_plane_));
    const int64_t grad_planes = winograd_ ? kPlanes : 1;
    const std::string parts = alloc(out, "parts", index_const(planes_ * panels_of_group_ * part_stride_)),
                      grads =
                          alloc(out, "grads", index_const(grad_planes * columns_ / lanes() * grad_stride_));
    serial(out, "plane", index_const(0), index_const(planes_), [&](const Expr& plane, Body& each) {
      const Expr from = let(each, "from", sums_at(own, plane, begin));
      clear(each, sums, (of_terms.end - begin) * index_const(columns_ * panel()), from);
    });
    const Expr first_chunk = let(out, "first_chunk", share * chunks.of_share);
    serial(out, "chunk", first_chunk, least(first_chunk + chunks.of_share, chunks.all),
           [&](const Expr& chunk, Body& each) {
             const Expr first = let(each, "first", chunk * chunks.size),
                        count = let(each, "count", least(chunks.size, tiles_ - first));
             serial(each, "position", index_const(0), count, [&](const Expr& t, Body& packing) {
               if (winograd_)
                 pack_tile(packing, t, first + t, of_terms, parts, grads);
               else
                 pack_position(packing, t, first + t, of_terms, parts, grads);
             });
             multiply(each, of_terms, count, own, parts, grads, sums);
           });
  }

  // parts[plane, panel of the group, t, lane] and grads[plane, vector, t, lane]
  Expr part_at(const Expr& plane, const Expr& of_panel, const Expr& t, const Expr& lane) const {
    return (plane * index_const(panels_of_group_) + of_panel) * index_const(part_stride_) +
           t * index_const(panel()) + lane;
  }
  Expr grad_at(const Expr& plane, const Expr& group, const Expr& t, const Expr& lane) const {
    return (plane * index_const(columns_ / lanes()) + group) * index_const(grad_stride_) +
           t * index_const(lanes()) + lane;
  }

  // The sums of a panel, [column, lane], of the share whose sums begin at `own`.
  Expr sums_at(const Expr& own, const Expr& plane, const Expr& p) const {
    return own + plane * index_const(of_plane_) + p * index_const(columns_ * panel());
  }

  // ---- Winograd's planes ----

  void pack_tile(Body& out, const Expr& t, const Expr& tile, const Groups& of_terms, const std::string& parts,
                 const std::string& grads) {
    const Place at = place_of(out, tile);
    transform_input(out, x_, at, of_terms, parts, [&](int64_t plane, const Expr& p, const Expr& lane) {
      return part_at(index_const(plane), p - of_terms.begin, t, lane);
    });
    const auto exists = existing(out, at, grad_);
    serial(out, "group", index_const(0), index_const(columns_ / lanes()),
           [&](const Expr& group, Body& of_group) {
             vectors(of_group, "lane", index_const(lanes()), [&](const Expr& lane, Body& inner) {
               const Expr column = group * index_const(lanes()) + lane;
               std::array<ExprRow<kOut>, kTile> e;
               for (int64_t q = 0; q < kOut; ++q) {
                 ExprRow<kOut> y;
                 for (int64_t r = 0; r < kOut; ++r) {
                   const Expr from = position(grad_, {at.image, column, simplify(at.row + index_const(r)),
                                                      simplify(at.column + index_const(q))});
                   y[r] = let(inner, "y", make_load(grad_.buffer, grad_.dtype, from, exists[r][q]));
                 }
                 const ExprRow<kTile> once = output_row_back(y);
                 for (int64_t r = 0; r < kTile; ++r) e[r][q] = let(inner, "e", once[r]);
               }
               for (int64_t r = 0; r < kTile; ++r) {
                 const ExprRow<kTile> twice = output_row_back(e[r]);
                 for (int64_t q = 0; q < kTile; ++q)
                   store(inner, grads, grad_at(index_const(r * kTile + q), group, t, lane), twice[q]);
               }
             });
           });
  }

  // ---- one plane a tap ----

  void pack_position(Body& out, const Expr& t, const Expr& at, const Groups& of_terms,
                     const std::string& parts, const std::string& grads) {
    const auto& gradient = node_.get<WeightGradient>();
    const Ints &stride = gradient.stride, &padding = gradient.padding;
    const Expr columns = grad_.shape[3],
               of_image = index_const(*as_const_int(columns) * *as_const_int(grad_.shape[2]));
    const Expr which = let(out, "number", at), in_image = let(out, "in_image", floormod(which, of_image));
    const Expr image = let(out, "image", floordiv(which, of_image)),
               row = let(out, "row", floordiv(in_image, columns)),
               column = let(out, "column", floormod(in_image, columns));
    serial(out, "group", index_const(0), index_const(columns_ / lanes()), [&](const Expr& group, Body& body) {
      vectors(body, "lane", index_const(lanes()), [&](const Expr& lane, Body& inner) {
        const Expr from = position(grad_, {image, group * index_const(lanes()) + lane, row, column});
        store(inner, grads, grad_at(index_const(0), group, t, lane),
              make_load(grad_.buffer, grad_.dtype, from));
      });
    });
    serial(out, "plane", index_const(0), index_const(planes_), [&](const Expr& plane, Body& body) {
      const Expr y = let(body, "y",
                         row * index_const(stride[0]) + floordiv(plane, index_const(window_)) -
                             index_const(padding[0])),
                 x = let(body, "x",
                         column * index_const(stride[1]) + floormod(plane, index_const(window_)) -
                             index_const(padding[1]));
      const auto copy = [&](bool inside) {
        Body copied;
        serial(copied, "panel", of_terms.begin, of_terms.end, [&](const Expr& p, Body& of_panel) {
          vectors(of_panel, "lane", index_const(panel()), [&](const Expr& lane, Body& inner) {
            const Expr from = position(x_, {image, p * index_const(panel()) + lane, y, x});
            store(inner, parts, part_at(plane, p - of_terms.begin, t, lane),
                  inside ? make_load(x_.buffer, x_.dtype, from) : number(0));
          });
        });
        return copied;
      };
      if (padding[0] == 0 && padding[1] == 0) {
        for (loop::Stmt& stmt : copy(true)) body.push_back(std::move(stmt));
        return;
      }
      const auto within = [&](const Expr& at, const Dim& extent) {
        return both(make_apply(ScalarOp::ge_, {at, index_const(0)}), make_apply(ScalarOp::lt_, {at, extent}));
      };
      body.push_back(loop::If{both(within(y, x_.shape[2]), within(x, x_.shape[3])),
                              loop::make_block(copy(true)), loop::make_block(copy(false))});
    });
  }

  // ---- products ----

  // sums[plane, panel, column, lane] += grads[plane, column, t] * parts[plane, panel, t, lane]
  void multiply(Body& out, const Groups& of_terms, const Expr& count, const Expr& own,
                const std::string& parts, const std::string& grads, const std::string& sums) {
    serial(out, "plane", index_const(0), index_const(planes_), [&](const Expr& plane, Body& of_plane) {
      serial(of_plane, "panel", of_terms.begin, of_terms.end, [&](const Expr& p, Body& of_panel) {
        const Expr by = let(of_panel, "by",
                            part_at(plane, p - of_terms.begin, index_const(0), index_const(0))),
                   to = let(of_panel, "to", sums_at(own, plane, p));
        multiply_panel(of_panel, plane, count, by, to, parts, grads, sums);
      });
    });
  }

  // Half a vector of rows leaves no remainder and needs one address for all rows. With AVX-512's 32 registers
  // this is as fast as the largest tile, with 16 registers it is 5 % slower.
  int64_t rows_of_tile() const { return target_.gradient_tile_rows; }

  void multiply_panel(Body& out, const Expr& plane, const Expr& count, const Expr& by, const Expr& to,
                      const std::string& parts, const std::string& grads, const std::string& sums) {
    const Expr none = index_const(0), in_group = index_const(lanes());
    const int64_t rows = rows_of_tile(), side_by_side = std::gcd(rows, lanes());
    const auto tile = [&](Body& body, const Expr& first, int64_t tile_rows) {
      loop::ProductTile product{.k = {.var = names_.fresh("t")}};
      product.k.begin = none;
      product.k.end = count;
      const Expr t = make_var(product.k.var);
      for (int64_t r = 0; r < tile_rows; r += side_by_side) {
        const Expr row = simplify(first + index_const(r));
        const Expr from =
            let(body, "a_rows",
                grad_at(winograd_ ? plane : none, floordiv(row, in_group), none, floormod(row, in_group)));
        for (int64_t next = 0; next < side_by_side; ++next)
          product.a.push_back(load(grads, from + t * in_group + index_const(next)));
      }
      for (int64_t v = 0; v < loop::kTileVectors; ++v)
        product.b.push_back(make_load(parts, dtype_, vector_at(by + t * index_const(panel()), v)));
      const std::vector<Expr> results = loop::multiply(product, names_, body);
      const Expr first_sum = let(body, "first_sum", to + first * index_const(panel()));
      for (int64_t i = 0; i < std::ssize(results); ++i) {
        const Expr sum = vector_at(first_sum, i);
        body.push_back(
            Store{sums, sum, apply(ScalarOp::add_, make_load(sums, dtype_, sum), results[i]), nullptr});
      }
    };
    serial(out, "rows", none, index_const(columns_ / rows), [&](const Expr& at, Body& body) {
      tile(body, let(body, "first_row", at * index_const(rows)), rows);
    });
    if (columns_ % rows != 0) tile(out, index_const(columns_ / rows * rows), columns_ % rows);
  }

  // Stores the gradient of the windows of one column and a panel of terms.
  void finish(Body& out, const Expr& part, const std::string& sums) {
    const Expr p = let(out, "panel", floordiv(part, index_const(columns_))),
               column = let(out, "column", floormod(part, index_const(columns_)));
    if (shares_ > 1)
      serial(out, "plane", index_const(0), index_const(planes_), [&](const Expr& plane, Body& body) {
        const Expr at = let(body, "at", plane * index_const(of_plane_) + part * index_const(panel()));
        vectors(body, "lane", index_const(panel()), [&](const Expr& lane, Body& inner) {
          store(inner, sums, at + lane,
                reduce(inner, "share", index_const(shares_), ScalarOp::add_, number(0),
                       [&](const Expr& share, Body&) {
                         return load(sums, share * index_const(planes_ * of_plane_) + at + lane);
                       }));
        });
      });
    vectors(out, "lane", index_const(panel()), [&](const Expr& lane, Body& inner) {
      const auto sum = [&](int64_t plane) {
        return load(sums, index_const(plane * of_plane_) + part * index_const(panel()) + lane);
      };
      const auto put = [&](int64_t r, int64_t q, const Expr& value) {
        const Expr term = p * index_const(panel()) + lane;
        store(inner, w_.buffer, position(w_, {column, term, index_const(r), index_const(q)}), value);
      };
      if (!winograd_) {
        for (int64_t plane = 0; plane < planes_; ++plane) put(plane / window_, plane % window_, sum(plane));
        return;
      }
      std::array<ExprRow<kTile>, kWindow> once;
      for (int64_t q = 0; q < kTile; ++q) {
        ExprRow<kTile> u;
        for (int64_t r = 0; r < kTile; ++r) u[r] = let(inner, "u", sum(r * kTile + q));
        const ExprRow<kWindow> g = filter_row_back(u);
        for (int64_t r = 0; r < kWindow; ++r) once[r][q] = let(inner, "g", g[r]);
      }
      for (int64_t r = 0; r < kWindow; ++r) {
        const ExprRow<kWindow> g = filter_row_back(once[r]);
        for (int64_t q = 0; q < kWindow; ++q) put(r, q, g[q]);
      }
    });
  }

  const Tensor &grad_, &x_, &w_;
  bool winograd_ = false;
  int64_t planes_ = 0, window_ = 0;  // window_: taps in a row
  int64_t shares_ = 1;
  int64_t panels_ = 0, panels_of_group_ = 0;   // of terms
  int64_t part_stride_ = 0, grad_stride_ = 0;  // elements from one panel or vector to the next
  int64_t of_plane_ = 0;                       // sums per plane
};

}  // namespace

loop::Function lower_weight_gradient(const Graph& body, const std::vector<OperandLayout>& inputs,
                                     const std::vector<OperandLayout>& outputs, const std::string& name,
                                     const loop::Target& target) {
  return WeightGradientLowering(body, inputs, outputs, target).run(name);
}

}  // namespace ipex::graph
