// An input is five lines: the name of a template, the characters and the values of its first parameter (separated by spaces), the
// name of a stream, and the number of a place; then the text that is at this place.

import Events

@testable import StreamServer

/// Reads one input; a broken invariant traps.
func fuzzTemplates(_ input: UnsafeRawBufferPointer) {
  let parts = [UInt8](input).split(separator: UInt8(ascii: "\n"), maxSplits: 5, omittingEmptySubsequences: false)
  let lines = parts.map { String(decoding: $0, as: UTF8.self) }
  guard lines.count == 6, let template = template(lines[0], lines[1], lines[2]) else { return }
  checkNames(template, lines[3])
  let places: [TextExpansion.Place] = [.text, .url, .json, .word, .rule, .match, .fixed, .program]
  checkText(lines[5], in: places[Int(lines[4].utf8.first ?? 0) % places.count], template)
}

private func template(_ name: String, _ characters: String, _ values: String) -> NameTemplate? {
  var rules = NameTemplate.Parameter()
  if let set = NameCharacters(characters) {
    precondition(NameCharacters("\(set)") == set, "a set changed when it was written")
    rules = .init(characters: set)
  }
  let list = values.split(separator: " ").map(String.init).filter(rules.permits)
  if !list.isEmpty { rules = .init(values: Array(list.prefix(100))) }
  do throws(NameTemplate.Fault) {
    let first = name.split(separator: "{").dropFirst().first?.prefix { $0 != "}" } ?? ""
    return try NameTemplate(name, parameters: [String(first): rules])
  } catch {
    precondition(error.sentence.hasPrefix("expected ") && !error.sentence.contains("\n"), "\(error.sentence)")
    return nil
  }
}

/// A name has the values of which it is made, and no others.
private func checkNames(_ template: NameTemplate, _ name: String) {
  let all = NameTemplates([template])
  if case .values(let values) = template.match(name) {
    precondition(template.name(for: values) == name, "a name changed")
    precondition(all.match(name)?.values == values, "a search finds something else")
  } else {
    precondition(all.match(name) == nil, "a search finds what does not fit")
  }
  for values in template.longestValues + template.oddestValues {
    let name = template.name(for: values)
    precondition(name.utf8.count <= NameTemplate.longestName, "\(name) is too long")
    precondition(template.match(name) == .values(values), "\(name) has other values than \(values)")
  }
  guard let shared = template.example(sharedWith: template), case .values = template.match(shared) else {
    preconditionFailure("a template shares no name with itself")
  }
}

/// Whatever the values, the text says the same to those who read it at its place.
private func checkText(_ text: String, in place: TextExpansion.Place, _ template: NameTemplate) {
  var meanings: Set<[String]> = []
  for values in template.oddestValues + template.longestValues.prefix(1) {
    let expansion = TextExpansion(values, of: template)
    do throws(NameTemplate.Fault) {
      guard let expanded = try expansion.expand(text, in: place, at: 1) else { return }
      precondition(place != .fixed && place != .program, "an expression is replaced where none is")
      precondition(expanded.utf8.count { $0 < 0x21 } == text.utf8.count { $0 < 0x21 }, "another line or word")
      if let meaning = meaning(of: expanded, in: place) { meanings.insert(meaning) }
      if place == .word, expanded.hasPrefix("-") { precondition(text.hasPrefix("-"), "a value is an option") }
    } catch {
      precondition(!error.sentence.isEmpty && !error.sentence.contains("\n"), "an error of several lines")
      return
    }
  }
  precondition(meanings.count <= 1, "a value changes what the text is: \(meanings)")
}

/// What no value may change; nil: nothing is known of the text.
private func meaning(of text: String, in place: TextExpansion.Place) -> [String]? {
  switch place {
  case .url:
    guard let scheme = text.firstRange(of: "://") else { return [text] }
    let authority = text[scheme.upperBound...].prefix { !"/?#".contains($0) }
    return [String(text[..<scheme.lowerBound]), String(authority), "\(text.utf8.count { $0 == UInt8(ascii: "%") })"]
  case .json: return JSONSyntax.holds(for: Array(text.utf8).span) ? [skeleton(text)] : nil
  case .rule: return [String(text.prefix { $0 != ":" })]
  case .match: return [String(text.prefix { $0 != "=" })]
  case .text, .word, .fixed, .program: return nil
  }
}

/// The brackets, commas and colons of a JSON text.
private func skeleton(_ text: String) -> String {
  var (result, isInString, isEscaped) = ("", false, false)
  for character in text.unicodeScalars {
    if isEscaped {
      isEscaped = false
    } else if character == "\\" {
      isEscaped = isInString
    } else if character == "\"" {
      isInString.toggle()
    } else if !isInString, "{}[],:".unicodeScalars.contains(character) {
      result.unicodeScalars.append(character)
    }
  }
  return result
}
