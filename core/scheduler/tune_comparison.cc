#include "core/scheduler/tune_comparison.h"

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

// The most bytes that an error quotes of a field or a node.
constexpr size_t kTextBytesMax = 400;

using Digests = std::vector<uint64_t>;

uint64_t DigestOf(const std::pair<std::string, std::string>& field) {
  return Sha256Prefix(fmt::format("{}\n{}", field.first, field.second));
}

uint64_t DigestOf(const MultiTemplate& node) {
  return Sha256Prefix(
      fmt::format("{}\n{}", node.program().ToText(), fmt::join(node.size_hints_bytes(), " ")));
}

std::string Shortened(std::string text, uint64_t digest) {
  if (text.size() <= kTextBytesMax) return text;
  text.resize(kTextBytesMax);
  return fmt::format("{}... (digest {:016x})", text, digest);
}

std::string TextOf(const MultiTemplate& node) {
  return Shortened(fmt::format("{} at {} bytes", ToText(node.program().anchor()),
                               fmt::join(node.size_hints_bytes(), ", ")),
                   DigestOf(node));
}

// The first place at which the lists of the ranks are not all equal; every rank finds the same one.
std::optional<size_t> FirstDifference(const std::vector<StepRecord<TuneDigests>>& records,
                                      Digests TuneDigests::*list) {
  std::optional<size_t> differs;
  const Digests& first = records[0].message.*list;
  for (const StepRecord<TuneDigests>& record : records) {
    const Digests& others = record.message.*list;
    const auto [at, other] =
        std::mismatch(first.begin(), first.end(), others.begin(), others.end());
    if (at == first.end() && other == others.end()) continue;
    const auto place = static_cast<size_t>(at - first.begin());
    differs = std::min(differs.value_or(place), place);
  }
  return differs;
}

// The text of most ranks, and if two are equally frequent, that of the lower rank.
std::string MostCommon(const std::vector<std::string>& texts) {
  std::map<std::string, size_t> counts;
  for (const std::string& text : texts) ++counts[text];
  return *std::max_element(texts.begin(), texts.end(),
                           [&](const std::string& left, const std::string& right) {
                             return counts[left] < counts[right];
                           });
}

// The ranks whose texts are not the most common one, and all texts in words.
struct Difference {
  std::vector<int> ranks;
  std::string words;  // "rank 1 has 'b', and the other ranks have 'a'"
};

Difference DifferenceOf(const std::vector<std::string>& texts, const std::vector<int>& job_ranks) {
  const std::string usual = MostCommon(texts);
  Difference difference;
  std::vector<int> others;
  std::vector<std::string> words;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const bool is_usual = texts[rank] == usual;
    (is_usual ? others : difference.ranks).push_back(job_ranks[rank]);
    if (!is_usual) words.push_back(fmt::format("rank {} has {}", job_ranks[rank], texts[rank]));
  }
  constexpr size_t kShown = 3;
  if (words.size() > kShown) words.resize(kShown);
  difference.words = fmt::format(
      "{}, and {} {}", fmt::join(words, ", "),
      others.size() == 1 ? fmt::format("rank {} has", others[0]) : "the other ranks have", usual);
  std::sort(difference.ranks.begin(), difference.ranks.end());
  return difference;
}

std::string RanksText(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string Quoted(const std::string& text) { return fmt::format("'{}'", text); }

tl::unexpected<Error> FieldsDiffer(const ExchangedRecords<FieldText>& all) {
  std::string name;
  for (const auto& record : all.records) {
    if (name.empty()) name = record.message.name;
  }
  std::vector<std::string> texts;
  for (const auto& record : all.records) {
    const FieldText& field = record.message;
    if (field.name.empty()) {
      texts.emplace_back("no such field");
    } else {
      texts.push_back(Quoted(field.name == name ? field.value : field.name + "=" + field.value));
    }
  }
  const Difference difference = DifferenceOf(texts, all.job_ranks);
  return Fail(
      ErrorCode::kDisagreement,
      fmt::format("{} {} about '{}': {}", RanksText(difference.ranks),
                  difference.ranks.size() == 1 ? "disagrees" : "disagree", name, difference.words),
      "settings of the tune", "this field decides what is tuned and must be equal on every rank",
      fmt::format("make '{}' equal on every rank and run again", name), difference.ranks);
}

tl::unexpected<Error> NodesDiffer(size_t number, const ExchangedRecords<NodeText>& all) {
  std::vector<std::string> texts;
  for (const auto& record : all.records) {
    const std::string& text = record.message.text;
    texts.push_back(text.empty() ? "no such node" : Quoted(text));
  }
  const Difference difference = DifferenceOf(texts, all.job_ranks);
  return Fail(ErrorCode::kDisagreement,
              fmt::format("{} differ{} in node {}: {}", RanksText(difference.ranks),
                          difference.ranks.size() == 1 ? "s" : "", number, difference.words),
              "nodes of the tune",
              "the ranks were given different programs, collectives, types or sizes",
              "start every rank with the same arguments", difference.ranks);
}

}  // namespace

Status CompareTunes(RankExchange& exchange, const AgreedFields& fields,
                    std::span<const std::unique_ptr<MultiTemplate>> nodes, size_t nodes_before,
                    int64_t deadline_ns) {
  StepRecord<TuneDigests> own;
  for (const auto& field : fields) own.message.fields.push_back(DigestOf(field));
  for (const auto& node : nodes) own.message.nodes.push_back(DigestOf(*node));
  COTUNE_TRY(const auto all, ExchangeRecords(exchange, "tune", own, 0, deadline_ns));
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  // The fields come first: ranks whose settings differ may have made other nodes by them.
  if (const auto differs = FirstDifference(all.records, &TuneDigests::fields)) {
    StepRecord<FieldText> text;
    if (*differs < fields.size()) {
      const auto& [name, value] = fields[*differs];
      text.message = {name, Shortened(value, DigestOf(fields[*differs]))};
    }
    COTUNE_TRY(const auto texts,
               ExchangeRecords(exchange, "differing field", text, 0, deadline_ns));
    return FieldsDiffer(texts);
  }
  const auto differs = FirstDifference(all.records, &TuneDigests::nodes);
  if (!differs) return {};
  StepRecord<NodeText> text;
  if (*differs < nodes.size()) text.message.text = TextOf(*nodes[*differs]);
  COTUNE_TRY(const auto texts, ExchangeRecords(exchange, "differing node", text, 0, deadline_ns));
  return NodesDiffer(nodes_before + *differs + 1, texts);
}

}  // namespace cotune
