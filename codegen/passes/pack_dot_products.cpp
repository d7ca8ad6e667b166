// pack_dot_products: packed bf16 dot products. A sum of products of bf16 along contiguous memory multiplies
// two elements at once.
//
//   in a: bf16[M*K], in b: bf16[K]
//   for k in 0..K reduce(s) {} yield(s + cast.f32(a[i*K + k])*cast.f32(b[k]))
//     =>  in a: f32[M*K/2], in b: f32[K/2]
//         for k in 0..K/2 reduce(s) {} yield(dot_bf16(a[i*(K/2) + k], b[k], s))
//
// If the elements are not contiguous, the yield becomes fma(cast.f32(a[..]), cast.f32(b[..]), s). The value
// is the same, because products of bf16 or f16 are exact in f32 unless they underflow.
//
// Converting a vector of 16 weights to f32 takes a load, a shuffle and a shift before the multiplication.
// With pairs, one instruction loads and multiplies 32 weights (vdpbf16ps), or a shift and a mask convert them
// on a CPU without it. A product of one row streams its weights: Zen 4 reads 35 GB/s from the caches without
// packing.
#include "codegen/analyses/loop_nest.h"
#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

Expr halved(const Expr& e) { return simplify(floordiv(e, index_const(2))); }

// A load of bf16 that is contiguous along the loop and starts at an even position, where a pair begins.
struct PackedLoad {
  std::string buffer;
  Expr begin;
};

struct Product {
  PackedLoad a, b;
  std::map<std::string, int> loads;  // for each buffer, in the loop that sums the product
};

class DotPacker {
 public:
  explicit DotPacker(const Function& f) : f_(f) {}

  Function run() {
    find();
    drop_shared_buffers();
    Function out = f_;
    for (Buffer& buffer : out.buffers)
      if (uses_.count(buffer.name) > 0) declare_packed(buffer);
    out.body = transform_stmts(f_.body, [&](Stmt stmt) -> std::vector<Stmt> {
      auto* loop = std::get_if<For>(&stmt);
      if (loop && loop->reduction) rewrite(*loop);
      return {std::move(stmt)};
    });
    return out;
  }

 private:
  void find() {
    std::set<std::string> inputs;
    for (const Buffer& buffer : f_.buffers)
      if (buffer.access == Access::kIn && buffer.dtype == Dtype::kBF16 && provably_even(buffer.extent))
        inputs.insert(buffer.name);
    const auto stmt = [&](const Stmt& s) {
      if (const auto* loop = std::get_if<For>(&s)) match(*loop, inputs);
    };
    visit(f_.body, stmt, nullptr);
    loads_ = count_loads(f_.body);
  }

  void match(const For& loop, const std::set<std::string>& inputs) {
    const std::optional<Factors> factors = summed_factors(loop);
    if (!factors || loop.kind != ForKind::kSerial || !provably_even(loop.begin) || !provably_even(loop.end))
      return;
    const auto packed = [&](const Expr& factor) -> std::optional<PackedLoad> {
      if (!is_widened(factor)) return std::nullopt;
      const Expr& load = factor->args[0];
      if (!load->is(ExprKind::kLoad) || load->args.size() != 1 || inputs.count(load->name) == 0 ||
          ipex::loop::loads(load->args[0]) || LoopTree::constant_stride(load->args[0], loop.var) != 1)
        return std::nullopt;
      const Expr begin = substitute(load->args[0], {{loop.var, index_const(0)}});
      return provably_even(begin) ? std::optional(PackedLoad{load->name, halved(begin)}) : std::nullopt;
    };
    const std::optional<PackedLoad> a = packed(factors->a), b = packed(factors->b);
    if (!a || !b) return;
    Product product{*a, *b, count_loads(make_block({loop}))};
    if (product.loads.size() == (a->buffer == b->buffer ? 1 : 2)) products_[loop.var] = std::move(product);
  }

  // A buffer holds either pairs or single elements. Drops the products whose buffers are read elsewhere too.
  void drop_shared_buffers() {
    for (bool dropped = true; dropped;) {
      uses_.clear();
      for (const auto& [loop, product] : products_)
        for (const auto& [buffer, loads] : product.loads) uses_[buffer] += loads;
      dropped =
          std::erase_if(products_, [&](const auto& item) {
            const auto shared = [&](const PackedLoad& p) { return uses_[p.buffer] != loads_[p.buffer]; };
            return shared(item.second.a) || shared(item.second.b);
          }) > 0;
    }
  }

  void rewrite(For& loop) const {
    const std::optional<Factors> factors = summed_factors(loop);
    if (!factors || !is_widened(factors->a) || !is_widened(factors->b)) return;
    const State& s = loop.reduction->states[0];
    const Expr sum = make_var(s.name, s.type);
    loop.body = make_block({});
    const auto product = products_.find(loop.var);
    if (product == products_.end()) {
      loop.reduction->yield = {make_apply(ScalarOp::fma_, {factors->a, factors->b, sum})};
      return;
    }
    const auto load = [&](const PackedLoad& p) {
      return make_load(p.buffer, Dtype::kF32, simplify(p.begin + make_var(loop.var)));
    };
    loop.begin = halved(loop.begin);
    loop.end = halved(loop.end);
    loop.reduction->yield = {
        make_apply(ScalarOp::dot_bf16_, {load(product->second.a), load(product->second.b), sum})};
  }

  static bool is_widened(const Expr& e) {
    return e->is(ExprKind::kCast) && e->type == Type{Dtype::kF32} && is_half(e->args[0]->type.dtype);
  }

  const Function& f_;
  std::map<std::string, Product> products_;  // by the variable of the loop
  std::map<std::string, int> loads_, uses_;  // in the whole function, and in the products
};

}  // namespace

Function pack_dot_products(const Function& f) { return DotPacker(f).run(); }

}  // namespace ipex::loop
