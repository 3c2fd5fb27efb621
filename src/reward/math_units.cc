#include "reward/math_units.h"

#include <array>
#include <utility>

namespace tandem {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 68> kUnits = {{
    {"mm", "mm"},
    {"millimeter", "mm"},
    {"cm", "cm"},
    {"centimeter", "cm"},
    {"centimetre", "cm"},
    {"meter", "m"},
    {"metre", "m"},
    {"m", "m"},
    {"km", "km"},
    {"kilometer", "km"},
    {"kilometre", "km"},
    {"in", "in"},
    {"inch", "in"},
    {"inche", "in"},
    {"ft", "ft"},
    {"foot", "ft"},
    {"feet", "ft"},
    {"yard", "yd"},
    {"yd", "yd"},
    {"mi", "mi"},
    {"mile", "mi"},
    {"mg", "mg"},
    {"gram", "g"},
    {"kg", "kg"},
    {"kilogram", "kg"},
    {"lb", "lb"},
    {"pound", "lb"},
    {"ounce", "oz"},
    {"oz", "oz"},
    {"ton", "ton"},
    {"second", "s"},
    {"sec", "s"},
    {"minute", "min"},
    {"min", "min"},
    {"hour", "h"},
    {"hr", "h"},
    {"day", "day"},
    {"week", "week"},
    {"month", "month"},
    {"year", "year"},
    {"dollar", "dollar"},
    {"cent", "cent"},
    {"degree", "degree"},
    {"radian", "rad"},
    {"liter", "l"},
    {"litre", "l"},
    {"ml", "ml"},
    {"mph", "mph"},
    {"km/h", "km/h"},
    {"kmh", "km/h"},
    {"m/", "m/s"},
    {"unit", "unit"},
    {"squareunit", "unit^2"},
    {"squ", "unit^2"},
    {"squnit", "unit^2"},
    {"cubicunit", "unit^3"},
    {"squareinche", "in^2"},
    {"squareinch", "in^2"},
    {"squarecentimeter", "cm^2"},
    {"squaremeter", "m^2"},
    {"squarefeet", "ft^2"},
    {"squarefoot", "ft^2"},
    {"cubicinche", "in^3"},
    {"cubicinch", "in^3"},
    {"cubiccentimeter", "cm^3"},
    {"cubicmeter", "m^3"},
    {"cubicfeet", "ft^3"},
    {"cubicfoot", "ft^3"},
}};

}  // namespace

std::string_view unit_name(std::string_view word) {
  for (int plural = 0; plural < 2; ++plural) {
    for (const auto& [name, canonical] : kUnits)
      if (name == word) return canonical;
    if (!word.ends_with('s')) break;
    word.remove_suffix(1);
  }
  return {};
}

}  // namespace tandem
