/// The definition of the keys of a stream's events: jq programs.
package struct KeyDefinition: Hashable, Sendable {
  /// The program whose result is the key, if that is a string, a number or a boolean.
  package let key: String
  /// The program whose result is `true` for an event that removes the key from the state; nil: no event does.
  package let tombstone: String?

  /// Creates a definition from any programs.
  package init(key: String, tombstone: String? = nil) { (self.key, self.tombstone) = (key, tombstone) }
}

/// Reads the keys of events that are JSON texts, by paths. Not thread-safe.
package struct EventKeyReader: Sendable {
  private var finder: JSONFinder
  private let hasTombstones: Bool
  /// The number of events read that are not JSON texts.
  package private(set) var malformedCount: UInt64 = 0

  /// The first byte of a key's normal form, which keeps keys of different types apart.
  private enum Kind {
    static let string = UInt8(ascii: "s")
    static let number = UInt8(ascii: "n")
  }

  /// - Returns: nil if one of the programs is more than a path.
  package init?(_ definition: KeyDefinition) {
    guard let key = JSONPaths.steps(ofProgram: definition.key) else { return nil }
    var paths = [key]
    if let tombstone = definition.tombstone {
      guard let steps = JSONPaths.steps(ofProgram: tombstone) else { return nil }
      paths.append(steps)
    }
    (finder, hasTombstones) = (JSONFinder(JSONPaths(paths)), paths.count > 1)
  }

  /// Adds the key of the next event.
  package mutating func append(keyOf event: Span<UInt8>, to keys: inout EventKeys) {
    keys.append { bytes in read(event, finder.find(in: event), into: &bytes) }
  }

  /// The keys of all events of a batch. Those that were read are not read again.
  /// - Parameter definition: of the keys; see `EventKeys`.
  package mutating func keys(of batch: EventBatch, definition: UInt64 = 0) -> EventKeys {
    let known = batch.keys.flatMap { $0.definition == definition ? $0 : nil }
    if let known, !known.hasUnread { return known }
    var keys = EventKeys(definition: definition)
    keys.reserveCapacity(batch.count)
    unsafe batch.withUnsafeBytes(of: 0..<batch.count) { event in
      let index = keys.count
      if let known, !known.isUnread(index) {
        keys.append(known, index..<index + 1)
      } else {
        append(keyOf: unsafe event.bindMemory(to: UInt8.self).span, to: &keys)
      }
      return true
    }
    return keys
  }

  /// Begins with an event that arrives in parts.
  package mutating func begin() { finder.begin() }

  /// Examines the bytes of the event that were added since the last call. After false, nothing of it is of use.
  package mutating func continues(in event: Span<UInt8>) -> Bool { finder.continues(in: event) }

  /// Adds the key of an event that is complete, and that has been examined to its end.
  /// - Parameter isText: whether all of its parts can be parts of a JSON text.
  package mutating func finish(_ event: Span<UInt8>, isText: Bool, to keys: inout EventKeys) {
    let isText = isText && finder.finish()
    keys.append { bytes in read(event, isText, into: &bytes) }
  }

  /// The key of an event; nil: it has none.
  package mutating func key(of event: Span<UInt8>) -> EventKey? {
    var bytes: [UInt8] = []
    let isTombstone = read(event, finder.find(in: event), into: &bytes)
    return EventKey(bytes, isTombstone: isTombstone)
  }

  /// Appends the key to `bytes`; nothing if there is no key.
  /// - Parameter isText: whether the event is a JSON text, in which the finder has found the places.
  /// - Returns: whether the event is a tombstone.
  @inline(__always) private mutating func read(
    _ event: Span<UInt8>, _ isText: Bool, into bytes: inout [UInt8]
  ) -> Bool {
    guard isText else {
      malformedCount &+= 1
      return false
    }
    guard let place = finder[0] else { return false }
    Self.append(event.extracting(place), to: &bytes)
    guard hasTombstones, let flag = finder[1] else { return false }
    return event[flag.lowerBound] == UInt8(ascii: "t")
  }

  /// The keys that a text can mean. A string in quotes, as in JSON, means that string. A number or a boolean means that
  /// value, or else the string. Any other text means the string.
  package static func keys(namedBy text: String) -> [[UInt8]] {
    let bytes = Array(text.utf8)
    let string = [Kind.string] + bytes
    guard let first = bytes.first, !bytes.contains(where: { $0 <= 0x20 && first != UInt8(ascii: "\"") }),
      JSONSyntax.holds(for: bytes.span)
    else { return [string] }
    var key: [UInt8] = []
    append(bytes.span, to: &key)
    return key.isEmpty ? [string] : key[0] == Kind.string ? [key] : [key, string]
  }

  /// The most bytes of a key as written: 1,024 bytes of a string, each as an escape of 6 bytes, and its quotes.
  private static let mostWrittenBytes = 6 * 1024 + 2

  /// Appends the normal form of a scalar, as written in JSON; appends nothing for a value that cannot be a key, as one of
  /// more than 6,146 bytes.
  package static func append(_ value: Span<UInt8>, to bytes: inout [UInt8]) {
    guard value.count <= mostWrittenBytes else { return }
    switch JSONScalar.kind(value[0]) {
    case .string:
      bytes.append(Kind.string)
      JSONScalar.appendUnescaped(value.extracting(1..<value.count - 1), to: &bytes)
    case .number:
      bytes.append(Kind.number)
      JSONNumber(value).appendNormalForm(in: value, to: &bytes)
    case .boolean: bytes.append(value[0])
    case .null, .array, .object: break
    }
  }
}

extension JSONPaths {
  /// The steps of a jq program that is only a path: `.a.b`, `.["a b"]`, `."a"`, `.a[0]`, or `.` alone.
  /// - Parameter mayBeLast: whether `.a[-1]`, the last element, is a path, too.
  /// - Returns: nil for any other program, and for a path that is deeper than any text.
  package static func steps(ofProgram text: String, mayBeLast: Bool = false) -> [Step]? {
    var rest = Array(text.utf8)[...]
    while rest.first == 0x20 { rest.removeFirst() }
    while rest.last == 0x20 { rest.removeLast() }
    guard rest.first == UInt8(ascii: ".") else { return nil }
    guard rest.count > 1 else { return [] }
    var steps: [Step] = []
    while let byte = rest.first {
      guard steps.count < JSONSyntax.depthLimit else { return nil }
      if byte == UInt8(ascii: "[") {
        guard !steps.isEmpty, let step = bracketed(&rest, mayBeLast) else { return nil }
        steps.append(step)
        continue
      }
      guard byte == UInt8(ascii: ".") else { return nil }
      rest.removeFirst()
      switch rest.first {
      case UInt8(ascii: "["): if let step = bracketed(&rest, mayBeLast) { steps.append(step) } else { return nil }
      case UInt8(ascii: "\""): if let name = quoted(&rest) { steps.append(Step(name: name)) } else { return nil }
      case _:
        let name = rest.prefix { isIdentifier($0) }
        guard let first = name.first, !(0x30...0x39 ~= first) else { return nil }
        rest.removeFirst(name.count)
        steps.append(Step(name: Array(name)))
      }
    }
    return steps
  }

  /// The JSON Pointer of a jq program that is only a path; nil for any other program. Source: RFC 6901.
  package static func pointer(ofProgram text: String) -> String? {
    guard let steps = steps(ofProgram: text) else { return nil }
    return steps.reduce(into: "") { pointer, step in
      pointer += "/"
      for character in step.name.map({ String(decoding: $0, as: UTF8.self) }) ?? step.index.map(String.init) ?? "" {
        pointer += character == "~" ? "~0" : character == "/" ? "~1" : String(character)
      }
    }
  }

  private static func isIdentifier(_ byte: UInt8) -> Bool {
    byte == UInt8(ascii: "_") || 0x30...0x39 ~= byte || 0x41...0x5a ~= byte || 0x61...0x7a ~= byte
  }

  /// `["name"]`, `[0]` or `[-1]`.
  private static func bracketed(_ rest: inout ArraySlice<UInt8>, _ mayBeLast: Bool) -> Step? {
    rest.removeFirst()
    let step: Step
    if rest.first == UInt8(ascii: "\"") {
      guard let name = quoted(&rest) else { return nil }
      step = Step(name: name)
    } else if mayBeLast, rest.starts(with: "-1]".utf8) {
      step = Step(name: nil, index: Step.last)
      rest.removeFirst(2)
    } else {
      let digits = Array(rest.prefix { 0x30...0x39 ~= $0 })
      guard let index = index(digits) else { return nil }
      rest.removeFirst(digits.count)
      step = Step(name: nil, index: index)
    }
    guard rest.popFirst() == UInt8(ascii: "]") else { return nil }
    return step
  }

  /// A string as in JSON, without jq's `\(…)`.
  private static func quoted(_ rest: inout ArraySlice<UInt8>) -> [UInt8]? {
    var end = rest.startIndex + 1
    while end < rest.endIndex, rest[end] != UInt8(ascii: "\"") { end += rest[end] == UInt8(ascii: "\\") ? 2 : 1 }
    guard end < rest.endIndex else { return nil }
    let text = Array(rest[rest.startIndex...end])
    guard JSONSyntax.holds(for: text.span) else { return nil }
    var name: [UInt8] = []
    JSONScalar.appendUnescaped(text.span.extracting(1..<text.count - 1), to: &name)
    rest = rest[(end + 1)...]
    return name
  }
}
