// Library steps by what they compute: nodes that are alike are planned once, and asking whether the library
// has a good implementation costs nothing when the step is made later.
#pragma once

#include <map>
#include <string>

#include "kernels/library.h"

namespace ipex::kernels {

// For MatMulDesc, ConvDesc, ConvBackwardDesc and LstmDesc. Of one compilation, on one thread.
class LibraryPlans {
 public:
  // Why the library does not compute this; empty: it has an implementation better than its reference one.
  // Equal buffers in `desc` stand for operands that share memory; which buffers they are does not matter.
  template <class Desc>
  const std::string& refusal(const Desc& desc) {
    return find(desc).refusal;
  }
  // As the makers of library.h; Unsupported where there is a refusal.
  template <class Desc>
  LibrarySteps make(const Desc& desc, int packed_buffer);

 private:
  struct Entry {
    LibrarySteps steps;  // over buffers numbered in the order in which the description names them
    std::string refusal;
  };
  template <class Desc>
  const Entry& find(Desc desc);

  std::map<std::string, Entry> entries_;  // by the text of a description
};

}  // namespace ipex::kernels
