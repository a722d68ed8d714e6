// The layout of every struct of the plugin ABI, as text.
#ifndef COTUNE_PLUGINS_API_TESTING_LAYOUT_H_
#define COTUNE_PLUGINS_API_TESTING_LAYOUT_H_

#include <string>

namespace cotune {

// One line a struct, "cotune_error_t size 256 align 4", and below it one a field in order of
// declaration, "  cotune_error_t.message offset 16 size 240"; then one a constant, "COTUNE_OK = 0".
std::string AbiLayoutText();
// The same of the extension cotune.program/1.
std::string ProgramLayoutText();

}  // namespace cotune

#endif  // COTUNE_PLUGINS_API_TESTING_LAYOUT_H_
