#include "apps/markdown.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "apps/catalog.h"
#include "gravac/codec/compressors.h"
#include "gravac/codec/quantise/quantisers.h"
#include "gravac/codec/select/selector.h"
#include "gravac/comm/route.h"
#include "gravac/config.h"
#include "gravac/policy/policies.h"

namespace gravac::apps {
namespace {

using Row = std::vector<std::string>;

std::string code(std::string_view text) {
  std::string all = "`";
  all += text;
  all += '`';
  return all;
}

// "|" begins the next cell of a table unless it is escaped.
std::string escaped(std::string_view text) {
  std::string all;
  for (const char c : text) {
    if (c == '|') all += '\\';
    all += c;
  }
  return all;
}

std::string row(const Row& cells) {
  std::string line;
  for (const std::string& cell : cells) line.append("| ").append(escaped(cell)).append(" ");
  return line + "|\n";
}

std::string table(const Row& heads, const std::vector<Row>& rows) {
  std::string all = row(heads) + "|";
  for (std::size_t i = 0; i < heads.size(); ++i) all += "---|";
  all += "\n";
  for (const Row& cells : rows) all += row(cells);
  return all;
}

std::string region(std::string_view name, const std::string& text) {
  std::ostringstream all;
  all << "<!-- begin " << name << ": written by make docs, do not edit -->\n\n"
      << text << "\n<!-- end " << name << " -->\n\n";
  return all.str();
}

// One table for each group of options, under its heading. `shown` makes a name of the option.
template <class Table, class Shown>
std::string option_tables(const Table& options, std::string_view what, const Shown& shown) {
  std::ostringstream all;
  std::string_view group;
  for (const auto& option : options) {
    if (option.group != group) {
      all << (group.empty() ? "" : "\n") << "### " << option.group << "\n\n"
          << table({std::string(what), "value", "default", "what it does"}, {});
    }
    group = option.group;
    const bool flag = option.kind == OptionInfo::Kind::flag;
    all << row({code(shown(option.name)), std::string(flag ? "true|false" : option.value),
                std::string(option.default_value), std::string(option.help)});
  }
  return all.str();
}

std::string python_name(std::string_view name) {
  std::string all(name);
  std::replace(all.begin(), all.end(), '-', '_');
  return all;
}

std::string model_table() {
  std::vector<Row> rows;
  for (const train::Known& model : catalog().models) {
    rows.push_back({code(model.name), model.text ? "text" : "images", model.description});
  }
  return table({"model", "trained on", "what it is"}, rows);
}

std::string data_table() {
  std::vector<Row> rows;
  for (const train::Known& data : catalog().data) {
    rows.push_back({code(data.name), data.text ? "text" : "images",
                    data.needs_files ? "files in `--data-dir`" : "built in", data.description});
  }
  return table({"data set", "holds", "source", "what it is"}, rows);
}

// "k", or "0.8 k to 1.3 k"
std::string kept(const SelectorInfo& info) {
  std::ostringstream all;
  const auto times_k = [&](double share) {
    if (share != 1) all << share << " ";
    all << "k";
  };
  times_k(info.fewest);
  if (info.fewest == info.most) return all.str();
  all << " to ";
  times_k(info.most);
  return all.str();
}

std::string compressor_table() {
  std::vector<Row> rows;
  for (const SelectorInfo& info : selectors()) {
    rows.push_back({code(info.name),
                    kept(info) + (info.shared_positions ? " values" : " positions and values"),
                    std::string(info.description)});
  }
  for (const QuantiserInfo& info : quantisers()) {
    rows.push_back({code(info.name),
                    (info.bits > 0 ? std::to_string(info.bits) : "1 to 8") + " bits of every entry",
                    std::string(info.description)});
  }
  for (const CompressorInfo& info : compressors()) {
    if (info.as_payloads) continue;
    rows.push_back({code(info.name), "two factors of every matrix", std::string(info.description)});
  }
  return table({"compressor", "what a worker sends", "what it does"}, rows);
}

std::string policy_table() {
  std::vector<Row> rows;
  for (const PolicyInfo& info : policies()) {
    std::string options;
    for (const OptionInfo& option : policy_options()) {
      if (!info.reads(option.name)) continue;
      if (!options.empty()) options += ", ";
      options += code(option.name);
    }
    rows.push_back({code(info.name), options, std::string(info.description)});
  }
  return table({"policy", "its options", "what it does"}, rows);
}

std::string exchange_table() {
  std::vector<Row> rows;
  for (const RouteInfo& info : routes()) rows.push_back({code(info.name), std::string(info.description)});
  return table({"exchange", "what it does"}, rows);
}

}  // namespace

std::string tables_as_markdown() {
  const auto as_flag = [](std::string_view name) { return "--" + std::string(name); };
  return region("options", option_tables(train::option_table(), "option", as_flag)) +
         region("models", model_table()) + region("data", data_table()) +
         region("compressors", compressor_table()) + region("policies", policy_table()) +
         region("exchanges", exchange_table()) +
         region("engine-options", option_tables(engine_options(), "keyword", python_name));
}

}  // namespace gravac::apps
