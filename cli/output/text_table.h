// Columns of text.
#ifndef COTUNE_CLI_OUTPUT_TEXT_TABLE_H_
#define COTUNE_CLI_OUTPUT_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace cotune::cli {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

// Rows of as many cells as there are columns; widths fit the longest cell.
class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // Title line and rows, each behind `indent` blanks, two blanks between columns, none at the end
  // of a line.
  std::string ToText(int indent) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_TEXT_TABLE_H_
