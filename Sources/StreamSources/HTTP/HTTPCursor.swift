import Events

/// Where a poll continues: each answer may bring a position, which the next request has.
public struct HTTPCursor: Sendable, Equatable {
  /// Where an answer has the position.
  public enum Origin: Sendable, Equatable {
    /// An output of a jq program without error, for the body.
    case program(String)
    /// A field of the response.
    case header(String)
    /// The target of a link with this relation, which is the URL of the next request. Source: RFC 8288.
    case link(String)
  }

  /// Where a request has the position.
  public enum Place: Sendable, Equatable {
    /// The value of a parameter that is added to the URL's query.
    case query(String)
    /// A field of the request.
    case header(String)
    /// The text, number or null at this JSON pointer in the body.
    case body(String)
    /// The URL, for a link.
    case url
  }

  /// A text or a number. May be a secret: never printed.
  public struct Position: Sendable, Equatable {
    /// The text, or the number as JSON has it.
    public var text: String
    /// Whether a body has it as a number.
    public var isNumber: Bool

    /// Maximum bytes.
    static let limit = 1 << 10

    /// At most 1 KiB.
    public init(_ text: String, isNumber: Bool = false) { (self.text, self.isNumber) = (text, isNumber) }
  }

  /// Where an answer has the position.
  public var origin: Origin
  /// Where a request has the position.
  public var place: Place
  /// The first position; nil: the first request has none.
  public var start: Position?
  /// Added to each position, which is an integer then; nil: positions may be anything.
  public var addend: Int?
  /// Maximum requests in a row: after an answer with a new position and an event, the next one follows at once.
  public var pages = 1
  /// The values of variables that the program uses.
  package var variables: [String: String] = [:]

  /// Everything else has a default.
  public init(_ origin: Origin, in place: Place) { (self.origin, self.place) = (origin, place) }

  /// What a stored position belongs to.
  var definition: [String] { ["\(origin)", "\(place)", start.map { "\($0)" } ?? "", addend.map { "\($0)" } ?? ""] }

  /// Whether the body has the position's place.
  /// - Parameters:
  ///   - pointer: the place, a JSON Pointer (RFC 6901).
  ///   - body: JSON or not.
  public static func hasPlace(_ pointer: String, in body: [UInt8]) -> Bool { range(of: pointer, in: body) != nil }

  fileprivate static func range(of pointer: String, in body: [UInt8]) -> Range<Int>? {
    guard let steps = JSONPaths.steps(ofPointer: pointer) else { return nil }
    var finder = JSONFinder(JSONPaths([steps]))
    guard finder.find(in: body.span), let range = finder[0] else { return nil }
    return [.string, .number, .null].contains(JSONScalar.kind(body[range.lowerBound])) ? range : nil
  }
}

/// The position of a poll as values: what answers bring, and what requests get.
struct PollPosition: Equatable {
  typealias Position = HTTPCursor.Position

  let cursor: HTTPCursor
  /// That of the next request; nil: it has none.
  var current: Position?

  init(_ cursor: HTTPCursor, at stored: Position? = nil) { (self.cursor, current) = (cursor, stored ?? cursor.start) }

  // MARK: Requests

  /// Adds the position to a request.
  /// - Parameter query: of the configuration, which a link has besides its own.
  /// - Throws: if the request cannot have it.
  func apply(to request: inout UpstreamRequest, adding query: [HTTPQueryItem]) throws(SourceFailure) {
    guard let current else { return }
    request.login = request.login ?? request.url.login  // a URL with a position has no user
    switch cursor.place {
    case .query(let name): request.url = try request.url.adding(HTTPQueryItem(name: name, value: current.text))
    case .header(let name):
      guard FieldValue(Array(current.text.utf8)).isValid else {
        throw Self.failure("has a control character, which the field \(name) cannot have")
      }
      request.positionField = HTTPHeader(name: name, value: current.text)
    case .body(let pointer):
      guard var body = request.body, let range = HTTPCursor.range(of: pointer, in: body.bytes) else {
        throw SourceFailure("the body has no text, number or null for the position")
      }
      body.bytes.replaceSubrange(range, with: (current.isNumber ? current.text : JSONScalar.quoted(current.text)).utf8)
      // The position is for the origin of the URL.
      body.isSecret = true
      request.body = body
    case .url:
      let url = try HTTPURL(FieldValue(Array(current.text.utf8)), relativeTo: request.url, adding: query)
      // A stored position may come from a damaged disk.
      guard url.origin == request.url.origin else { throw Self.elsewhere }
      request.url = url
    }
  }

  // MARK: Answers

  /// The field of a response that has the position.
  var field: String? {
    switch cursor.origin {
    case .program: nil
    case .header(let name): name
    case .link: "Link"
    }
  }

  /// The position in a field of the response.
  ///
  /// - Parameters:
  ///   - origin: of the source's URL.
  ///   - query: of the configuration.
  /// - Throws: if it can be none.
  func position(
    in head: UpstreamResponse, from origin: HTTPURL.Origin?, without query: [HTTPQueryItem]
  ) throws(SourceFailure) -> Position? {
    switch cursor.origin {
    case .program: return nil
    case .header(let name): return try checked(Position(head.answer[name]?.first ?? ""))
    case .link(let relation):
      guard let base = try? HTTPURL(head.url),
        let target = LinkField.target(of: relation, in: head.answer["Link"] ?? [])
      else { return nil }
      let reference = target.prefix { $0 != "#" }
      guard let url = reference.isEmpty ? base : try? HTTPURL(FieldValue(Array(reference.utf8)), relativeTo: base)
      else {
        throw Self.failure("is a link that is not a valid URL")
      }
      guard url.origin == origin else { throw Self.elsewhere }
      // What the configuration adds may be secret, and is added again.
      return try checked(Position(url.relative(without: query)))
    }
  }

  /// The position in the outputs of the program.
  /// - Throws: if they are none.
  func position(in answer: JQAnswer, of body: [UInt8]) throws(SourceFailure) -> Position? {
    // The message of jq may have parts of the answer, and so the position.
    guard answer.failure == nil else { throw SourceFailure("cursor.from fails on the answer; the position stays") }
    guard answer.outputs.count <= 1 else { throw Self.failure("is one text or number, cursor.from has several") }
    guard let value = answer.outputs.first.map({ $0.event ?? body }), let first = value.first else { return nil }
    switch JSONScalar.kind(first) {
    case .null: return nil
    case .number: return try checked(Position(String(decoding: value, as: UTF8.self), isNumber: true))
    case .string:
      var text: [UInt8] = []
      JSONScalar.appendUnescaped(value.span.extracting(1..<value.count - 1), to: &text)
      guard let text = String(validating: text, as: UTF8.self) else {
        throw Self.failure("has half of a surrogate pair")
      }
      return try checked(Position(text))
    case .boolean: throw Self.failure("is a text or a number, cursor.from has true or false")
    case .array, .object: throw Self.failure("is a text or a number, cursor.from has an array or an object")
    }
  }

  /// The position with `addend`; nil for an empty one.
  private func checked(_ position: Position) throws(SourceFailure) -> Position? {
    guard !position.text.isEmpty else { return nil }
    guard position.text.utf8.count <= Position.limit else { throw Self.failure("is over 1 KiB") }
    if case .header(let name) = cursor.place, !FieldValue(Array(position.text.utf8)).isValid {
      throw Self.failure("has a control character, which the field \(name) cannot have")
    }
    guard let addend = cursor.addend else { return position }
    let digits = position.text.first == "-" ? position.text.dropFirst() : position.text[...]
    guard !digits.isEmpty, digits.utf8.allSatisfy({ 0x30...0x39 ~= $0 }) else {
      throw Self.failure("is no integer, to which cursor.add could add")
    }
    guard let (sum, overflows) = Int128(position.text)?.addingReportingOverflow(Int128(addend)), !overflows else {
      throw Self.failure("is beyond 128 bits")
    }
    return Position("\(sum)", isNumber: position.isNumber)
  }

  private static func failure(_ what: String) -> SourceFailure {
    SourceFailure("the position in the answer \(what); the one before stays")
  }

  private static let elsewhere = failure("is a link to another origin")
}

/// Link fields. Source: RFC 8288, appendix B.2.
enum LinkField {
  /// The target of the first link with that relation; nil: there is none.
  static func target(of relation: String, in fields: [String]) -> String? {
    for field in fields {
      var rest = Array(field.unicodeScalars)[...]
      while let start = rest.firstIndex(of: "<") {
        rest = rest[(start + 1)...]
        guard let end = rest.firstIndex(of: ">") else { break }
        let target = rest[..<end]
        rest = rest[(end + 1)...]
        if relations(&rest).contains(where: { $0.lowercased() == relation.lowercased() }) {
          return String(String.UnicodeScalarView(target))
        }
      }
    }
    return nil
  }

  /// The relations in the parameters of a link, which end before the next link.
  private static func relations(_ rest: inout ArraySlice<Unicode.Scalar>) -> [Substring] {
    var relations: String?
    while let sign = rest.first, sign != "," {
      rest.removeFirst()
      guard sign == ";" else { continue }
      let name = String(String.UnicodeScalarView(rest.prefix { !";,=".unicodeScalars.contains($0) }))
      rest = rest.dropFirst(name.unicodeScalars.count)
      guard rest.first == "=" else { continue }
      rest.removeFirst()
      let value = value(&rest)
      if relations == nil, name.trimmed.lowercased() == "rel" { relations = value }
    }
    return (relations ?? "").split(separator: " ")
  }

  private static func value(_ rest: inout ArraySlice<Unicode.Scalar>) -> String {
    rest = rest.drop { $0 == " " || $0 == "\t" }
    var value = String.UnicodeScalarView()
    guard rest.first == "\"" else {
      value.append(contentsOf: rest.prefix { $0 != ";" && $0 != "," })
      rest = rest.dropFirst(value.count)
      return String(value).trimmed
    }
    rest.removeFirst()
    while let sign = rest.popFirst(), sign != "\"" {
      guard let sign = sign == "\\" ? rest.popFirst() : sign else { break }
      value.append(sign)
    }
    return String(value)
  }
}

extension String {
  fileprivate var trimmed: String {
    String(Substring(drop { $0 == " " || $0 == "\t" }.reversed().drop { $0 == " " || $0 == "\t" }.reversed()))
  }
}
