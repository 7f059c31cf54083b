// JSON that refuses what nlohmann lets pass: a key twice in one object, anything after the value.
#pragma once

#include <string>
#include <string_view>

namespace spillway::io {

/// Throws Fault::bad_input that begins with `origin` and names the duplicate key or the place of
/// the fault.
void require_strict_json(std::string_view text, std::string const& origin);

/// 'text' for messages; control characters of a hostile name are shown as escapes.
std::string printable(std::string_view text);

}  // namespace spillway::io
