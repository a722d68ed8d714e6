// Feeds texts to the parser of programs: no text may crash it, and one that it takes means the same
// when it is printed and read again, and when its compounds are lowered.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/problem/program_graph.h"

namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using cotune::ProgramGraph;
  const auto graph = ProgramGraph::Parse({reinterpret_cast<const char*>(data), size});
  if (!graph) {
    Require(!graph.error().where.empty(), "an error without a place");
    return 0;
  }
  const auto again = ProgramGraph::Parse(graph->ToText());
  Require(again.has_value(), "the canonical text is refused");
  Require(*again == *graph && again->digest() == graph->digest(), "the canonical text differs");
  const ProgramGraph lowered = graph->Lower();
  Require(lowered.outputs().size() == graph->outputs().size(), "lowering has lost an output");
  for (size_t i = 0; i < lowered.outputs().size(); ++i) {
    Require(lowered.type(lowered.outputs()[i].value) == graph->type(graph->outputs()[i].value),
            "lowering has changed the type of an output");
  }
  return 0;
}
