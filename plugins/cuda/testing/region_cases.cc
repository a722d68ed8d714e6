#include "plugins/cuda/testing/region_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/parts/row_split.h"
#include "plugins/cuda/testing/part_graph.h"

namespace cotune::cuda {
namespace {

struct CaseText {
  std::string name;
  std::string text;
  bool has_functions = false;
  int row_threads = 32;  // a row in one block has so many, so that a thread has few leaves
};

// Collectives of these columns, each with the same operations: lines of a program in which # stands
// for the number of the collective. A row of -1 columns is one of R rows of 5 columns.
std::string BucketText(const std::vector<int>& columns, const char* inputs, const char* lines,
                       const char* output) {
  std::string text = "program p\n";
  std::string body;
  std::string outputs;
  for (size_t p = 0; p < columns.size(); ++p) {
    const std::string shape = columns[p] < 0 ? "[R, 5]" : fmt::format("[1, {}]", columns[p]);
    const auto of_piece = [&](std::string each) {
      for (size_t at; (at = each.find('#')) != std::string::npos;) {
        each.replace(at, 1, std::to_string(p));
      }
      for (size_t at; (at = each.find("SHAPE")) != std::string::npos;) each.replace(at, 5, shape);
      return each;
    };
    text += of_piece(inputs);
    body += of_piece(lines);
    outputs += (p == 0 ? "return " : ", ") + of_piece(output);
  }
  return text + body + outputs + "\n";
}

std::vector<CaseText> SingleTexts() {
  return {
      {"bias_relu",
       "program p\n%x = input bf16 [R, 64]\n%b = input bf16 [1, 64]\n%s = all_reduce sum %x\n"
       "%z = add %s, %b\n%y = relu %z\nreturn %y\n"},
      // Sums in pairs that outputs, elements and a ReLU read.
      {"half_sums",
       "program p\n%x = input f16 [R, 24]\n%b = input f16 [1, 24]\n%r = input f16 [R, 24]\n"
       "%s = all_reduce sum %x\n%z = add %s, %b\n%w = add %z, %r\n%y = relu %w\n"
       "%n = mul %z, 0.5\nreturn %y into %r, %n, %z\n"},
      // Operands that elements read, so that a thread has registers for all of them.
      {"scaled_and_shifted",
       "program p\n%x = input bf16 [R, 32]\n%g = input bf16 [1, 32]\n%b = input bf16 [1, 32]\n"
       "%r = input bf16 [R, 32]\n%s = all_reduce sum %x\n%a = mul %s, %g\n%c = add %a, %b\n"
       "%y = add %c, %r\nreturn %y\n"},
      {"stream_into_residual",
       "program p\n%x = input bf16 [R, 40]\n%r = input bf16 [R, 40]\n%s = all_reduce sum %x\n"
       "%y = add %s, %r\nreturn %y into %r\n"},
      {"scaled_odd_columns",
       "program p\n%x = input f32 [R, 5]\n%s = all_reduce sum %x\n%y = mul %s, 0.375\n"
       "%z = relu %y\nreturn %z, %s\n"},
      {"casts_on_both_sides",
       "program p\n%x = input bf16 [R, 16]\n%r = input bf16 [R, 16]\n%f = cast %x, to=f32\n"
       "%s = all_reduce sum %f\n%h = cast %s, to=bf16\n%y = add %h, %r\nreturn %y\n"},
      {"bias_before",
       "program p\n%x = input f16 [R, 24]\n%b = input f16 [1, 24]\n%z = add %x, %b\n"
       "%s = all_reduce sum %z\nreturn %s\n"},
      {"numbers_of_rows",
       "program p\n%x = input f32 [R, 16]\n%w = input f32 [R, 1]\n%g = input f32 [1, 1]\n"
       "%v = mul %x, %w\n%s = all_reduce sum %v\n%u = mul %w, %g\n%y = mul %s, %u\n"
       "return %s, %y\n"},
      {"integers",
       "program p\n%x = input i32 [R, 7]\n%k = input i32 [R, 7]\n%s = all_reduce sum %x\n"
       "%y = mul %s, %k\n%z = max %y, %x\nreturn %z\n"},
      {"largest",
       "program p\n%x = input bf16 [R, 8]\n%n = neg %x\n%s = all_reduce max %n\n%y = abs %s\n"
       "return %y\n"},
      {"functions",
       "program p\n%x = input f32 [R, 12]\n%s = all_reduce sum %x\n%y = gelu %s\nreturn %y\n",
       true},
      {"one_row",
       "program p\n%x = input f32 [1, 45]\n%s = all_reduce sum %x\n%y = mul %s, 0.5\nreturn %y\n"},
      {"narrow_output",
       "program p\n%x = input bf16 [R, 32]\n%q = input f32 [R, 1]\n%s = all_reduce average %x\n"
       "%f = cast %s, to=f32\n%m = mul %f, %q\n%y = cast %m, to=f8_e4m3\nreturn %y\n"},
      {"doubles",
       "program p\n%x = input f64 [R, 24]\n%b = input f64 [1, 24]\n%s = all_reduce average %x\n"
       "%z = add %s, %b\n%y = relu %z\nreturn %y, %s into %x\n"},
      {"long_integers",
       "program p\n%x = input i64 [R, 7]\n%k = input i64 [R, 7]\n%s = all_reduce sum %x\n"
       "%y = mul %s, %k\n%z = max %y, %x\nreturn %z\n"},
      {"bytes",
       "program p\n%x = input u8 [R, 13]\n%k = input u8 [R, 13]\n%s = all_reduce max %x\n"
       "%y = min %s, %k\nreturn %y\n"},
      // Both sides read what the outputs overwrite.
      {"over_all_inputs",
       "program p\n%x = input bf16 [R, 40]\n%b = input f32 [R, 40]\n%f = cast %x, to=f32\n"
       "%z = sub %f, %b\n%s = all_reduce sum %z\n%y = mul %s, %b\n%h = cast %s, to=bf16\n"
       "return %y into %b, %h into %x\n"},
      {"condition",
       "program p\n%x = input f16 [R, 16]\n%k = input u8 [R, 16]\n%s = all_reduce sum %x\n"
       "%y = where %k, %s, %x\nreturn %y into %x\n"},
  };
}

std::vector<CaseText> BucketTexts() {
  const std::vector<int> kThreeSizes = {45, 16, -1, 16, 45};
  return {
      {"bucket_copies",
       BucketText(kThreeSizes, "%x# = input bf16 SHAPE\n",
                  "%c# = cast %x#, to=bf16\n%s# = all_reduce sum %c#\n%y# = cast %s#, to=bf16\n",
                  "%y#")},
      {"bucket_scaled",
       BucketText(kThreeSizes, "%x# = input f32 SHAPE\n",
                  "%c# = cast %x#, to=f32\n%s# = all_reduce sum %c#\n%y# = mul %s#, 0.375\n",
                  "%y#")},
      {"bucket_residual",
       BucketText(kThreeSizes, "%x# = input bf16 SHAPE\n%r# = input bf16 SHAPE\n",
                  "%s# = all_reduce sum %x#\n%y# = add %s#, %r#\n", "%y# into %r#")},
      {"bucket_casts", BucketText({-1, 8, 3}, "%x# = input bf16 SHAPE\n",
                                  "%f# = cast %x#, to=f32\n%s# = all_reduce average %f#\n"
                                  "%y# = cast %s#, to=bf16\n",
                                  "%y#, %s#")},
      {"bucket_of_16",
       BucketText(std::vector<int>(16, 24), "%x# = input f32 SHAPE\n",
                  "%c# = cast %x#, to=f32\n%s# = all_reduce sum %c#\n%y# = mul %s#, 0.0625\n",
                  "%y#")},
      {"bucket_in_place", BucketText({-1, 32, 7}, "%x# = input i32 SHAPE\n",
                                     "%n# = neg %x#\n%s# = all_reduce sum %n#\n", "%s# into %x#")},
  };
}

CaseText ResidualNormText(uint32_t columns) {
  return {"residual_norm",
          fmt::format("program p\n%x = input bf16 [R, {0}]\n%r = input bf16 [R, {0}]\n"
                      "%g = input bf16 [1, {0}]\n%s = all_reduce sum %x\n%t = add %s, %r\n"
                      "%y = rms_norm %t, %g, eps=1e-6\nreturn %y, %t into %r\n",
                      columns)};
}

// Operations that reduce rows after the collective.
std::vector<CaseText> RowTexts() {
  return {
      ResidualNormText(520),
      {"row_sums_of_odd_columns",
       "program p\n%x = input f32 [R, 77]\n%w = input f32 [R, 1]\n%s = all_reduce sum %x\n"
       "%n = row_sum %s\n%v = mul %n, %w\n%y = mul %s, %v\nreturn %y, %n, %v into %w\n"},
      {"norm_and_scale",
       "program p\n%x = input f16 [R, 264]\n%g = input f16 [1, 264]\n%s = all_reduce sum %x\n"
       "%y = rms_norm %s, %g, eps=1e-5\n%c = quantize_scale %y, to=i8\n"
       "%q = quantize %y, %c, to=i8\nreturn %q, %c\n"},
      {"cast_then_largest",
       "program p\n%x = input bf16 [R, 136]\n%b = input bf16 [1, 136]\n%z = add %x, %b\n"
       "%f = cast %z, to=f32\n%s = all_reduce sum %f\n%m = row_max %s\n%y = sub %s, %m\n"
       "%h = cast %y, to=bf16\nreturn %h, %s\n"},
      {"layer_norm",
       "program p\n%x = input f32 [R, 200]\n%g = input f32 [1, 200]\n%b = input f32 [1, 200]\n"
       "%s = all_reduce average %x\n%y = layer_norm %s, %g, %b, eps=1e-5\nreturn %y into %x\n"},
      {"softmax",
       "program p\n%x = input bf16 [R, 96]\n%s = all_reduce sum %x\n%y = softmax %s\n"
       "return %y\n",
       true, 8},
      {"integer_rows",
       "program p\n%x = input i32 [R, 40]\n%s = all_reduce sum %x\n%f = cast %s, to=f64\n"
       "%n = row_sum %f\n%y = add %f, %n\n%z = cast %y, to=f32\nreturn %z, %s\n",
       false, 4},
      {"rows_of_doubles",
       "program p\n%x = input f64 [R, 72]\n%s = all_reduce sum %x\n%n = row_sum %s\n"
       "%y = mul %s, %n\nreturn %y\n",
       false, 8},
      {"two_norms_of_a_scaled_operand",
       "program p\n%x = input f16 [R, 200]\n%r = input f16 [R, 200]\n%g = input f16 [1, 200]\n"
       "%v = mul %x, 0.5\n%s = all_reduce sum %v\n%t = add %r, %s\n"
       "%u = rms_norm %t, %g, eps=1e-5\n%y = layer_norm %u, %g, %g, eps=1e-5\n"
       "return %y into %x, %t into %r, %u\n"},
      // The collective's operand alone depends on %w, of which a row has one number.
      {"numbers_of_the_operand",
       "program p\n%x = input f32 [R, 52]\n%w = input f32 [R, 1]\n%z = mul %x, %w\n"
       "%s = all_reduce sum %z\n%n = row_max %s\n%y = sub %s, %n\nreturn %y into %x, %n into %w\n",
       false, 4},
      // The owner of a row adds the replicated stream, of which receivers need nothing.
      {"split_residual_norm",
       "program p\n%x = input bf16 [R, 264]\n%r = input bf16 [R, 264] replicated\n"
       "%g = input bf16 [1, 264]\n%s = all_reduce sum %x\n%t = add %s, %r\n"
       "%y = rms_norm %t, %g, eps=1e-6\nreturn %y, %t into %r\n"},
      {"split_layer_norm_of_a_scaled_sum",
       "program p\n%x = input f32 [R, 77]\n%r = input f32 [R, 77] replicated\n"
       "%w = input f32 [R, 1]\n%s = all_reduce sum %x\n%h = mul %s, 0.5\n%t = sub %h, %r\n"
       "%n = row_sum %t\n%m = row_max %t\n%v = mul %n, %w\n%u = mul %t, %v\n"
       "%y = sub %u, %m\nreturn %y into %x, %n, %v, %t\n"},
      // The sum travels in the transport of integers, and numbers of rows in that of floats.
      {"reductions_of_cast_integers",
       "program p\n%x = input i32 [R, 40]\n%s = all_reduce sum %x\n%f = cast %s, to=f32\n"
       "%n = row_max %f\n%y = sub %f, %n\nreturn %y, %n, %s\n",
       false, 4},
      // No operation reduces rows, which are no whole leaves.
      {"bias_of_odd_columns",
       "program p\n%x = input bf16 [R, 77]\n%b = input bf16 [1, 77]\n%s = all_reduce sum %x\n"
       "%z = add %s, %b\n%y = relu %z\nreturn %y into %x, %s\n"},
      {"bias_before_odd_columns",
       "program p\n%x = input f32 [R, 21]\n%b = input f32 [1, 21]\n%z = add %x, %b\n"
       "%s = all_reduce sum %z\nreturn %s into %x\n",
       false, 8},
      {"rows_of_longs",
       "program p\n%x = input i64 [R, 40]\n%s = all_reduce sum %x\n%f = cast %s, to=f64\n"
       "%n = row_max %f\n%y = sub %f, %n\nreturn %y, %s\n",
       false, 4},
  };
}

// The collective by itself, beside ranks that run operations with it.
std::vector<CaseText> BareTexts() {
  return {
      {"bare_f32", "program p\n%x = input f32 [R, 1]\n%s = all_reduce sum %x\nreturn %s\n"},
      {"bare_bf16", "program p\n%x = input bf16 [R, 1]\n%s = all_reduce sum %x\nreturn %s\n"},
  };
}

std::vector<CaseText> CaseTexts() {
  std::vector<CaseText> texts = SingleTexts();
  for (const auto& more : {BucketTexts(), RowTexts(), BareTexts()}) {
    texts.insert(texts.end(), more.begin(), more.end());
  }
  return texts;
}

constexpr std::string_view kAlgorithms[] = {"one_shot_leaves", "two_shot_leaves"};
constexpr std::string_view kBatched = "one_shot_batched_leaves";

bool HasSpareBits(sdk::ElementType type) {
  return sdk::IsFloat(type) && type != sdk::ElementType::kF64;
}

// Several rows of a block, several warps, and clusters, in shapes that give a thread one leaf of
// these rows or more, and threads that have none.
void AddRowVariants(size_t number_of_case, int row_threads, bool splits,
                    std::vector<RegionVariant>& variants) {
  const auto add = [&](int world_size, int row_blocks, int threads_of_row, int threads) {
    for (const char* const algorithm : {"one_shot_rows", "two_shot_rows", "two_shot_split_rows"}) {
      if (!splits && std::string_view(algorithm) == "two_shot_split_rows") continue;
      variants.push_back(
          {number_of_case, algorithm, world_size, 1, threads_of_row, row_blocks, threads});
    }
  };
  add(3, 1, row_threads, 64);
  if (number_of_case % 3 != 0) add(3, 2, 32, 32);
  if (number_of_case % 2 == 0) {
    add(2, 1, 64, 64);
    add(4, 4, 32, 32);
  } else {
    add(2, 2, 64, 64);
    add(8, 1, 32, 32);
  }
}

ProgramGraph Parsed(const CaseText& text) {
  const Result<ProgramGraph> graph = ProgramGraph::Parse(text.text);
  if (!graph) {
    std::fprintf(stderr, "%s: %s\n", text.name.c_str(), graph.error().ToText().c_str());
    std::abort();
  }
  return graph->Lower();
}

}  // namespace

std::vector<RegionCase> RegionCases() {
  std::vector<RegionCase> cases;
  for (const CaseText& text : CaseTexts()) {
    cases.push_back({text.name, Parsed(text), text.has_functions});
  }
  return cases;
}

RegionCase ResidualNormCase(uint32_t columns) {
  const CaseText text = ResidualNormText(columns);
  return {text.name, Parsed(text), text.has_functions};
}

std::vector<RegionVariant> RegionVariants() {
  const std::vector<CaseText> texts = CaseTexts();
  std::vector<RegionVariant> variants;
  const size_t rows_end = texts.size() - BareTexts().size();
  const size_t rows_begin = rows_end - RowTexts().size();
  const auto has_rows = [&](size_t c) { return c >= rows_begin && c < rows_end; };
  for (size_t c = 0; c < texts.size(); ++c) {
    for (const std::string_view algorithm : kAlgorithms) {
      if (!has_rows(c)) variants.push_back({c, algorithm, 3, 1 + static_cast<int>(c % 2)});
    }
  }
  for (size_t c = rows_begin; c < rows_end; ++c) {
    const LeafSide sink = LeafRegionAt({"", Parsed(texts[c])}, 8, 3).sink();
    const bool splits = SplitOf(sink.part, sink.stage(), sink.inputs).has_value();
    AddRowVariants(c, texts[c].row_threads, splits, variants);
  }
  // The bare collectives beside every case of their dtype, whatever its number of leaves a thread.
  const size_t bare_f32 = texts.size() - 2;
  const size_t bare_bf16 = texts.size() - 1;
  for (const std::string_view algorithm : kAlgorithms) {
    variants.push_back({bare_f32, algorithm, 3, 2});
    variants.push_back({bare_bf16, algorithm, 3, 1});
    variants.push_back({bare_f32, algorithm, 8, 1});
  }
  // A leaf of one pack and one of two, in every number of ranks that has code of its own.
  for (const int world_size : {2, 4, 5, 8}) {
    for (const std::string_view algorithm : kAlgorithms) {
      variants.push_back({0, algorithm, world_size, world_size == 2 ? 2 : 1});
      variants.push_back({2, algorithm, world_size, world_size == 4 ? 2 : 1});
    }
  }
  // In chunks with flags: every other case, leaves of half a pack and of four, and all numbers of
  // ranks.
  const auto add_flagged = [&](size_t c, int world_size, int unroll) {
    RegionVariant variant{c, "two_shot_leaves", world_size, unroll};
    variant.transport = "flagged";
    variants.push_back(variant);
  };
  for (size_t c = 0; c < texts.size(); ++c) {
    const bool has_other_leaves = texts[c].name == "bytes" || texts[c].name == "doubles";
    const bool is_in_turn = c % 2 == 0 && c < rows_begin;
    if (is_in_turn || has_other_leaves) add_flagged(c, 3, 1 + static_cast<int>(c / 2 % 2) * 3);
  }
  // The collective by itself runs beside "bias_relu" and "scaled_odd_columns".
  add_flagged(bare_bf16, 3, 1);
  add_flagged(bare_f32, 3, 4);
  for (const int world_size : {2, 4, 8}) {
    add_flagged(0, world_size, 2);
    add_flagged(2, world_size, 1);
  }
  // Threads that wait for all their leaves at once: every other case.
  for (size_t c = 1; c < rows_begin; c += 2) {
    const sdk::ElementType type = LeafRegionAt({"", Parsed(texts[c])}, 8, 2).problem.type;
    if (!HasSpareBits(type)) continue;
    variants.push_back({c, kBatched, 2, 1 + static_cast<int>(c / 2 % 2)});
  }
  variants.push_back({0, kBatched, 2, 2});
  variants.push_back({bare_bf16, kBatched, 2, 2});
  variants.push_back({bare_f32, kBatched, 2, 2});
  // And pieces of both.
  for (size_t c = 0; c < texts.size(); ++c) {
    if (texts[c].name != "bucket_scaled" && texts[c].name != "bucket_residual") continue;
    variants.push_back({c, kBatched, 2, 2});
    for (const std::string_view algorithm : kAlgorithms) {
      variants.push_back({c, algorithm, 2, 1 + static_cast<int>(c % 2)});
      variants.push_back({c, algorithm, 4, 2 - static_cast<int>(c % 2)});
    }
  }
  return variants;
}

LeafRegion LeafRegionAt(const RegionCase& region, uint64_t rows, int world_size) {
  auto made = LeafRegionOf(RegionOf(region.graph, rows, world_size));
  if (!made) {
    std::fprintf(stderr, "%s: %s\n", region.name.c_str(), made.error().message.c_str());
    std::abort();
  }
  return *std::move(made);
}

KernelSpec SpecOf(const RegionVariant& variant, const LeafRegion& region) {
  const sdk::ElementType type = region.problem.type;
  const std::string_view fitting = HasSpareBits(type) ? "lamport" : "escape";
  const std::string_view transport = variant.transport.empty() ? fitting : variant.transport;
  if (region.has_rows()) {
    const std::vector<Choice> choices = ListFused(region, {}).value();
    const auto choice = std::find_if(choices.begin(), choices.end(), [&](const Choice& each) {
      return each.name.starts_with(variant.algorithm);
    });
    KernelSpec spec = choice->spec;
    spec.threads = variant.threads;
    spec.row_threads = variant.row_threads;
    spec.row_blocks = variant.row_blocks;
    return spec;
  }
  const auto families = FusedFamilies();
  const auto family = std::find_if(families.begin(), families.end(), [&](const KernelFamily& each) {
    return each.algorithm == variant.algorithm && each.transport == transport;
  });
  KernelSpec spec = cuda::SpecOf(*family, region.problem);
  spec.unroll = variant.unroll;
  return spec;
}

}  // namespace cotune::cuda
