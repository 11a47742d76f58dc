import Events
import Glibc

/// Takes the answers and messages of an upstream apart, and finds the value that each part belongs to. Confined to the source
/// thread.
///
/// Programs that are paths are followed here; others run in a process, as `jq` does.
package final class UnionParts {
  /// jq programs without an error.
  package struct Programs: Sendable, Equatable {
    /// Makes the parts of an answer or a message; nil: it is one part.
    var each: String?
    /// Makes the value of a part: a string, a number or a boolean.
    var route: String
    /// Makes the value that a message refuses; nil: no message does.
    var refused: String?
    /// The values of variables that the programs use.
    var variables: [String: String] = [:]

    package init(each: String?, route: String, refused: String? = nil, variables: [String: String] = [:]) {
      (self.each, self.route, self.refused, self.variables) = (each, route, refused, variables)
    }
  }

  private struct Paths {
    var each: JSONFinder?
    var route: EventKeyReader
    var refused: EventKeyReader?
  }

  /// Bytes that are taken apart in one turn of the thread.
  static let shareOfTurn = 64 << 10

  private let programs: Programs
  private let context: SourceContext
  private var paths: Paths?
  private var examiner: JQExaminer?
  private var messages = EventBatch()
  private var index = 0
  private var elements: JSONElements?
  /// Gets the parts.
  private weak var union: ValueUnion?
  private var completed: ((SourceFailure?) -> Void)?
  private var isEnded = false

  init(_ programs: Programs, in context: SourceContext) {
    (self.programs, self.context) = (programs, context)
    paths = Self.paths(programs)
  }

  /// Whether all of the programs are paths.
  static func arePaths(_ programs: Programs) -> Bool { paths(programs) != nil }

  private static func paths(_ programs: Programs) -> Paths? {
    var each: JSONFinder?
    if let program = programs.each {
      let text = program.trimmed
      guard text.hasSuffix("[]") else { return nil }
      let place = text.dropLast(2)
      guard let steps = JSONPaths.steps(ofProgram: place.isEmpty ? "." : String(place)) else { return nil }
      each = JSONFinder(JSONPaths([steps]))
    }
    guard let route = EventKeyReader(KeyDefinition(key: programs.route)) else { return nil }
    guard let program = programs.refused else { return Paths(each: each, route: route) }
    return EventKeyReader(KeyDefinition(key: program)).map { Paths(each: each, route: route, refused: $0) }
  }

  /// Takes messages apart, at once or in later turns. There must be none that are not taken apart.
  ///
  /// - Parameters:
  ///   - union: gets each part, in order, with `ValueUnion.route`.
  ///   - completed: called once, perhaps within this call, unless `end` is called before.
  func separate(_ messages: EventBatch, for union: ValueUnion?, completed: @escaping (SourceFailure?) -> Void) {
    (self.messages, index, self.union, self.completed) = (messages, 0, union, completed)
    guard paths == nil else { return follow() }
    do throws(SourceFailure) {
      if examiner == nil {
        examiner = try JQExaminer(
          Self.transform(programs), for: "together", in: context, report: { [context] in context.report($0) }
        ) { [weak self] in self?.examined($0) }
      }
      examiner?.examine(messages)
    } catch { complete(error) }
  }

  /// Whether messages are not taken apart yet.
  var isBusy: Bool { completed != nil }

  /// Nothing is called any more.
  func end() {
    isEnded = true
    examiner?.end()
    (examiner, union, completed, messages, elements) = (nil, nil, nil, EventBatch(), nil)
  }

  private func complete(_ failure: SourceFailure? = nil) {
    let completed = completed
    (self.completed, messages) = (nil, EventBatch())
    completed?(failure)
  }

  // MARK: Paths

  /// Takes a share of the messages apart.
  private func follow() {
    var room = Self.shareOfTurn
    while room > 0, index < messages.count {
      if elements != nil {
        room -= followElements(room)
        continue
      }
      unsafe messages.withUnsafeBytes(of: index..<index + 1) { message in
        room -= message.count + 16
        unsafe begin(message.bindMemory(to: UInt8.self).span)
        return true
      }
      if elements == nil { index += 1 }
    }
    guard index < messages.count else { return complete() }
    _ = context.thread.loop.schedule(after: .zero) { [weak self] in
      if let self, !isEnded { follow() }
    }
  }

  private func begin(_ message: Span<UInt8>) {
    if let refused = paths?.refused?.key(of: message) { return union?.route(message, refused.bytes, true) ?? () }
    guard paths?.each != nil else { return union?.route(message, paths?.route.key(of: message)?.bytes) ?? () }
    guard paths?.each?.find(in: message) == true, let place = paths?.each?[0] else {
      return union?.route(message, nil) ?? ()
    }
    elements = unsafe JSONElements(of: message.withUnsafeBytes { unsafe Array($0) }, at: place.lowerBound)
  }

  /// - Returns: the number of bytes.
  private func followElements(_ room: Int) -> Int {
    guard var elements = self.elements.take() else { return 0 }
    let start = elements.position
    while elements.position - start < room {
      guard let range = elements.next() else {
        index += 1
        return elements.position - start
      }
      let part = elements.text.span.extracting(range)
      union?.route(part, paths?.route.key(of: part)?.bytes)
    }
    self.elements = elements
    return elements.position - start
  }

  // MARK: jq

  /// The key of a message that is a refusal is a tombstone.
  static func transform(_ programs: Programs) -> JQTransform {
    var transform = JQTransform(program: programs.each)
    transform.key = KeyDefinition(key: programs.route)
    if let program = programs.refused {
      let refused =
        "([try (\(program)\n\n) catch empty | select(type == \"string\" or type == \"number\")] | first)"
      transform.program = "if \(refused) != null then . else (\(programs.each ?? ".")\n\n) end"
      transform.key = KeyDefinition(
        key: "\(refused) as $refused | if $refused != null then $refused else (\(programs.route)\n\n) end",
        tombstone: "\(refused) != null")
    }
    transform.variables = programs.variables
    return transform
  }

  private func examined(_ result: Result<[JQAnswer], SourceFailure>) {
    guard case .success(let answers) = result else {
      examiner = nil
      return complete(result.failure)
    }
    var (count, failure) = (0, String?.none)
    for (index, answer) in answers.enumerated() {
      if let sentence = answer.failure { (count, failure) = (count + 1, sentence) }
      if answer.outputs.isEmpty { union?.route(messages[index].span, nil) }
      for output in answer.outputs {
        let event = output.event ?? messages[index]
        union?.route(event.span, output.key?.bytes, output.key?.isTombstone == true)
      }
    }
    if let failure { context.report(.lost("route or each fails: \(failure)", count: count)) }
    complete()
  }
}

extension Result where Failure == SourceFailure {
  fileprivate var failure: SourceFailure? { if case .failure(let failure) = self { failure } else { nil } }
}

extension String {
  fileprivate var trimmed: Substring {
    let text = drop { $0 == " " }
    return text.prefix(text.count - text.reversed().prefix { $0 == " " }.count)
  }
}

/// The elements of an array, or the values of an object, in a JSON text.
struct JSONElements {
  let text: [UInt8]
  /// Where the next element is searched.
  private(set) var position: Int
  private let isObject: Bool
  private var isOver: Bool

  /// - Parameters:
  ///   - text: one JSON text.
  ///   - place: where a value begins in it. One that is neither an array nor an object has no elements.
  init(of text: [UInt8], at place: Int) {
    self.text = text
    isObject = text[place] == UInt8(ascii: "{")
    isOver = !isObject && text[place] != UInt8(ascii: "[")
    position = place + 1
  }

  /// The place of the next element.
  mutating func next() -> Range<Int>? {
    guard !isOver else { return nil }
    skip(" \t\r\n,")
    if isObject, position < text.count, text[position] == UInt8(ascii: "\"") {
      skipString()
      skip(" \t\r\n:")
    }
    guard position < text.count, text[position] != UInt8(ascii: "]"), text[position] != UInt8(ascii: "}") else {
      isOver = true
      return nil
    }
    let start = position
    skipValue()
    return start..<position
  }

  private mutating func skip(_ bytes: StaticString) {
    while position < text.count, unsafe memchr(bytes.utf8Start, CInt(text[position]), bytes.utf8CodeUnitCount) != nil {
      position += 1
    }
  }

  private mutating func skipString() {
    position += 1
    while position < text.count, text[position] != UInt8(ascii: "\"") {
      position += text[position] == UInt8(ascii: "\\") ? 2 : 1
    }
    position = min(position + 1, text.count)
  }

  private mutating func skipValue() {
    var depth = 0
    while position < text.count {
      switch text[position] {
      case UInt8(ascii: "\""): skipString()
      case UInt8(ascii: "["), UInt8(ascii: "{"):
        depth += 1
        position += 1
        continue
      case UInt8(ascii: "]"), UInt8(ascii: "}"):
        guard depth > 0 else { return }
        depth -= 1
        position += 1
      case UInt8(ascii: ","), 0x20, 0x09, 0x0A, 0x0D:
        guard depth > 0 else { return }
        position += 1
        continue
      default:
        position += 1
        continue
      }
      if depth == 0 { return }
    }
  }
}
