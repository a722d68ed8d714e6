#include "plugins/cuda/choices/choice_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "plugins/cuda/choices/shape.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Problem;
using sdk::Result;
using Parameters = ShapeModel::Parameters;

std::string NameWithoutShape(const KernelFamily& family) {
  return fmt::format("{}?transport={}", family.algorithm, family.transport);
}

std::string NameOf(const KernelFamily& family, const Shape& shape, bool uses_pdl) {
  const Parameters parameters = family.model.parameters;
  if (parameters == Parameters::kNone) return NameWithoutShape(family);
  const std::string chunk =
      parameters == Parameters::kGridAndChunk ? fmt::format("&chunk={}", shape.chunk_bytes) : "";
  const std::string blocks = shape.is_fitted ? "fit" : fmt::format("{}", shape.blocks);
  return fmt::format("{}?blocks={}{}&pdl={}&threads={}&transport={}&unroll={}", family.algorithm,
                     blocks, chunk, uses_pdl ? 1 : 0, shape.threads, family.transport,
                     shape.unroll);
}

// Rings and trees add up in an order that the grid and the chunk decide (all_reduce_ring.cu,
// all_reduce_tree.cu, blocks_ring.cu); the other kernels use ReduceInRankOrder alone.
std::string NumericsOf(const KernelFamily& family, const Problem& problem, const Shape& shape) {
  std::string order = sdk::kRankOrderNumerics;
  if (family.algorithm == "ring" || family.algorithm == "tree") {
    order = fmt::format("{}.{}.{}", family.algorithm, shape.blocks, shape.chunk_bytes);
  }
  return std::string(sdk::NumericsOf(problem, order));
}

Choice RefusedChoice(const KernelFamily& family, const Problem& problem, std::string reason) {
  Choice choice;
  choice.name = NameWithoutShape(family);
  choice.reason = std::move(reason);
  choice.family = &family;
  choice.spec = SpecOf(family, problem);
  return choice;
}

Choice WithShape(const KernelFamily& family, const Problem& problem, const Shape& shape,
                 bool uses_pdl) {
  Choice choice;
  choice.name = NameOf(family, shape, uses_pdl);
  choice.family = &family;
  choice.spec = SpecOf(family, problem);
  choice.spec.threads = shape.threads;
  choice.spec.unroll = shape.unroll;
  choice.spec.uses_pdl = uses_pdl;
  choice.blocks = shape.blocks;
  choice.chunk_bytes = shape.chunk_bytes;
  choice.numerics = NumericsOf(family, problem, shape);
  return choice;
}

// The shapes that are listed of a family that runs the problem.
void AppendShapes(const KernelFamily& family, const Problem& problem, const ChoiceLimits& limits,
                  std::vector<Choice>& choices) {
  // Kernels around copies follow them, and no kernel overlaps with a copy.
  const bool uses_pdl = limits.has_pdl && family.launch == Launch::kKernel;
  for (const Shape& shape : family.model.list(problem, family.shares)) {
    choices.push_back(WithShape(family, problem, shape, uses_pdl));
    choices.back().cost_us = family.model.cost_us(problem, family.shares, shape);
  }
}

// Sets the grid that a name gives after "blocks=": a number, or "fit". False: it is neither, or
// this family does not fit its grid.
bool ReadBlocks(std::string_view text, const KernelFamily& family, const Problem& problem,
                Shape& shape) {
  shape.is_fitted = text == "fit";
  if (!shape.is_fitted) {
    const auto [end, error] = std::from_chars(text.begin(), text.end(), shape.blocks);
    return error == std::errc() && end == text.end();
  }
  if (family.model.fitted_blocks == nullptr) return false;
  shape.blocks = family.model.fitted_blocks(problem, family.shares, shape.threads, shape.unroll);
  return true;
}

// The shape that the name of a choice of this family spells out; empty when the name belongs to
// another family or to none.
std::optional<Choice> WithShapeOf(std::string_view name, const KernelFamily& family,
                                  const Problem& problem) {
  const Parameters parameters = family.model.parameters;
  if (parameters == Parameters::kNone) return std::nullopt;
  Shape shape{};
  int pdl = 0;
  char blocks[12] = "";
  const std::string text(name.substr(std::min(name.find('?'), name.size())));
  bool is_read = false;
  if (parameters == Parameters::kGridAndChunk) {
    constexpr char kForm[] =
        "?blocks=%11[a-z0-9]&chunk=%d&pdl=%d&threads=%d&transport=%*[a-z_]&unroll=%d";
    is_read = std::sscanf(text.c_str(), kForm, blocks, &shape.chunk_bytes, &pdl, &shape.threads,
                          &shape.unroll) == 5;
  } else {
    constexpr char kForm[] = "?blocks=%11[a-z0-9]&pdl=%d&threads=%d&transport=%*[a-z_]&unroll=%d";
    is_read = std::sscanf(text.c_str(), kForm, blocks, &pdl, &shape.threads, &shape.unroll) == 4;
  }
  if (!is_read || shape.threads < 1 || shape.unroll < 1) return std::nullopt;
  if (!ReadBlocks(blocks, family, problem, shape)) return std::nullopt;
  Choice choice = WithShape(family, problem, shape, pdl == 1);
  if (choice.name != name) return std::nullopt;
  return choice;
}

bool CanRun(const Choice& choice, const Problem& problem, const ChoiceLimits& limits) {
  const Shape shape{choice.blocks, choice.spec.threads, choice.spec.unroll, choice.chunk_bytes};
  return choice.family->model.can_run(problem, choice.family->shares, shape) &&
         choice.spec.uses_pdl <= limits.has_pdl;
}

// The cheapest by the model; among equals the first.
void MarkDefault(std::vector<Choice>& choices) {
  Choice* best = nullptr;
  for (Choice& choice : choices) {
    if (!choice.reason.empty()) continue;
    if (best == nullptr || choice.cost_us < best->cost_us) best = &choice;
  }
  if (best != nullptr) best->is_default = true;
}

}  // namespace

std::vector<Choice> ListChoices(const Problem& problem, const ChoiceLimits& limits,
                                std::span<const KernelFamily> families) {
  std::vector<Choice> choices;
  if (problem.world_size == 1) {
    Choice copy;
    copy.name = "copy";
    copy.is_copy = copy.is_default = true;
    copy.numerics = sdk::kExactNumerics;
    return {copy};
  }
  for (const KernelFamily& family : families) {
    if (family.collective != problem.collective) continue;
    std::string reason = ListingRefusalOf(family, problem);
    if (reason.empty()) {
      AppendShapes(family, problem, limits, choices);
    } else {
      choices.push_back(RefusedChoice(family, problem, std::move(reason)));
    }
  }
  MarkDefault(choices);
  return choices;
}

Result<Choice> FindChoice(const Problem& problem, std::string_view name, const ChoiceLimits& limits,
                          std::span<const KernelFamily> families) {
  for (const Choice& choice : ListChoices(problem, limits, families)) {
    if (choice.name != name) continue;
    if (choice.reason.empty()) return choice;
    // A choice that won at a larger size may run here, although it is not worth listing at this
    // size.
    if (RefusalOf(*choice.family, problem).empty() &&
        choice.family->model.parameters == Parameters::kNone) {
      std::vector<Choice> found;
      AppendShapes(*choice.family, problem, limits, found);
      return found.front();
    }
    return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", name, choice.reason));
  }
  // The winner of one size runs at its neighbours too, where its shape is not listed.
  for (const KernelFamily& family : families) {
    if (family.collective != problem.collective || problem.world_size == 1) continue;
    std::optional<Choice> choice = WithShapeOf(name, family, problem);
    if (!choice) continue;
    const std::string reason = RefusalOf(family, problem);
    if (reason.empty() && CanRun(*choice, problem, limits)) return *choice;
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("'{}' is refused: {}", name,
                            reason.empty() ? "no kernel runs in this shape, or scratch is too "
                                             "small for it"
                                           : reason));
  }
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("'{}' is no choice of this problem; list_choices names them", name));
}

}  // namespace cotune::cuda
