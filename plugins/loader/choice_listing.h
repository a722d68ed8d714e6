// Asks a backend's table for its choices and checks the answer.
#ifndef COTUNE_PLUGINS_LOADER_CHOICE_LISTING_H_
#define COTUNE_PLUGINS_LOADER_CHOICE_LISTING_H_

#include <string>

#include "core/backend/backend.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/api/cotune_program_v1.h"

namespace cotune {

cotune_dtype_t ToAbi(Dtype dtype);
cotune_problem_t ToAbi(const Problem& problem);

// Pure, as the table's own function is. An entry that breaks the rules of the ABI (name, double
// name, second default, numerics) becomes a refusal that says so; a list without a default gets its
// first choice as default.
ChoiceList ListTableChoices(const cotune_backend_api_t& table, const cotune_backend_t* backend,
                            const Problem& problem);
// The same for a region, by the extension of the backend `name`.
ChoiceList ListExtensionChoices(const std::string& name, const cotune_program_v1_t& extension,
                                const cotune_backend_t* backend, const cotune_program_t& region);

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_CHOICE_LISTING_H_
