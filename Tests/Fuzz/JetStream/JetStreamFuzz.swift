// An input is an answer: of every kind, because the broker that sends it is hostile.

import Events
import Fleet

// Tests/Fuzz/run compiles the sources under test into the module of this file.
#if canImport(JetStream)
  @testable import JetStream
#endif

/// Reads one input; a broken invariant traps.
func fuzzJetStream(_ input: UnsafeRawBufferPointer) {
  let bytes = [UInt8](input)
  let limit = JetStreamAnswer.sequenceLimit

  for after in [0, 5, limit - 1] {
    if case .refused(let last) = JetStreamAnswer.appended(bytes, to: "streamd-test-0", after: after) {
      precondition(last < limit, "refused at \(last)")
    }
  }
  if let extent = JSONMembers(bytes).flatMap(JetStreamAnswer.extent) {
    precondition(extent.last < limit && extent.first <= extent.last + 1, "an extent of \(extent)")
  }
  if case .found(_, let sequence) = JetStreamAnswer.stored(bytes) {
    precondition(1..<limit ~= sequence, "an entry at \(sequence)")
  }

  let firstIndex = bytes.firstIndex { $0 != 0x20 && $0 != 0x0A && $0 != 0x0D && $0 != 0x09 }
  let isObject = JSONSyntax.holds(for: bytes.span) && firstIndex.map { bytes[$0] } == UInt8(ascii: "{")
  let members = JSONMembers(bytes)
  precondition((members != nil) == isObject, "an object is not read, or something else is")
  for name in ["a", "b", "", "stream", "seq", "error", "message", "data", "config", "subjects", "state"] {
    guard let members else { break }
    let isThere = members.has(name)
    let values: [Any?] = [
      members.number(name), members.flag(name), members.string(name), members.strings(name), members.object(name),
      members.base64(name),
    ]
    precondition(isThere || values.allSatisfy { $0 == nil }, "a member that is not there has a value")
    if let data = members.base64(name) { check(data, members.string(name)) }
    if let inner = members.object(name) { _ = inner.strings("a") }
  }

  if let number = Decimal.number(bytes) {
    let digits = Array(String(number).utf8)
    precondition(bytes.suffix(digits.count).elementsEqual(digits), "\(bytes) is read as \(number)")
  }
  if let data = Base64.decoded(bytes[...]) { check(data, String(decoding: bytes, as: UTF8.self)) }

  let names = JetStreamNames(fleet: "test", inbox: "0")
  let text = String(decoding: bytes, as: UTF8.self)
  _ = names.shard(ofTail: text)
  precondition(
    JetStreamNames.token(text).utf8.allSatisfy { 0x21...0x7E ~= $0 && $0 != 0x2A && $0 != 0x2E && $0 != 0x3E },
    "a stream's name is more than one part of a subject")
}

/// What was decoded is encoded as it was.
private func check(_ data: [UInt8], _ text: String?) {
  let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
  var encoded: [UInt8] = []
  for start in stride(from: 0, to: data.count, by: 3) {
    let group = data[start..<min(start + 3, data.count)]
    let word = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) } << UInt32(8 * (3 - group.count))
    for index in 0...3 {
      encoded.append(
        index > group.count ? UInt8(ascii: "=") : alphabet[Int(word >> UInt32(18 - 6 * index) & 63)])
    }
  }
  precondition(text.map { Array($0.utf8) } == encoded, "base64 is decoded that is not the encoding of the result")
}
