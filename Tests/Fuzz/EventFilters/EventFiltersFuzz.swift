// An input is one byte, which sets the size of slices, the options of a subscription up to a zero byte, and then an event.

import Events
import StreamProtocol

@testable import StreamServer

/// Reads one input; a broken invariant traps.
func fuzzEventFilters(_ input: UnsafeRawBufferPointer) {
  let input = [UInt8](input)
  guard let size = input.first else { return }
  let options = Array(input[1...].prefix { $0 != 0 })
  let event = Array(input.dropFirst(2 + options.count))
  if let filter = filter(options) { check(filter, event, sliceSize: Int(size) + 1) }
  checkNumbers(options, event)
}

/// The filter of valid options, which are the same once they were written.
private func filter(_ options: [UInt8]) -> EventFilter? {
  do throws(SubscribeOptions.Malformed) {
    let known = try SubscribeOptions(json: options)
    guard let filter = known.filter else { return nil }
    let written = try EventFilter(json: filter.json)
    precondition(written == filter && written.json == filter.json, "a filter changed when it was written")
    return filter
  } catch {
    precondition(!error.sentence.isEmpty && !error.sentence.contains("\n"), "an error of several lines")
    return nil
  }
}

/// The same verdict whatever the slices and whatever was examined before; and what is no JSON fits nothing.
private func check(_ filter: EventFilter, _ event: [UInt8], sliceSize: Int) {
  var matcher = EventMatcher(filter)
  let isFit = matcher.fits(event.span)
  precondition(!isFit || JSONSyntax.holds(for: event.span), "what is no JSON fits")
  precondition(matcher.fits(event.span) == isFit, "an event before made a difference")
  matcher.begin()
  var verdict = matcher.advance(in: event.span, by: sliceSize)
  for _ in 0...event.count where verdict == nil { verdict = matcher.advance(in: event.span, by: sliceSize) }
  precondition(verdict == isFit, "a slice made a difference")
}

/// The order of two numbers is one, and their forms agree with it.
private func checkNumbers(_ one: [UInt8], _ other: [UInt8]) {
  guard isNumber(one), isNumber(other) else { return }
  let (first, second) = (JSONNumber(one.span), JSONNumber(other.span))
  let order = first.compared(in: one.span, to: second, in: other.span)
  precondition(order == -second.compared(in: other.span, to: first, in: one.span), "an order of two directions")
  var forms: [[UInt8]] = [[], []]
  first.appendNormalForm(in: one.span, to: &forms[0])
  second.appendNormalForm(in: other.span, to: &forms[1])
  precondition((order == 0) == (forms[0] == forms[1]), "equal numbers of two forms, or others of one")
  if let number = EventFilter.Number(String(decoding: one, as: UTF8.self)) {
    let text = Array(number.description.utf8)
    precondition(isNumber(text), "a number's text is none")
    precondition(
      first.compared(in: one.span, to: JSONNumber(text.span), in: text.span) == 0, "a number's text is another's")
    if order == 0 {
      precondition(number == EventFilter.Number(String(decoding: other, as: UTF8.self)) || other.count > 1024)
    }
  }
  guard let left = Double(String(decoding: one, as: UTF8.self)),
    let right = Double(String(decoding: other, as: UTF8.self)),
    left != right
  else { return }
  precondition((order < 0) == (left < right), "another order than that of the nearest binary numbers")
}

private func isNumber(_ text: [UInt8]) -> Bool {
  guard let first = text.first, let last = text.last, JSONSyntax.holds(for: text.span) else { return false }
  return JSONScalar.kind(first) == .number && 0x30...0x39 ~= last && first > 0x20
}
