#include "plugins/cuda/testing/region_cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/testing/part_graph.h"

namespace cotune::cuda {
namespace {

struct CaseText {
  const char* name;
  const char* text;
  bool has_functions = false;
};

constexpr CaseText kCases[] = {
    {"bias_relu",
     "program p\n%x = input bf16 [R, 64]\n%b = input bf16 [1, 64]\n%s = all_reduce sum %x\n"
     "%z = add %s, %b\n%y = relu %z\nreturn %y\n"},
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
     "program p\n%x = input f32 [R, 12]\n%s = all_reduce sum %x\n%y = gelu %s\nreturn %y\n", true},
    {"one_row",
     "program p\n%x = input f32 [1, 45]\n%s = all_reduce sum %x\n%y = mul %s, 0.5\nreturn %y\n"},
    {"narrow_output",
     "program p\n%x = input bf16 [R, 32]\n%q = input f32 [R, 1]\n%s = all_reduce average %x\n"
     "%f = cast %s, to=f32\n%m = mul %f, %q\n%y = cast %m, to=f8_e4m3\nreturn %y\n"},
    {"condition",
     "program p\n%x = input f16 [R, 16]\n%k = input u8 [R, 16]\n%s = all_reduce sum %x\n"
     "%y = where %k, %s, %x\nreturn %y into %x\n"},
    // Several collectives as one: of three sizes, of which two are no whole leaves; with operations
    // on both sides, of other dtypes; and with copies alone.
    {"bucket_of_sizes",
     "program p\n%a = input f32 [R, 13]\n%b = input f32 [1, 40]\n%c = input f32 [R, 8]\n"
     "%d = input f32 [R, 13]\n%e = input f32 [1, 3]\n"
     "%s = all_reduce sum %a\n%t = all_reduce sum %b\n%u = all_reduce sum %c\n"
     "%v = all_reduce sum %d\n%w = all_reduce sum %e\n%p = mul %s, 0.375\n%q = mul %t, 0.375\n"
     "%x = mul %u, 0.375\n%y = mul %v, 0.375\n%z = mul %w, 0.375\nreturn %z, %p, %q, %x, %y\n"},
    {"bucket_into_residuals",
     "program p\n%a = input f32 [R, 24]\n%b = input f32 [R, 9]\n%r = input bf16 [R, 24]\n"
     "%q = input bf16 [R, 9]\n%x = cast %a, to=bf16\n%s = all_reduce sum %x\n%y = cast %b, "
     "to=bf16\n"
     "%t = all_reduce sum %y\n%v = add %s, %r\n%w = add %t, %q\n"
     "return %v into %r, %w into %q, %s, %t\n"},
    {"bucket_of_integers",
     "program p\n%a = input i32 [R, 5]\n%b = input i32 [R, 70]\n%x = cast %a, to=i32\n"
     "%s = all_reduce sum %x\n%u = cast %s, to=i32\n%y = cast %b, to=i32\n%t = all_reduce sum %y\n"
     "%v = cast %t, to=i32\nreturn %u, %v\n"},
    // The collective by itself, beside ranks that run operations with it.
    {"bare_f32", "program p\n%x = input f32 [R, 1]\n%s = all_reduce sum %x\nreturn %s\n"},
    {"bare_bf16", "program p\n%x = input bf16 [R, 1]\n%s = all_reduce sum %x\nreturn %s\n"},
};

constexpr std::string_view kAlgorithms[] = {"one_shot_leaves", "two_shot_leaves"};

ProgramGraph Parsed(const CaseText& text) {
  const Result<ProgramGraph> graph = ProgramGraph::Parse(text.text);
  if (!graph) {
    std::fprintf(stderr, "%s: %s\n", text.name, graph.error().ToText().c_str());
    std::abort();
  }
  return graph->Lower();
}

}  // namespace

std::vector<RegionCase> RegionCases() {
  std::vector<RegionCase> cases;
  for (const CaseText& text : kCases) {
    cases.push_back({text.name, Parsed(text), text.has_functions});
  }
  return cases;
}

std::vector<RegionVariant> RegionVariants() {
  std::vector<RegionVariant> variants;
  for (size_t c = 0; c < std::size(kCases); ++c) {
    for (const std::string_view algorithm : kAlgorithms) {
      variants.push_back({c, algorithm, 3, 1 + static_cast<int>(c % 2)});
    }
  }
  // The bare collectives beside every case of their dtype, whatever its number of leaves a thread.
  constexpr size_t kBareF32 = std::size(kCases) - 2;
  constexpr size_t kBareBf16 = std::size(kCases) - 1;
  for (const std::string_view algorithm : kAlgorithms) {
    variants.push_back({kBareF32, algorithm, 3, 2});
    variants.push_back({kBareBf16, algorithm, 3, 1});
    variants.push_back({kBareF32, algorithm, 8, 1});
  }
  // A leaf of one pack and one of two, in every number of ranks that has code of its own.
  for (const int world_size : {2, 4, 5, 8}) {
    for (const std::string_view algorithm : kAlgorithms) {
      variants.push_back({0, algorithm, world_size, world_size == 2 ? 2 : 1});
      variants.push_back({2, algorithm, world_size, world_size == 4 ? 2 : 1});
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
  const bool is_integer = region.problem.type == sdk::ElementType::kI32;
  const std::string_view transport = is_integer ? "escape" : "lamport";
  const auto families = FusedFamilies();
  const auto family = std::find_if(families.begin(), families.end(), [&](const KernelFamily& each) {
    return each.algorithm == variant.algorithm && each.transport == transport;
  });
  KernelSpec spec = cuda::SpecOf(*family, region.problem);
  spec.unroll = variant.unroll;
  return spec;
}

}  // namespace cotune::cuda
