// Prints the table of the language for those who read it from files.
//
// usage: print_language python | markdown
//
// python: integration/python/cotune/_language.py. markdown: the tables of dtypes, collectives and
// operations in docs/programs.md. write_language.py writes both files, and a test compares them
// with this output.
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "core/problem/op.h"
#include "core/problem/problem.h"
#include "core/problem/program_graph.h"
#include "fmt/format.h"

namespace cotune {
namespace {

std::string_view TextOf(NumberKind kind) {
  return kind == NumberKind::kFloat ? "float" : kind == NumberKind::kInteger ? "integer" : "stored";
}

std::string_view TextOf(OpRule rule) {
  switch (rule) {
    case OpRule::kSameDtype:
      return "same_dtype";
    case OpRule::kSameFloat:
      return "same_float";
    case OpRule::kCompares:
      return "compares";
    case OpRule::kSelects:
      return "selects";
    case OpRule::kCasts:
      return "casts";
    case OpRule::kReducesRow:
      return "reduces_row";
    case OpRule::kNormalises:
      return "normalises";
    case OpRule::kScales:
      return "scales";
    case OpRule::kQuantizes:
      return "quantizes";
  }
  return "";
}

std::string PythonText() {
  std::string text =
      "\"\"\"The table of the language of programs, written by core/problem/print_language.cc from "
      "language.h.\"\"\"\n\n"
      "# Name: code, bytes of an element, kind of number.\nDTYPES = {\n";
  for (const Dtype dtype : AllValueDtypes()) {
    text += fmt::format("    \"{}\": ({}, {}, \"{}\"),\n", Name(dtype), static_cast<int>(dtype),
                        SizeBytes(dtype), TextOf(KindOf(dtype)));
  }
  text += "}\n# Name: code, whether it reduces.\nCOLLECTIVES = {\n";
  for (const Collective collective : AllCollectives()) {
    text += fmt::format("    \"{}\": ({}, {}),\n", Name(collective), static_cast<int>(collective),
                        Reduces(collective) ? "True" : "False");
  }
  text += "}\n# Name: code.\nREDUCTIONS = {\n";
  for (const Reduction reduction : AllReductions()) {
    text += fmt::format("    \"{}\": {},\n", Name(reduction), static_cast<int>(reduction));
  }
  text += "}\n# Name: operands, typing rule (OpRule in core/problem/op.h).\nOPERATIONS = {\n";
  for (const OpTraits& op : AllOps()) {
    text += fmt::format("    \"{}\": ({}, \"{}\"),\n", op.name, op.operands, TextOf(op.rule));
  }
  return text + "}\n";
}

std::string_view WordsOf(NumberKind kind) {
  switch (kind) {
    case NumberKind::kFloat:
      return "float";
    case NumberKind::kInteger:
      return "integer";
    case NumberKind::kStored:
      return "only stored, moved and cast";
  }
  return "";
}

std::string_view WordsOf(Rows rows) {
  return rows == Rows::kOne ? "1" : rows == Rows::kAll ? "R" : "R/n";
}

std::string CallText(Collective collective) {
  return fmt::format("{}{} %x{}", Name(collective), Reduces(collective) ? " sum" : "",
                     collective == Collective::kBroadcast ? ", root=0" : "");
}

// Rows of the operands that a collective takes, and those of its result for the first of them. The
// verifier is asked, because it has the rule.
std::pair<std::string, std::string> RowsOfCollective(Collective collective) {
  std::pair<std::string, std::string> words;
  for (const Rows rows : {Rows::kAll, Rows::kShare, Rows::kOne}) {
    const Result<ProgramGraph> graph =
        ProgramGraph::Parse(fmt::format("program p; %x = input f32 [{}, 8]; %y = {}; return %y",
                                        WordsOf(rows), CallText(collective)));
    if (!graph) continue;
    const bool is_first = words.first.empty();
    words.first += fmt::format("{}{}", is_first ? "" : " or ", WordsOf(rows));
    if (!is_first) {
      words.second = "the same";
      continue;
    }
    words.second = WordsOf(graph->type(1).rows);
  }
  return words;
}

// An operation as programs write it, with its operands and constants.
std::string CallText(const OpTraits& op) {
  std::string_view operands[] = {"%a", "%b", "%c"};
  if (op.rule == OpRule::kSelects) operands[0] = "%condition";
  if (op.rule == OpRule::kSelects) operands[1] = "%a";
  if (op.rule == OpRule::kSelects) operands[2] = "%b";
  if (op.rule == OpRule::kNormalises) operands[1] = "%gamma";
  if (op.rule == OpRule::kNormalises) operands[2] = "%beta";
  if (op.rule == OpRule::kQuantizes) operands[1] = "%scale";
  std::string text(op.name);
  for (int i = 0; i < op.operands; ++i) {
    text += fmt::format("{}{}", i == 0 ? " " : ", ", operands[i]);
  }
  const double defaults[] = {op.first_default, 0};  // the parser's
  for (size_t i = 0; i < std::size(defaults); ++i) {
    if (op.constants[i].empty()) continue;
    text += std::isnan(defaults[i]) ? fmt::format(", {}=NUMBER", op.constants[i])
                                    : fmt::format(", {}={}", op.constants[i], defaults[i]);
  }
  return text + (op.has_dtype() ? ", to=DTYPE" : "");
}

// The dtypes of the operands and of the result.
std::pair<std::string_view, std::string_view> TypesOf(const OpTraits& op) {
  switch (op.rule) {
    case OpRule::kSameDtype:
      return {op.operands == 1 ? "a float or an integer" : "floats or integers of one dtype",
              "the same dtype"};
    case OpRule::kSameFloat:
      return {op.operands == 1 ? "a float" : "floats of one dtype", "the same dtype"};
    case OpRule::kCompares:
      return {"floats or integers of one dtype", "u8"};
    case OpRule::kSelects:
      return {"u8, then floats or integers of one dtype", "that dtype"};
    case OpRule::kCasts:
      return {"any dtype", "the dtype of `to`"};
    case OpRule::kReducesRow:
      return {"a float", "one column of f32 (f64 for f64)"};
    case OpRule::kNormalises:
      return {op.operands == 1 ? "a float" : "a float, then [1, C] of the same dtype or f32",
              "like the first operand"};
    case OpRule::kScales:
      return {"a float except f64", "one column of f32"};
    case OpRule::kQuantizes:
      return {"a float except f64, then an f32 for each row or for all", "the dtype of `to`"};
  }
  return {};
}

// With its bars escaped, because they would end a cell of the table.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char each : text) {
    if (each == '|') escaped += '\\';
    escaped += each;
  }
  return escaped;
}

// A table of the document, between the comments by which write_language.py finds it.
std::string Marked(std::string_view name, std::string_view table) {
  constexpr std::string_view kMark = "<!-- {}, written by core/problem/write_language.py: {} -->\n";
  return fmt::format("{}\n{}\n{}\n", fmt::format(kMark, name, "begin"), table,
                     fmt::format(kMark, name, "end"));
}

std::string MarkdownText() {
  std::string dtypes = "| dtype | bytes | kind |\n| --- | --- | --- |\n";
  for (const Dtype dtype : AllValueDtypes()) {
    dtypes +=
        fmt::format("| `{}` | {} | {} |\n", Name(dtype), SizeBytes(dtype), WordsOf(KindOf(dtype)));
  }
  std::string reductions;
  for (const Reduction reduction : AllReductions()) {
    reductions += fmt::format("{}`{}`", reductions.empty() ? "" : ", ", Name(reduction));
  }
  std::string collectives =
      "| collective | rows of %x | rows of the result | reductions |\n| --- | --- | --- | --- |\n";
  for (const Collective collective : AllCollectives()) {
    const auto [taken, made] = RowsOfCollective(collective);
    collectives += fmt::format("| `{}` | {} | {} | {} |\n", CallText(collective), taken, made,
                               Reduces(collective) ? reductions : "");
  }
  std::string operations =
      "| operation | operands | result | meaning |\n| --- | --- | --- | --- |\n";
  for (const OpTraits& op : AllOps()) {
    const auto [taken, made] = TypesOf(op);
    operations +=
        fmt::format("| `{}` | {} | {} | {} |\n", CallText(op), taken, made, Escaped(op.about));
  }
  return Marked("dtypes", dtypes) + Marked("collectives", collectives) +
         Marked("operations", operations);
}

}  // namespace
}  // namespace cotune

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "python" && what != "markdown") {
    std::fputs("usage: print_language python | markdown\n", stderr);
    return 2;
  }
  const std::string text = what == "python" ? cotune::PythonText() : cotune::MarkdownText();
  std::fputs(text.c_str(), stdout);
  return 0;
}
