// Programs as text: every kind of step survives, damaged text is refused with a place.
#include "runtime/error.h"
#include "tests/cpp/graph_fixture.h"
#include "tests/cpp/program_fixture.h"

namespace ipex::test {
namespace {

CompiledGraph compiled(const std::string& text) {
  CompileOptions options;
  options.target = loop::current_target();
  return compile(graph::parse(text), options);
}

std::string text_of(const CompiledGraph& c) {
  const Executable::Parts& parts = c.executable->parts();
  return print_program(*interface_of(parts), parts, constant_members(parts));
}

const char* const kMatMul = R"(graph main(%x: f32[8,72], %w: f32[72,64] static, %b: f32[64]) {
    %0 = matmul(%x, %w, %b) bias=true post=["relu"] : f32[8,64]   # model.py:5 linear
    %1 = pointwise.exp(%0) : f32[8,64]
    return %1
  })";

TEST(Program, NamesStepsAndSources) {
  const std::string text = text_of(compiled(kMatMul));
  for (const char* part :
       {"ipex.program version=2 symbols=0", "input name=\"input1\" member=\"weights/input1\"",
        "\nonednn.matmul dst=%", "post=[{name=\"relu\"", "pack=true", "\nkernel name=\"k0_exp\"",
        "sources=[\"model.py:5 linear\"]"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Program, PackedWeightsAreMadeByTheReader) {
  const CompiledGraph c = compiled(kMatMul);
  const auto again = through_text(c);
  ASSERT_EQ(again->parts().steps.size(), c.executable->parts().steps.size());
  for (size_t s = 0; s < again->parts().steps.size(); ++s) {
    EXPECT_EQ(again->parts().steps[s]->info.name, c.executable->parts().steps[s]->info.name);
    EXPECT_EQ(again->parts().steps[s]->info.detail, c.executable->parts().steps[s]->info.detail);
    EXPECT_EQ(again->parts().hoisted[s], c.executable->parts().hoisted[s]);
  }
  EXPECT_EQ(again->plan({}).arena_bytes, c.executable->plan({}).arena_bytes);
}

TEST(Program, EveryKindOfStep) {
  for (const char* text : {
           R"(graph main(%x: f32[1,3,8,8], %w: f32[4,3,3,3] static) {
    %0 = conv(%x, %w) stride=[1,1] padding=[1,1] dilation=[1,1] output_padding=[0,0] groups=1 transposed=false bias=false : f32[1,4,8,8]
    return %0
  })",
           R"(graph main(%g: f32[1,4,8,8], %x: f32[1,3,8,8], %w: f32[4,3,3,3]) {
    %0 = conv_backward(%g, %x, %w) which="weights" stride=[1,1] padding=[1,1] dilation=[1,1] output_padding=[0,0] groups=1 transposed=false : f32[4,3,3,3]
    return %0
  })",
           R"(graph main(%x: f32[5,7]) {
    %0, %0.1 = sort.top(%x) axis=1 descending=true ordered=true : f32[5,3], i64[5,3]
    return %0, %0.1
  })",
           R"(graph main(%s: f32[9], %v: f32[4]) {
    %0 = search(%s, %v) right=true : i64[4]
    return %0
  })"})
    through_text(compiled(text));
}

TEST(Program, OneKernelOverATableOfTensors) {
  const CompiledGraph c = compiled(R"(graph main(%x: f32[4,6], %y: f32[7]) {
    %0 = pointwise.exp(%x) : f32[4,6]
    %1 = pointwise.exp(%y) : f32[7]
    return %0, %1
  })");
  EXPECT_NE(text_of(c).find("\nbatch name="), std::string::npos) << text_of(c);
  const std::vector<float> x = ramp(24), y = ramp(7);
  std::vector<float> a(24), b(7);
  const void* inputs[] = {x.data(), y.data()};
  void* outputs[] = {a.data(), b.data()};
  through_text(c)->run({const_cast<void* const*>(inputs), 2}, outputs, {}, {});
  for (size_t i = 0; i < 24; ++i) EXPECT_NEAR(a[i], std::exp(x[i]), 1e-5 * std::exp(x[i]));
  for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(b[i], std::exp(y[i]), 1e-5 * std::exp(y[i]));
}

// Which values of two graphs are one, a loaded graph knows as the compiled one did; an artifact has no use
// for it.
TEST(Program, HoistedKernelsKeepTheirRecipe) {
  const char* const source = R"(graph main(%x: f32[8,72], %w: f32[72,64] static) {
    %0 = pointwise.exp(%w) : f32[72,64]
    %1 = matmul(%x, %0) bias=false post=[] : f32[8,64]
    return %1
  })";
  const auto recipes = [](const Executable::Parts& parts) {
    std::vector<std::string> all;
    for (size_t s = 0; s < parts.steps.size(); ++s)
      if (parts.hoisted[s]) all.push_back(parts.steps[s]->recipe);
    return all;
  };
  const CompiledGraph c = compiled(source);
  const std::vector<std::string> before = recipes(c.executable->parts());
  ASSERT_FALSE(before.empty());
  for (const std::string& recipe : before) EXPECT_FALSE(recipe.empty());
  EXPECT_EQ(recipes(parse_program(text_of(c), kernels::read_step, c.kernels).parts), before);
}

TEST(Program, DamageIsNamedWithItsPlace) {
  const CompiledGraph c = compiled(kMatMul);
  const std::string good = text_of(c);
  const auto message_of = [](const CompiledGraph& graph, const std::string& from, const std::string& to) {
    std::string text = text_of(graph);
    text.replace(text.find(from), from.size(), to);
    try {
      parse_program(text, kernels::read_step, graph.kernels);
    } catch (const ParseError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto message = [&](const std::string& from, const std::string& to) {
    return message_of(c, from, to);
  };
  EXPECT_NE(message("version=2", "version=9").find("has version 9"), std::string::npos);
  EXPECT_NE(message("buffers=", "buffers=1").find("buffers come before steps"), std::string::npos);
  EXPECT_NE(message("kind=\"input\"", "kind=\"inbut\"").find("program:2:"), std::string::npos);
  EXPECT_NE(message("onednn.matmul", "onednn.matmal").find("unknown step 'onednn.matmal'"),
            std::string::npos);
  EXPECT_NE(message("dst=%", "dst=%9999").find("does not exist"), std::string::npos);
  EXPECT_NE(message("dst=%", "dist=%").find("expected 'dst='"), std::string::npos);
  // Not the weight of a product: whether that is packed, by a hoisted step, is for oneDNN to say.
  const CompiledGraph hoisted = compiled(R"(graph main(%x: f32[8,72], %w: f32[72,64] static) {
    %0 = pointwise.exp(%w) : f32[72,64]
    %1 = matmul(%x, %0) bias=false post=[] : f32[8,64]
    return %1
  })");
  EXPECT_NE(message_of(hoisted, "member=\"weights/input1\" ", "").find("a buffer that changes between calls"),
            std::string::npos);
  EXPECT_NE(message("name=\"relu\"", "name=\"add\"").find("contradicts itself (post)"), std::string::npos);
  EXPECT_THROW(parse_program("", kernels::read_step, nullptr), ParseError);
  EXPECT_THROW(parse_program("# text", kernels::read_step, nullptr), ParseError);
  for (size_t end = 1; end < good.size(); ++end)
    EXPECT_THROW(parse_program(good.substr(0, end), kernels::read_step, c.kernels), ParseError) << end;
}

TEST(Program, SizesAreReadAsTheyAreWritten) {
  const std::string line =
      "word size=(s0 -3 + 4 * s1 % 7 < 2 >) text=\"a \\\"b\\\\ \\x0a\" list=[1,-2] number=1.5";
  struct Values {
    SizeExpr size = 0;
    std::string text;
    std::vector<int64_t> list;
    float number = 0;
  } v;
  FieldReader reader(line, "here", {.buffers = 1, .symbols = 2});
  reader("size", v.size);
  reader("text", v.text);
  reader("list", v.list);
  reader("number", v.number);
  reader.finish();
  const int64_t symbols[] = {10, 5};
  EXPECT_EQ(v.size.eval(symbols), 3);
  EXPECT_EQ(v.text, "a \"b\\ \n");
  FieldWriter writer("word");
  writer("size", v.size);
  writer("text", v.text);
  writer("list", v.list);
  writer("number", v.number);
  EXPECT_EQ(writer.text(), line);
  for (const char* bad : {"w size=(s2)", "w size=(+)", "w size=(1 2)", "w size=()", "w size=", "w size=(1",
                          "w size=99999999999999999999"}) {
    FieldReader r(bad, "here", {.buffers = 1, .symbols = 2});
    EXPECT_THROW(r("size", v.size), ParseError) << bad;
  }
}

}  // namespace
}  // namespace ipex::test
