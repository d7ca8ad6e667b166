// Attributes as text and Python have them, by key: where operations come from and what they print as.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/graph/operations.h"

namespace ipex::graph {

// An integer stands for a dim or a real number too, a text for an expression or a row of a table, a list of
// either for dims.
using Attr = std::variant<bool, int64_t, double, std::string, Ints, Dim, Dims, Strings>;
using Attrs = std::map<std::string, Attr, std::less<>>;

// The operation whose text is `op`.`name` with these attributes. UserError that names op and attribute: one
// is missing, unknown, or of another type.
Operation make_operation(std::string_view op, std::string_view name, Attrs attrs);

std::string name_of(const Operation& operation);  // "reduce.sum", "matmul"
Attrs attributes_of(const Operation& operation);
std::vector<Dim> dims_in(const Operation& operation);  // sizes among the attributes

}  // namespace ipex::graph
