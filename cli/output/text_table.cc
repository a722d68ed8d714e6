#include "cli/output/text_table.h"

#include <algorithm>

#include "fmt/format.h"

namespace cotune::cli {
namespace {

std::string Line(const std::vector<Column>& columns, const std::vector<size_t>& widths,
                 const std::vector<std::string>& cells, int indent) {
  std::string line(static_cast<size_t>(indent), ' ');
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) line += "  ";
    line += columns[i].align == Align::kLeft ? fmt::format("{:<{}}", cells[i], widths[i])
                                             : fmt::format("{:>{}}", cells[i], widths[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string TextTable::ToText(int indent) const {
  std::vector<size_t> widths;
  std::vector<std::string> titles;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    widths.push_back(titles.back().size());
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = Line(columns_, widths, titles, indent);
  for (const auto& row : rows_) text += Line(columns_, widths, row, indent);
  return text;
}

}  // namespace cotune::cli
