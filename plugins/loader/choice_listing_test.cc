// Tests how the choices of a backend are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/loader/testing/probe_backend.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ChoiceListingTest = ProbeBackendTest;

TEST_F(ChoiceListingTest, FlagsAndEstimatesOfChoicesAreRead) {
  probe_.choices = {
      Entry("a", COTUNE_CHOICE_CAPTURABLE),
      Entry("b?x=1", COTUNE_CHOICE_DEFAULT | COTUNE_CHOICE_REPRODUCIBLE |
                         COTUNE_CHOICE_COLLECTIVE_PREPARE | 1u << 15),
  };
  probe_.choices[0].cost_us = std::nan("");
  const ChoiceList list = List();
  EXPECT_THAT(list.refusals, IsEmpty());
  ASSERT_EQ(list.choices.size(), 2u);
  EXPECT_EQ(list.choices[0].id.text(), "probe/a");
  EXPECT_TRUE(list.choices[0].is_capturable);
  EXPECT_FALSE(list.choices[0].is_default);
  EXPECT_EQ(list.choices[0].cost_us, -1);
  EXPECT_EQ(list.choices[0].workspace_bytes, 64u);
  EXPECT_EQ(list.choices[1].id.text(), "probe/b?x=1");
  EXPECT_TRUE(list.choices[1].is_default);
  EXPECT_TRUE(list.choices[1].is_reproducible);
  EXPECT_TRUE(list.choices[1].prepare_is_collective);
  EXPECT_FALSE(list.choices[1].is_capturable);
  EXPECT_EQ(list.choices[1].cost_us, 2.5);
}

TEST_F(ChoiceListingTest, ALongListIsReadInASecondCall) {
  for (int i = 0; i < 64; ++i) probe_.choices.push_back(Entry("c" + std::to_string(i)));
  EXPECT_EQ(List().choices.size(), 64u);
  EXPECT_EQ(probe_.list_calls, 1u);
  probe_.choices.push_back(Entry("c64"));
  const ChoiceList list = List();
  ASSERT_EQ(list.choices.size(), 65u);
  EXPECT_EQ(list.choices[64].id.text(), "probe/c64");
  EXPECT_TRUE(list.choices[0].is_default);
  EXPECT_EQ(probe_.list_calls, 3u);
  for (int i = 65; i < 4096; ++i) probe_.choices.push_back(Entry("c" + std::to_string(i)));
  EXPECT_EQ(List().choices.size(), 4096u);
  probe_.choices.push_back(Entry("one_more"));
  const ChoiceList refused = List();
  EXPECT_THAT(refused.choices, IsEmpty());
  ASSERT_EQ(refused.refusals.size(), 1u);
  EXPECT_EQ(refused.refusals[0].reason, "its plugin lists 4097 choices, 4096 are the most");
}

TEST_F(ChoiceListingTest, EntriesThatBreakTheRulesAreRefusedAlone) {
  probe_.choices = {Entry("a", COTUNE_CHOICE_DEFAULT),
                    Entry("a"),
                    Entry(""),
                    Entry("UPPER"),
                    Entry("b?x"),
                    Entry(std::string(96, 'n')),
                    Entry("short"),
                    Entry("must", 1u << 17),
                    Entry("b", COTUNE_CHOICE_DEFAULT),
                    Entry("no")};
  probe_.choices[6].struct_size = 100;
  probe_.choices[9].status = COTUNE_UNSUPPORTED;
  std::memset(probe_.choices[9].reason, 'r', sizeof(probe_.choices[9].reason));
  const ChoiceList list = List();
  ASSERT_EQ(list.choices.size(), 1u);
  EXPECT_EQ(list.choices[0].id.text(), "probe/a");
  std::vector<std::string> refused;
  for (const Refusal& refusal : list.refusals) refused.push_back(refusal.choice);
  EXPECT_THAT(refused, ElementsAre("probe/a", "probe", "probe", "probe", "probe", "probe",
                                   "probe/must", "probe/no", "probe/b"));
  EXPECT_EQ(list.refusals[0].reason, "its plugin lists this name twice");
  EXPECT_THAT(list.refusals[1].reason, HasSubstr("without a proper name"));
  EXPECT_THAT(list.refusals[4].reason, HasSubstr("it does not end with NUL"));
  EXPECT_THAT(list.refusals[5].reason, HasSubstr("a choice of 100 bytes, version 1.0 has"));
  EXPECT_THAT(list.refusals[6].reason, HasSubstr("flags 0x20000, which this cotune does not know"));
  EXPECT_EQ(list.refusals[7].reason, std::string(sizeof(probe_.choices[9].reason), 'r'));
  EXPECT_EQ(list.refusals[8].reason, "its plugin marks two defaults, probe/a is the first");
}

cotune_choice_t WithNumerics(cotune_choice_t entry, const std::string& text) {
  std::memcpy(entry.numerics, text.data(), std::min(text.size(), sizeof(entry.numerics)));
  return entry;
}

TEST_F(ChoiceListingTest, TheNumericsClassIsReadWhereThePluginHasTheField) {
  probe_.choices = {WithNumerics(Entry("a", COTUNE_CHOICE_DEFAULT), "rank_order_f32"),
                    Entry("unknown"), WithNumerics(Entry("longest"), std::string(31, 'x')),
                    WithNumerics(Entry("older"), "ring.64"), WithNumerics(Entry("cut"), "ring.64")};
  // As plugins of 1.0 and 1.1 write it, and one byte short of the field.
  probe_.choices[3].struct_size = offsetof(cotune_choice_t, numerics);
  probe_.choices[4].struct_size = sizeof(cotune_choice_t) - 1;
  const ChoiceList list = List();
  EXPECT_THAT(list.refusals, IsEmpty());
  std::vector<std::string> classes;
  for (const Choice& choice : list.choices) classes.push_back(choice.numerics);
  EXPECT_THAT(classes, ElementsAre("rank_order_f32", "", std::string(31, 'x'), "", ""));
}

TEST_F(ChoiceListingTest, ABadNumericsClassRefusesItsChoice) {
  probe_.choices = {Entry("good", COTUNE_CHOICE_DEFAULT),
                    WithNumerics(Entry("endless"), std::string(32, 'x')),
                    WithNumerics(Entry("upper"), "Ring"), WithNumerics(Entry("byte"), "ring\n"),
                    WithNumerics(Entry("high"), "ring\xff")};
  const ChoiceList list = List();
  ASSERT_EQ(list.choices.size(), 1u);
  EXPECT_EQ(list.choices[0].id.text(), "probe/good");
  ASSERT_EQ(list.refusals.size(), 4u);
  EXPECT_EQ(list.refusals[0].choice, "probe/endless");
  EXPECT_EQ(list.refusals[0].reason, "the text of its numerics class does not end with NUL");
  EXPECT_EQ(list.refusals[1].reason,
            "byte 0x52 in the text of its numerics class is none of [a-z0-9_.]");
  EXPECT_THAT(list.refusals[2].reason, HasSubstr("byte 0x0a"));
  EXPECT_THAT(list.refusals[3].reason, HasSubstr("byte 0xff"));
}

TEST_F(ChoiceListingTest, AListThatFailsIsARefusalOfTheBackend) {
  probe_.status = COTUNE_UNSUPPORTED;
  probe_.message = "no such wire";
  EXPECT_EQ(List().refusals.at(0).choice, "probe");
  EXPECT_EQ(List().refusals.at(0).reason, "no such wire");
  probe_.message = "";
  EXPECT_EQ(List().refusals.at(0).reason, "list_choices gave status -2 without a reason");
}

}  // namespace
}  // namespace cotune
