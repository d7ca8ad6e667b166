// Serialization of the descriptions of library steps (runtime/fields.h).
#pragma once

#include "kernels/check.h"
#include "kernels/library.h"
#include "kernels/sort.h"
#include "runtime/fields.h"

namespace ipex::kernels {

void fields(auto& io, PostOp& op) {
  io("name", op.name);
  io("alpha", op.alpha);
  io("beta", op.beta);
  io("operand", op.operand);
}

void fields(auto& io, MatMulDesc& d) {
  io("dst", d.dst);
  io("a", d.a);
  io("b", d.b);
  io("bias", d.bias);
  io("post", d.post);
  io("pack", d.pack_b);
}

// Common fields of ConvDesc and ConvBackwardDesc.
void geometry_fields(auto& io, auto& d) {
  io("stride", d.stride);
  io("padding", d.padding);
  io("dilation", d.dilation);
  io("output_padding", d.output_padding);
  io("groups", d.groups);
  io("transposed", d.transposed);
}

void fields(auto& io, ConvDesc& d) {
  io("dst", d.dst);
  io("x", d.x);
  io("w", d.w);
  io("bias", d.bias);
  geometry_fields(io, d);
  io("post", d.post);
  io("pack", d.pack_w);
}

void fields(auto& io, ConvBackwardDesc& d) {
  io("dst", d.dst);
  io("grad", d.grad);
  io("x", d.x);
  io("w", d.w);
  io("weights", d.weights);
  geometry_fields(io, d);
}

void fields(auto& io, LstmDesc& d) {
  io("dst", d.dst);
  io("h_last", d.h_last);
  io("c_last", d.c_last);
  io("x", d.x);
  io("h", d.h);
  io("c", d.c);
  io("w_input", d.w_input);
  io("w_hidden", d.w_hidden);
  io("bias", d.bias);
  io("reverse", d.reverse);
  io("pack", d.pack);
}

void fields(auto& io, SortDesc& d) {
  io.choice("kind", d.kind, kSortKinds);
  io("x", d.x);
  io("values", d.values);
  io("indices", d.indices);
  io("axis", d.axis);
  io("descending", d.descending);
  io("ordered", d.ordered);
  io("k", d.k);
}

void fields(auto& io, SearchDesc& d) {
  io("sorted", d.sorted);
  io("values", d.values);
  io("sorter", d.sorter);
  io("dst", d.dst);
  io("right", d.right);
}

void fields(auto& io, CheckDesc& d) {
  io("condition", d.condition);
  io("message", d.message);
}

// A description, and the buffer reserved for packed weights.
template <class Desc>
struct WithPacked {
  Desc desc;
  int packed = -1;
};
template <class Desc>
void fields(auto& io, WithPacked<Desc>& d) {
  fields(io, d.desc);
  io("packed", d.packed);
}

}  // namespace ipex::kernels
