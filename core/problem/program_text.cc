// Program texts: ProgramGraph::ToText and Parse.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/nearest_name.h"
#include "core/problem/program_graph.h"
#include "core/problem/program_verifier.h"
#include "fmt/format.h"

namespace cotune {
namespace {

std::string NumberText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{}", value);
}

std::string OperandText(const Operand& operand) {
  return operand.is_literal() ? NumberText(operand.literal) : fmt::format("%{}", operand.value);
}

std::string NodeText(const CollectiveNode& node) {
  std::string text(Name(node.collective));
  if (node.reduction != Reduction::kNone) text += fmt::format(" {}", Name(node.reduction));
  text += fmt::format(" %{}", node.operand);
  if (node.collective == Collective::kBroadcast) text += fmt::format(", root={}", node.root);
  return text;
}

std::string NodeText(const ComputeNode& node) {
  const OpTraits& traits = TraitsOf(node.op);
  std::string text(traits.name);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    text += (i == 0 ? " " : ", ") + OperandText(node.operands[i]);
  }
  for (size_t i = 0; i < 2; ++i) {
    if (traits.constants[i].empty()) continue;
    text += fmt::format(", {}={}", traits.constants[i], NumberText(node.constants[i]));
  }
  if (traits.has_dtype()) text += fmt::format(", to={}", Name(node.to));
  return text;
}

// A word of a line and where it begins.
struct Token {
  std::string_view text;
  int column = 1;
};

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '%' || c == '-' || c == '+' || c == '/';
}

// Words, and each of "=", ",", "[", "]", ";" by itself; a comment ends the line.
std::vector<Token> Tokens(std::string_view line) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < line.size();) {
    const char c = line[at];
    if (c == '#') break;
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at;
      continue;
    }
    size_t end = at + 1;
    if (IsWordCharacter(c)) {
      while (end < line.size() && IsWordCharacter(line[end])) ++end;
    }
    tokens.push_back({line.substr(at, end - at), static_cast<int>(at) + 1});
    at = end;
  }
  return tokens;
}

bool IsSemicolon(const Token& token) { return token.text == ";"; }

// Where a parse failed.
struct TextFault {
  int line = 1;
  int column = 1;
  std::string cause;
  std::string next_step;
};

class Parser {
 public:
  tl::expected<ProgramGraph, TextFault> Run(std::string_view text) {
    if (text.size() > kProgramTextBytesMax) {
      line_ = 1;
      return Fault({}, fmt::format("the text has {} bytes", text.size()),
                   fmt::format("a program has at most {}; split it", kProgramTextBytesMax));
    }
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      const std::vector<Token> line = Tokens(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      // Semicolons part a line into several.
      for (auto first = line.begin(); first != line.end();) {
        const auto last = std::find_if(first, line.end(), IsSemicolon);
        tokens_.assign(first, last);
        next_ = 0;
        if (!tokens_.empty() && !ReadLine()) {
          return tl::unexpected<TextFault>(std::move(*fault_));
        }
        first = last == line.end() ? last : last + 1;
      }
    }
    if (!has_return_) {
      ++line_;
      return Fault({}, "there is no return", "end the program with: return %value, ...");
    }
    auto graph = ProgramGraph::Verify(std::move(parts_));
    if (graph) return std::move(*graph);
    return tl::unexpected<TextFault>(Located(graph.error()));
  }

 private:
  tl::unexpected<TextFault> Fault(const Token& token, std::string cause, std::string next_step) {
    return tl::unexpected<TextFault>(
        TextFault{line_, token.column, std::move(cause), std::move(next_step)});
  }
  bool No(const Token& token, std::string cause, std::string next_step) {
    fault_ = TextFault{line_, token.column, std::move(cause), std::move(next_step)};
    return false;
  }

  // The next word; an empty one at the end of the line.
  Token Peek() const {
    if (next_ < tokens_.size()) return tokens_[next_];
    const Token& last = tokens_.back();
    return {"", last.column + static_cast<int>(last.text.size())};
  }
  Token Take() {
    const Token token = Peek();
    if (next_ < tokens_.size()) ++next_;
    return token;
  }
  // Gives the text at this place, for messages.
  static std::string Seen(const Token& token) {
    return token.text.empty() ? "the end of the line" : fmt::format("'{}'", token.text);
  }
  bool Expect(std::string_view word, std::string_view where, const char* next_step) {
    const Token token = Take();
    if (token.text == word) return true;
    return No(token, fmt::format("'{}' is expected {}, and not {}", word, where, Seen(token)),
              next_step);
  }
  bool ExpectEnd() {
    if (next_ == tokens_.size()) return true;
    return No(Peek(), fmt::format("'{}' is more than the line takes", Peek().text),
              "a line has one value; operands have commas between them");
  }

  bool ReadLine() {
    const Token first = Peek();
    if (has_return_) return No(first, "there is text behind the return", "return is the last line");
    if (first.text == "program") return ReadName();
    if (first.text == "return") return ReadReturn();
    if (first.text.starts_with('%')) return ReadDefinition();
    if (next_ + 1 < tokens_.size() && tokens_[next_ + 1].text == "=") {
      return No(first, fmt::format("the name of a value begins with %, and not '{}'", first.text),
                fmt::format("did you mean %{}?", first.text));
    }
    static constexpr std::string_view kWords[] = {"program", "return"};
    return No(first,
              fmt::format("a line begins with program, %value or return, and not '{}'", first.text),
              KnownNamesText(first.text, kWords));
  }

  bool ReadName() {
    const Token word = Take();
    if (!values_.empty() || !parts_.name.empty()) {
      return No(word, "the program has begun already", "the name is the first line");
    }
    const Token name = Take();
    if (name.text.empty()) return No(name, "the name is missing", "write: program my_name");
    parts_.name = std::string(name.text);
    return ExpectEnd();
  }

  bool ReadDefinition() {
    const Token name = Take();
    if (name.text.size() < 2) {
      return No(name, "the name of the value is missing", "write letters or digits behind the %");
    }
    if (values_.contains(name.text)) {
      return No(name, fmt::format("{} is defined already", name.text), "give it another name");
    }
    if (!Expect("=", "behind the name of a value", "write: %value = operation operands"))
      return false;
    const Token word = Take();
    const bool is_read = word.text == "input" ? ReadInput(name) : ReadNode(word);
    if (!is_read || !ExpectEnd()) return false;
    // Kept as views of the text, which outlives the parser.
    values_[name.text] = static_cast<ValueIndex>(values_.size());
    return true;
  }

  bool ReadDtype(Dtype& dtype) {
    const Token token = Take();
    const Result<Dtype> parsed = ParseValueDtype(token.text);
    if (!parsed) return No(token, parsed.error().what, parsed.error().next_step);
    dtype = *parsed;
    return true;
  }

  bool ReadInput(const Token& name) {
    if (!parts_.nodes.empty()) {
      return No(name, "inputs stand in front of all other values", "move it up");
    }
    ProgramInput input;
    input.name = std::string(name.text.substr(1));
    static constexpr char kForm[] = "write: %value = input f32 [R, 1024]";
    if (!ReadDtype(input.type.dtype) || !Expect("[", "in front of the shape", kForm)) return false;
    const Token rows = Take();
    if (rows.text == "R")
      input.type.rows = Rows::kAll;
    else if (rows.text == "R/n")
      input.type.rows = Rows::kShare;
    else if (rows.text == "1")
      input.type.rows = Rows::kOne;
    else
      return No(rows, fmt::format("{} is no number of rows", Seen(rows)), "write R, R/n or 1");
    if (!Expect(",", "between rows and columns", kForm)) return false;
    const Token columns = Take();
    const char* const end = columns.text.data() + columns.text.size();
    const auto [read, error] = std::from_chars(columns.text.data(), end, input.type.columns);
    if (error != std::errc() || read != end) {
      return No(columns, fmt::format("{} is no number of columns", Seen(columns)),
                fmt::format("write 1 to {}", kProgramColumnsMax));
    }
    if (!Expect("]", "behind the shape", kForm)) return false;
    ReadInputFlags(input);
    places_.push_back({line_, name.column});
    parts_.inputs.push_back(std::move(input));
    return true;
  }

  // "replicated" and "nofuse", in any order and each at most once.
  void ReadInputFlags(ProgramInput& input) {
    while (true) {
      const std::string_view word = Peek().text;
      bool* const flag = word == "replicated" ? &input.is_replicated
                         : word == "nofuse"   ? &input.is_never_fused
                                              : nullptr;
      if (flag == nullptr || *flag) return;
      Take();
      *flag = true;
    }
  }

  bool ReadValue(const Token& token, ValueIndex& value) {
    const auto found = values_.find(token.text);
    if (found != values_.end()) {
      value = found->second;
      return true;
    }
    if (!token.text.starts_with('%')) {
      return No(token, fmt::format("a value is expected, and not {}", Seen(token)),
                "values begin with %");
    }
    std::vector<std::string_view> names;
    for (const auto& [name, index] : values_) names.push_back(name);
    return No(token, fmt::format("{} is not defined in front of this line", token.text),
              names.empty() ? "define it first" : KnownNamesText(token.text, names));
  }

  bool ReadNode(const Token& word) {
    places_.push_back({line_, word.column});
    static constexpr std::string_view kCollectives[] = {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
    if (std::find(std::begin(kCollectives), std::end(kCollectives), word.text) !=
        std::end(kCollectives)) {
      return ReadCollective(*ParseCollective(word.text));
    }
    if (const OpTraits* traits = FindOp(word.text)) return ReadCompute(*traits);
    std::vector<std::string_view> names(std::begin(kCollectives), std::end(kCollectives));
    names.push_back("input");
    for (const OpTraits& each : AllOps()) names.push_back(each.name);
    if (word.text.empty()) {
      return No(word, "the operation is missing", "write: %value = operation operands");
    }
    return No(word, fmt::format("unknown operation '{}'", word.text),
              KnownNamesText(word.text, names));
  }

  bool ReadCollective(Collective collective) {
    CollectiveNode node{.collective = collective};
    if (Reduces(collective)) {
      const Token token = Take();
      const Result<Reduction> reduction = ParseReduction(token.text);
      if (!reduction) {
        return No(
            token,
            fmt::format("{} needs a reduction, and {} is none", Name(collective), Seen(token)),
            reduction.error().next_step);
      }
      node.reduction = *reduction;
    }
    if (!ReadValue(Take(), node.operand)) return false;
    if (collective == Collective::kBroadcast) {
      static constexpr char kForm[] = "write: broadcast %value, root=0";
      if (!Expect(",", "in front of root=", kForm) ||
          !Expect("root", "behind the operand of a broadcast", kForm) ||
          !Expect("=", "behind root", kForm)) {
        return false;
      }
      const Token token = Take();
      double root = 0;
      if (!ReadNumber(token, root) || root != std::floor(root) || root < 0 || root > 65535) {
        return No(token, fmt::format("{} is no rank", Seen(token)), "write root=0");
      }
      node.root = static_cast<int32_t>(root);
    }
    parts_.nodes.emplace_back(node);
    return true;
  }

  // Without a fault of its own.
  static bool ReadNumber(const Token& token, double& number) {
    std::string_view text = token.text;
    if (text.starts_with('+')) text.remove_prefix(1);
    const char* const end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data(), end, number);
    return !text.empty() && error == std::errc() && read == end;
  }

  bool ReadOperand(Operand& operand) {
    const Token token = Take();
    if (ReadNumber(token, operand.literal)) return true;
    return ReadValue(token, operand.value);
  }

  bool ReadCompute(const OpTraits& traits) {
    ComputeNode node{.op = traits.op, .operands = {}, .constants = {traits.first_default, 0}};
    bool has_dtype = false;
    do {
      const bool is_named = next_ + 1 < tokens_.size() && tokens_[next_ + 1].text == "=";
      if (is_named) {
        if (!ReadNamed(traits, node, has_dtype)) return false;
        continue;
      }
      Operand operand;
      if (!ReadOperand(operand)) return false;
      node.operands.push_back(operand);
    } while (Peek().text == "," && Take().text == ",");
    if (traits.has_dtype() && !has_dtype) {
      return No(Peek(), fmt::format("{} needs a dtype", traits.name),
                "name it behind a comma, such as to=f8_e4m3");
    }
    for (size_t i = 0; i < 2; ++i) {
      if (!traits.constants[i].empty() && std::isnan(node.constants[i])) {
        return No(Peek(), fmt::format("{} needs {}=", traits.name, traits.constants[i]),
                  fmt::format("name it behind a comma, such as {}=0", traits.constants[i]));
      }
    }
    parts_.nodes.emplace_back(std::move(node));
    return true;
  }

  // "eps=1e-6", "to=bf16".
  bool ReadNamed(const OpTraits& traits, ComputeNode& node, bool& has_dtype) {
    const Token name = Take();
    Take();  // "="
    if (traits.has_dtype() && name.text == "to") {
      has_dtype = true;
      return ReadDtype(node.to);
    }
    for (size_t i = 0; i < 2; ++i) {
      if (traits.constants[i].empty() || traits.constants[i] != name.text) continue;
      const Token value = Take();
      if (!ReadNumber(value, node.constants[i])) {
        return No(value, fmt::format("{} is no number", Seen(value)),
                  fmt::format("write a number behind {}=, such as 1e-6", name.text));
      }
      return true;
    }
    std::vector<std::string_view> known;
    for (const std::string_view constant : traits.constants) {
      if (!constant.empty()) known.push_back(constant);
    }
    if (traits.has_dtype()) known.emplace_back("to");
    return No(
        name, fmt::format("{} has no '{}'", traits.name, name.text),
        known.empty() ? "it takes only values and numbers" : KnownNamesText(name.text, known));
  }

  bool ReadReturn() {
    Take();
    do {
      ProgramOutput output;
      const Token token = Take();
      if (!ReadValue(token, output.value)) return false;
      output_places_.push_back({line_, token.column});
      if (Peek().text == "into") {
        Take();
        if (!ReadValue(Take(), output.into)) return false;
      }
      parts_.outputs.push_back(output);
    } while (Peek().text == "," && Take().text == ",");
    has_return_ = true;
    return_line_ = line_;
    return ExpectEnd();
  }

  TextFault Located(const GraphFault& fault) const {
    Place place{return_line_, 1};
    if (fault.output >= 0)
      place = output_places_[static_cast<size_t>(fault.output)];
    else if (fault.value >= 0)
      place = places_[static_cast<size_t>(fault.value)];
    std::string cause = fault.cause;
    if (fault.operand >= 0) cause = fmt::format("operand {}: {}", fault.operand + 1, fault.cause);
    return {place.line, place.column, std::move(cause), fault.next_step};
  }

  struct Place {
    int line = 1;
    int column = 1;
  };

  int line_ = 0;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  std::optional<TextFault> fault_;
  ProgramParts parts_;
  std::map<std::string_view, ValueIndex> values_;
  std::vector<Place> places_;  // of each value: of an input its name, else its operation
  std::vector<Place> output_places_;
  bool has_return_ = false;
  int return_line_ = 1;
};

}  // namespace

std::string ProgramGraph::ToText() const {
  std::string text;
  for (size_t i = 0; i < parts_.inputs.size(); ++i) {
    text += fmt::format("%{} = input {}{}{}\n", i, ShapeText(parts_.inputs[i].type),
                        parts_.inputs[i].is_replicated ? " replicated" : "",
                        parts_.inputs[i].is_never_fused ? " nofuse" : "");
  }
  for (size_t i = 0; i < parts_.nodes.size(); ++i) {
    text +=
        fmt::format("%{} = {}\n", value_of_node(i),
                    std::visit([](const auto& node) { return NodeText(node); }, parts_.nodes[i]));
  }
  for (size_t i = 0; i < parts_.outputs.size(); ++i) {
    text += fmt::format("{}%{}", i == 0 ? "return " : ", ", parts_.outputs[i].value);
    if (parts_.outputs[i].into >= 0) text += fmt::format(" into %{}", parts_.outputs[i].into);
  }
  return text + "\n";
}

Result<ProgramGraph> ProgramGraph::Parse(std::string_view text) {
  auto graph = Parser().Run(text);
  if (graph) return std::move(*graph);
  const TextFault& fault = graph.error();
  return Fail(ErrorCode::kUsage, "this is not a program",
              fmt::format("line {}, column {}", fault.line, fault.column), fault.cause,
              fault.next_step);
}

}  // namespace cotune
