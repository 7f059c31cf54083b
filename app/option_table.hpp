// The one table of configuration keys: parser, --help, --dump-options and config.cfg are made from
// it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/options.hpp"

namespace spillway::app {

struct Key {
  std::string name;  // "optim.lr"
  std::string help;
  std::string allowed;  // for messages
  bool yes_no = false;  // takes `--flag` alone
  bool list = false;    // repeated on the command line its values add up
  /// False where the text is not allowed.
  std::function<bool(Options&, std::string_view)> set;
  std::function<std::string(Options const&)> get;

  std::string section() const { return name.substr(0, name.find('.')); }
};

/// All keys, section by section.
std::vector<Key> option_table();

}  // namespace spillway::app
