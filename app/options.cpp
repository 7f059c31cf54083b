#include "app/options.hpp"

#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <boost/version.hpp>
#include <cctype>
#include <sstream>

#include "app/closest.hpp"
#include "app/option_table.hpp"
#include "app/option_text.hpp"
#include "app/small_file.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

namespace po = boost::program_options;

constexpr char const* kCommandLine = "the command line";

/// Every name as a plain string: what the texts mean is decided by the table, not by Boost.
po::options_description describe(Syntax const& syntax, std::vector<Key> const& keys) {
  po::options_description known;
  auto const add = [&](std::string const& name, bool yes_no) {
    auto* value = po::value<std::string>();
    if (yes_no) value->implicit_value("true");
    known.add_options()(name.c_str(), value);
  };
  for (auto const& key : keys) add(key.name, key.yes_no);
  for (auto const& flag : syntax.flags) add(flag.name, flag.value.empty());
  add("help", true);
  if (!keys.empty()) {
    add("config", false);
    add("dump-options", true);
  }
  return known;
}

std::vector<Key> keys_of(Syntax const& syntax) {
  std::vector<Key> chosen;
  for (auto& key : option_table())
    for (auto const& section : syntax.sections)
      if (key.section() == section) chosen.push_back(key);
  return chosen;
}

[[noreturn]] void refuse_unknown(std::string const& name, std::string const& where,
                                 std::string const& prefix, std::vector<std::string> const& known) {
  std::string const nearest = closest(name, known);
  fail(Fault::usage,
       fmt::format("unknown {} '{}{}' in {} (it is not among those that --help lists).{}",
                   prefix.empty() ? "key" : "flag", prefix, name, where,
                   nearest.empty() ? "" : fmt::format(" Did you mean '{}{}'?", prefix, nearest)));
}

/// config.cfg must be able to hold what was given.
bool fits_config_file(std::string const& value) {
  if (value.find_first_of("#\n\r") != std::string::npos) return false;
  auto const blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  return value.empty() || !(blank(value.front()) || blank(value.back()));
}

void set_key(Key const& key, std::string const& value, std::string const& where,
             CommandLine& into) {
  if (!fits_config_file(value))
    fail(Fault::usage,
         fmt::format("bad value '{}' for {} in {} (configuration files cannot hold '#', line "
                     "breaks, or blanks at its ends). Use another name?",
                     value, key.name, where));
  if (!key.set(into.options, value))
    fail(Fault::usage, fmt::format("bad value '{}' for {} in {} (it takes {}).", value, key.name,
                                   where, key.allowed));
  into.origins[key.name] = where;
}

void set_flag(Flag const& flag, std::string const& value, CommandLine& into) {
  if (!flag.value.empty()) {
    into.flags[flag.name] = value;
    return;
  }
  auto const on = boolean_codec().read(value);
  if (!on)
    fail(Fault::usage,
         fmt::format("bad value '{}' for --{} (it takes true or false).", value, flag.name));
  into.flags.erase(flag.name);
  if (*on) into.flags[flag.name] = "true";
}

std::string trimmed(std::string const& text) {
  auto const first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Line numbers of an INI text, which Boost's parser does not tell.
class LineNumbers {
 public:
  LineNumbers(std::string const& text, std::string origin) : origin_(std::move(origin)) {
    std::istringstream lines(text);
    std::string section;
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      line = trimmed(line.substr(0, line.find('#')));
      if (line.size() > 2 && line.front() == '[' && line.back() == ']')
        section = line.substr(1, line.size() - 2) + ".";
      auto const equals = line.find('=');
      if (equals != std::string::npos)
        of_key_[section + trimmed(line.substr(0, equals))].push_back(number);
      of_text_.emplace(line, number);
    }
  }

  /// "run.cfg:12" of the n-th appearance of a key.
  std::string of_key(std::string const& key, std::size_t appearance) const {
    auto const found = of_key_.find(key);
    if (found == of_key_.end() || appearance >= found->second.size()) return origin_;
    return fmt::format("{}:{}", origin_, found->second[appearance]);
  }
  std::string of_text(std::string const& line) const {
    auto const found = of_text_.find(trimmed(line));
    return found == of_text_.end() ? origin_ : fmt::format("{}:{}", origin_, found->second);
  }

 private:
  std::string origin_;
  std::map<std::string, std::vector<int>> of_key_;
  std::map<std::string, int> of_text_;
};

std::vector<std::string> names_of(std::vector<Key> const& keys) {
  std::vector<std::string> names;
  for (auto const& key : keys) names.push_back(key.name);
  return names;
}

std::string config_file_text(std::string const& path) {
  try {
    return read_small_file(path);
  } catch (Error const& error) {
    fail(Fault::usage, error.problem() + " Is the path of --config right?");
  }
}

/// What Boost reads otherwise than people mean it: "--flag" would swallow the word after it, and
/// "--key=", the way to empty a key that a file sets, is refused unless its empty word stands
/// apart.
std::vector<std::string> spell_out(po::options_description const& known,
                                   std::vector<std::string> const& words) {
  std::vector<std::string> plain;
  for (auto const& word : words) {
    auto const equals = word.find('=');
    bool const flag = word.rfind("--", 0) == 0 && word.size() > 2;
    auto const* option = flag ? known.find_nothrow(word.substr(2, equals - 2), false) : nullptr;
    bool const yes_no = option != nullptr && option->semantic()->min_tokens() == 0;
    if (yes_no && equals == std::string::npos) {
      plain.push_back(word + "=true");
    } else if (option != nullptr && !yes_no && equals == word.size() - 1) {
      plain.push_back(word.substr(0, equals));
      plain.emplace_back();
    } else {
      plain.push_back(word);
    }
  }
  return plain;
}

/// What Boost made of the words, before any of it is applied.
std::vector<po::option> parse_words(po::options_description const& known,
                                    std::vector<std::string> const& words) {
  using Style = po::command_line_style::style_t;
  int const style = Style::allow_long | Style::long_allow_adjacent | Style::long_allow_next;
  try {
    return po::command_line_parser(spell_out(known, words))
        .options(known)
        .style(style)
        .allow_unregistered()
        .run()
        .options;
  } catch (po::error const& error) {
    fail(Fault::usage, fmt::format("{} (in {}). See --help?", error.what(), kCommandLine));
  }
}

void apply_words(Syntax const& syntax, std::vector<Key> const& keys,
                 std::vector<po::option> const& options, CommandLine& into) {
  std::map<std::string, std::string> lists;  // so far, of keys that add up
  for (auto const& option : options) {
    std::string const value = option.value.empty() ? "" : option.value.front();
    for (auto const& key : keys) {
      if (key.name != option.string_key) continue;
      std::string& list = lists[key.name];
      list = list.empty() || value.empty() ? value : list + "," + value;
      set_key(key, key.list ? list : value, kCommandLine, into);
    }
    for (auto const& flag : syntax.flags)
      if (flag.name == option.string_key) set_flag(flag, value, into);
    for (char const* question : {"help", "dump-options"})
      if (option.string_key == question) set_flag({question, "", ""}, value, into);
  }
}

/// Options of a file, as Boost reads them.
std::vector<po::option> parse_ini(std::string const& text, std::vector<Key> const& keys,
                                  LineNumbers const& lines) {
  po::options_description known;
  for (auto const& key : keys) known.add_options()(key.name.c_str(), po::value<std::string>());
  std::istringstream stream(text);
  try {
    return po::parse_config_file(stream, known, true).options;
  } catch (po::invalid_config_file_syntax const& error) {
    std::string const line = error.tokens();
    fail(Fault::usage, fmt::format("'{}' at {} is not understood (a line is [section], key = value "
                                   "or # comment).",
                                   line, lines.of_text(line)));
  } catch (po::error const& error) {
    fail(Fault::usage, fmt::format("{} (in {}).", error.what(), lines.of_text("")));
  }
}

std::string default_text(Key const& key) {
  std::string const text = key.get(Options{});
  return text.empty() ? "none" : text;
}

}  // namespace

std::string CommandLine::flag(std::string const& name, std::string const& otherwise) const {
  auto const found = flags.find(name);
  return found == flags.end() ? otherwise : found->second;
}

void read_config(std::string const& whole, std::string const& origin, CommandLine& into) {
  // Some editors begin a file with a byte order mark.
  std::string const text = whole.rfind("\xef\xbb\xbf", 0) == 0 ? whole.substr(3) : whole;
  std::vector<Key> const keys = option_table();
  LineNumbers const lines(text, origin);
  std::map<std::string, std::size_t> appearances;
  for (auto const& option : parse_ini(text, keys, lines)) {
    std::size_t const appearance = appearances[option.string_key]++;
    std::string const where = lines.of_key(option.string_key, appearance);
    if (option.unregistered) refuse_unknown(option.string_key, where, "", names_of(keys));
    if (appearance > 0)
      fail(Fault::usage, fmt::format("{} is set twice in one file ({} and {}). Remove one?",
                                     option.string_key, lines.of_key(option.string_key, 0), where));
    for (auto const& key : keys)
      if (key.name == option.string_key)
        set_key(key, option.value.empty() ? "" : option.value.front(), where, into);
  }
}

CommandLine parse_command_line(Syntax const& syntax, std::vector<std::string> const& words) {
  std::vector<Key> const keys = keys_of(syntax);
  po::options_description const known = describe(syntax, keys);
  std::vector<po::option> const options = parse_words(known, words);

  std::vector<std::string> names = names_of(keys);
  for (auto const& option : known.options()) names.push_back(option->long_name());
  CommandLine line;
  for (auto const& option : options) {
    bool const positional = option.position_key >= 0 && option.string_key.empty();
    if (positional)
      line.positional.insert(line.positional.end(), option.value.begin(), option.value.end());
    else if (option.unregistered)
      refuse_unknown(option.string_key, kCommandLine, "--", names);
  }
  for (auto const& option : options)
    if (option.string_key == "config" && !keys.empty())
      read_config(config_file_text(option.value.front()), option.value.front(), line);
  apply_words(syntax, keys, options, line);
  if (line.positional.size() > syntax.positional_max)
    fail(Fault::usage, fmt::format("'{}' is one argument too many (usage: {}). See --help?",
                                   line.positional[syntax.positional_max], syntax.usage));
  return line;
}

std::string config_text(Options const& options) {
  std::string text;
  std::string section;
  for (auto const& key : option_table()) {
    if (key.section() != section) {
      section = key.section();
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", key.name.substr(section.size() + 1), key.get(options));
  }
  return text;
}

std::string help_text(Syntax const& syntax) {
  std::string text = fmt::format("usage: {}\n{}\n", syntax.usage, syntax.summary);
  auto const add = [&](std::string const& left, std::string const& help) {
    text += fmt::format("  {:<36} {}\n", left, help);
  };
  text += "\nflags\n";
  for (auto const& flag : syntax.flags)
    add("--" + flag.name + (flag.value.empty() ? "" : "=" + flag.value), flag.help);
  add("--help", "this text");
  std::vector<Key> const keys = keys_of(syntax);
  if (keys.empty()) return text;
  add("--config=FILE", "read keys from an INI file; the command line wins over it");
  add("--dump-options", "print all keys with their values as an INI file, and stop");
  std::string section;
  for (auto const& key : keys) {
    if (key.section() != section) text += fmt::format("\n[{}]\n", section = key.section());
    add("--" + key.name, fmt::format("{} [{}]", key.help, default_text(key)));
    if (key.allowed.rfind("one of ", 0) == 0) add("", key.allowed);
  }
  return text;
}

bool answer_questions(CommandLine const& line, Syntax const& syntax) {
  if (line.has("help"))
    fmt::print("{}", help_text(syntax));
  else if (line.has("dump-options"))
    fmt::print("{}", config_text(line.options));
  return line.has("help") || line.has("dump-options");
}

std::string boost_version() {
  std::string version = BOOST_LIB_VERSION;  // "1_74"
  for (char& c : version)
    if (c == '_') c = '.';
  return version;
}

}  // namespace spillway::app
