#include "core/problem/program.h"

#include <algorithm>
#include <charconv>

#include "core/base/sha256.h"
#include "fmt/format.h"

namespace cotune {
namespace {

tl::unexpected<Error> Malformed(int line, std::string cause) {
  return Fail(ErrorCode::kUsage, "this is not a program", fmt::format("line {}", line),
              std::move(cause), "see core/problem/program.h for the format");
}

// Reads "%3" at the start of text and removes it.
bool TakeValue(std::string_view& text, ValueIndex& value) {
  if (!text.starts_with('%')) return false;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(end - text.data());
  return true;
}

std::string_view TakeWord(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// Reads what stands behind "%n = " and adds it to the builder.
Result<ValueIndex> ParseDefinition(std::string_view text, int line, ProgramBuilder& builder) {
  const std::string_view operation = TakeWord(text);
  if (operation == "input") {
    const Result<Dtype> dtype = ParseDtype(TakeWord(text));
    if (!dtype) return Malformed(line, dtype.error().ToText());
    return builder.AddInput(std::string(text), *dtype);
  }
  const Result<ProblemClass> cls = ParseProblemClass(operation);
  if (!cls) return Malformed(line, cls.error().ToText());
  ValueIndex operand = 0;
  if (!TakeValue(text, operand) || !text.empty()) return Malformed(line, "expected one operand");
  return builder.AddCollective(*cls, operand);
}

}  // namespace

ValueIndex ProgramBuilder::AddInput(std::string name, Dtype dtype) {
  inputs_.push_back({std::move(name), dtype});
  return static_cast<ValueIndex>(inputs_.size()) - 1;
}

ValueIndex ProgramBuilder::AddCollective(const ProblemClass& cls, ValueIndex operand) {
  nodes_.emplace_back(CollectiveNode{cls, operand});
  return static_cast<ValueIndex>(inputs_.size() + nodes_.size()) - 1;
}

Result<Program> ProgramBuilder::Freeze(ValueIndex output) const {
  const auto wrong = [](std::string cause) {
    return Fail(ErrorCode::kUsage, "this graph is not a program", "", std::move(cause));
  };
  if (nodes_.empty()) return wrong("there is no collective");
  std::vector<Dtype> dtypes;
  for (const InputNode& input : inputs_) dtypes.push_back(input.dtype);
  for (const Node& node : nodes_) {
    const auto& collective = std::get<CollectiveNode>(node);
    if (Status valid = Validate(collective.cls); !valid) return Propagate(valid);
    if (collective.operand < 0 || collective.operand >= static_cast<ValueIndex>(dtypes.size())) {
      return wrong(fmt::format("%{} is used before it is defined", collective.operand));
    }
    if (dtypes[collective.operand] != collective.cls.dtype) {
      return wrong(fmt::format("%{} is {}, its collective takes {}", collective.operand,
                               Name(dtypes[collective.operand]), Name(collective.cls.dtype)));
    }
    dtypes.push_back(collective.cls.dtype);
  }
  if (output < static_cast<ValueIndex>(inputs_.size()) ||
      output >= static_cast<ValueIndex>(dtypes.size())) {
    return wrong(fmt::format("%{} is returned, which is not the value of a node", output));
  }
  Program program;
  program.inputs_ = inputs_;
  program.nodes_ = nodes_;
  program.output_ = output;
  program.digest_ = Sha256Prefix(program.ToText());
  return program;
}

Result<Program> Program::SingleCollective(const ProblemClass& cls) {
  ProgramBuilder builder;
  const ValueIndex input = builder.AddInput("x", cls.dtype);
  return builder.Freeze(builder.AddCollective(cls, input));
}

const ProblemClass& Program::anchor() const { return std::get<CollectiveNode>(nodes_.front()).cls; }

std::string Program::ToText() const {
  std::string text;
  ValueIndex value = 0;
  for (const InputNode& input : inputs_) {
    text += fmt::format("%{} = input {} {}\n", value++, Name(input.dtype), input.name);
  }
  for (const Node& node : nodes_) {
    const auto& collective = std::get<CollectiveNode>(node);
    text +=
        fmt::format("%{} = {} %{}\n", value++, cotune::ToText(collective.cls), collective.operand);
  }
  text += fmt::format("return %{}\n", output_);
  return text;
}

Result<Program> Program::Parse(std::string_view text) {
  ProgramBuilder builder;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ValueIndex value = 0;
    if (rest.starts_with("return ")) {
      rest.remove_prefix(7);
      if (!TakeValue(rest, value) || !rest.empty()) return Malformed(line, "expected 'return %n'");
      if (!text.empty()) return Malformed(line + 1, "there is text behind the return");
      return builder.Freeze(value);
    }
    if (!TakeValue(rest, value) || !rest.starts_with(" = ")) {
      return Malformed(line, "expected '%n = ...' or 'return %n'");
    }
    rest.remove_prefix(3);
    const Result<ValueIndex> defined = ParseDefinition(rest, line, builder);
    if (!defined) return Propagate(defined);
    if (*defined != value) {
      return Malformed(line, fmt::format("values are numbered in order: this is %{}", *defined));
    }
  }
  return Malformed(1, "there is no return");
}

}  // namespace cotune
