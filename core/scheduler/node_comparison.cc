#include "core/scheduler/node_comparison.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/sha256.h"
#include "core/ranks/step_record.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// Of a node in an error.
constexpr size_t kTextBytesMax = 400;

uint64_t DigestOf(const MultiTemplate& node) {
  return Sha256Prefix(
      fmt::format("{}\n{}", node.program().ToText(), fmt::join(node.size_hints_bytes(), " ")));
}

std::string TextOf(const MultiTemplate& node) {
  std::string text = fmt::format("{} at {} bytes", ToText(node.program().anchor()),
                                 fmt::join(node.size_hints_bytes(), ", "));
  if (text.size() <= kTextBytesMax) return text;
  text.resize(kTextBytesMax);
  return fmt::format("{}... (digest {:016x})", text, DigestOf(node));
}

// The first node that is not the same on all ranks; every rank finds the same one.
std::optional<size_t> FirstDifference(const std::vector<StepRecord<NodeDigests>>& records) {
  std::optional<size_t> differs;
  const std::vector<uint64_t>& first = records[0].message.digests;
  for (const StepRecord<NodeDigests>& record : records) {
    const std::vector<uint64_t>& others = record.message.digests;
    const auto [at, other] =
        std::mismatch(first.begin(), first.end(), others.begin(), others.end());
    if (at == first.end() && other == others.end()) continue;
    const auto node = static_cast<size_t>(at - first.begin());
    differs = std::min(differs.value_or(node), node);
  }
  return differs;
}

// The text of most ranks, and of as many that of the lowest one.
std::string MostCommon(const std::vector<StepRecord<NodeText>>& records) {
  std::map<std::string, size_t> counts;
  for (const StepRecord<NodeText>& record : records) ++counts[record.message.text];
  const auto most =
      std::max_element(records.begin(), records.end(), [&](const auto& left, const auto& right) {
        return counts[left.message.text] < counts[right.message.text];
      });
  return most->message.text;
}

std::string Quoted(const std::string& text) {
  return text.empty() ? "no such node" : fmt::format("'{}'", text);
}

tl::unexpected<Error> NodesDiffer(size_t number, const ExchangedRecords<NodeText>& all) {
  const std::string usual = MostCommon(all.records);
  std::vector<int> odd;
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < all.records.size(); ++rank) {
    const std::string& text = all.records[rank].message.text;
    if (text == usual) continue;
    odd.push_back(all.job_ranks[rank]);
    texts.push_back(fmt::format("rank {} has {}", odd.back(), Quoted(text)));
  }
  constexpr size_t kShown = 3;
  if (texts.size() > kShown) texts.resize(kShown);
  std::sort(odd.begin(), odd.end());
  return Fail(
      ErrorCode::kDisagreement,
      fmt::format("rank{} {} differ{} in node {}: {}, and the other ranks have {}",
                  odd.size() == 1 ? "" : "s", fmt::join(odd, ", "), odd.size() == 1 ? "s" : "",
                  number, fmt::join(texts, ", "), Quoted(usual)),
      "nodes of the tune",
      "the ranks were given different programs, collectives, types, sizes or settings",
      "start every rank with the same arguments", odd);
}

}  // namespace

Status CompareNodes(RankExchange& exchange, std::span<const std::unique_ptr<MultiTemplate>> nodes,
                    size_t nodes_before, int64_t deadline_ns) {
  StepRecord<NodeDigests> own;
  for (const auto& node : nodes) own.message.digests.push_back(DigestOf(*node));
  COTUNE_TRY(const auto all, ExchangeRecords(exchange, "nodes", own, 0, deadline_ns));
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  const std::optional<size_t> differs = FirstDifference(all.records);
  if (!differs) return {};
  StepRecord<NodeText> text;
  if (*differs < nodes.size()) text.message.text = TextOf(*nodes[*differs]);
  COTUNE_TRY(const auto texts, ExchangeRecords(exchange, "differing node", text, 0, deadline_ns));
  return NodesDiffer(nodes_before + *differs + 1, texts);
}

}  // namespace cotune
