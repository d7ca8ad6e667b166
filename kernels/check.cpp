// The step of aten::_assert_async; see check.h.
#include "kernels/check.h"

#include <nlohmann/json.hpp>

#include "kernels/step_fields.h"
#include "runtime/error.h"

namespace ipex::kernels {
namespace {

class CheckStep final : public Step {
 public:
  explicit CheckStep(const CheckDesc& desc) : desc_(desc) {
    info.kind = StepKind::kLibrary;
    info.name = "check";
    info.detail = desc.message;
    text = to_line("check", desc);
    reads = {desc.condition.buffer};
  }

  void run(RunContext& context) const override {
    if (!*static_cast<const bool*>(context.view(desc_.condition).data)) throw CheckError(desc_.message);
  }

 private:
  CheckDesc desc_;
};

}  // namespace

std::string check_message(const std::string& args) { return nlohmann::json::parse(args).at(1); }

std::unique_ptr<Step> make_check(const CheckDesc& desc) { return std::make_unique<CheckStep>(desc); }

}  // namespace ipex::kernels
