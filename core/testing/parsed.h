// Program graphs and ids of choices from their texts, in tests.
#ifndef COTUNE_CORE_TESTING_PARSED_H_
#define COTUNE_CORE_TESTING_PARSED_H_

#include <string_view>
#include <utility>

#include "core/problem/choice_id.h"
#include "core/problem/program_graph.h"
#include "gtest/gtest.h"

namespace cotune {

// A text that is no program fails the test that calls this, and ends it by an exception.
inline ProgramGraph Graph(std::string_view text) {
  Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  EXPECT_TRUE(graph.has_value()) << text << "\n" << graph.error().ToText();
  return std::move(graph).value();
}

// Throws if the text is no id.
inline ChoiceId Id(std::string_view text) { return ChoiceId::Parse(text).value(); }

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_PARSED_H_
