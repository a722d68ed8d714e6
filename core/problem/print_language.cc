// Prints the table of the language for those who read it from files.
//
// usage: print_language python | markdown
//
// python: integration/python/cotune/_language.py. markdown: the table of dtypes and that of
// operations in docs/programs.md. A test compares both files with this output.
#include <cstdio>
#include <string>
#include <string_view>

#include "core/problem/op.h"
#include "core/problem/problem.h"
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

std::string MarkdownText() {
  std::string text = "| operation | operands | gives |\n| --- | --- | --- |\n";
  for (const OpTraits& op : AllOps()) {
    std::string about;  // with its bars escaped
    for (const char each : op.about) {
      if (each == '|') about += '\\';
      about += each;
    }
    text += fmt::format("| `{}` | {} | {} |\n", op.name, op.operands, about);
  }
  return text;
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
