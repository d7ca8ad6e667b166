// Attributes by key, the form in which the text and Python give them: conversion to operations and back.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/graph/operations.h"

namespace ipex::graph {

// An integer may also be a dim or a real number; a string may be an expression or the name of a table row; a
// list of either may be dims.
using Attr = std::variant<bool, int64_t, double, std::string, Ints, Dim, Dims, Strings>;
using Attrs = std::map<std::string, Attr, std::less<>>;

// The operation `op`.`name` with these attributes. Throws a UserError that names the op and the attribute if
// one is missing, unknown or of another type.
Operation make_operation(std::string_view op, std::string_view name, Attrs attrs);

std::string name_of(const Operation& operation);  // "reduce.sum", "matmul"
Attrs attributes_of(const Operation& operation);
std::vector<Dim> dims_in(const Operation& operation);  // all sizes in the attributes

}  // namespace ipex::graph
