// Prints and parses schedules: goldens and bug reports contain them as text.
#include "codegen/schedule.h"

#include <charconv>
#include <sstream>

namespace ipex::loop {

namespace {

std::string_view name(ForKind kind) {
  return kind == ForKind::kSerial ? "serial" : kind == ForKind::kParallel ? "parallel" : "vector";
}

void print_names(std::ostream& out, std::string_view keyword,
                 const std::vector<std::vector<std::string>>& lists) {
  for (const auto& names : lists) {
    out << keyword;
    for (const std::string& n : names) out << ' ' << n;
    out << '\n';
  }
}

int64_t parse_number(std::string_view word, size_t equals, int line) {
  int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data() + equals + 1, end, value);
  if (error != std::errc() || stop != end)
    throw ParseError("schedule line " + std::to_string(line) + ": `" + std::string(word) +
                     "` needs an integer after =");
  return value;
}

}  // namespace

std::string print(const Schedule& schedule) {
  std::ostringstream out;
  for (const Ownership& o : schedule.owners)
    out << "own " << o.loop << " row=" << o.row << " block=" << o.block << " parts=" << o.parts << '\n';
  for (const LoopSchedule& s : schedule.loops) {
    out << "loop " << s.loop;
    if (s.tile > 0) out << " tile=" << s.tile;
    out << ' ' << name(s.kind);
    if (s.kind == ForKind::kParallel) out << " grain=" << s.grain;
    if (s.kind == ForKind::kVector) out << " lanes=" << s.lanes << " accumulators=" << s.accumulators;
    out << '\n';
  }
  print_names(out, "order", schedule.order);
  print_names(out, "fuse", schedule.fuse);
  return out.str();
}

Schedule parse_schedule(std::string_view text) {
  Schedule out;
  std::istringstream lines{std::string(text)};
  std::string line, word;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    if (!(words >> word)) continue;
    if (word == "order" || word == "fuse") {
      auto& list = (word == "order" ? out.order : out.fuse).emplace_back();
      while (words >> word) list.push_back(word);
      continue;
    }
    if (word == "own") {
      Ownership& owner = out.owners.emplace_back();
      words >> owner.loop;
      while (words >> word) {
        const size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        if (key == "row" && equals != std::string::npos)
          owner.row = word.substr(equals + 1);
        else if (key == "block" || key == "parts")
          (key == "block" ? owner.block : owner.parts) = parse_number(word, equals, number);
        else
          throw ParseError("schedule line " + std::to_string(number) + ": unknown word `" + word + "`");
      }
      continue;
    }
    LoopSchedule s;
    if (word != "loop" || !(words >> s.loop))
      throw ParseError("schedule line " + std::to_string(number) +
                       ": expected `own NAME`, `loop NAME`, `order NAMES` or `fuse NAMES`");
    while (words >> word) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      if (equals == std::string::npos) {
        if (word == "serial")
          s.kind = ForKind::kSerial;
        else if (word == "parallel")
          s.kind = ForKind::kParallel;
        else if (word == "vector")
          s.kind = ForKind::kVector;
        else
          throw ParseError("schedule line " + std::to_string(number) + ": unknown word `" + word + "`");
        continue;
      }
      const int64_t value = parse_number(word, equals, number);
      if (key == "tile")
        s.tile = value;
      else if (key == "grain")
        s.grain = value;
      else if (key == "lanes")
        s.lanes = static_cast<int>(value);
      else if (key == "accumulators")
        s.accumulators = static_cast<int>(value);
      else
        throw ParseError("schedule line " + std::to_string(number) + ": unknown key `" + key + "`");
    }
    out.loops.push_back(std::move(s));
  }
  return out;
}

}  // namespace ipex::loop
