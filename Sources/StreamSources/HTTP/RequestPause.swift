import StreamProtocol
import StreamRuntime

/// What a response says of the time of the next request.
struct RequestPause: Equatable {
  /// From now on, greater than zero.
  var duration: Duration
  /// Ends the sentence on what waits: `rate limit of api.example.org`.
  var reason: String

  /// The sentence on what waits from now on.
  var sentence: String { sentence(at: WallTime.now.milliseconds) }

  /// - Parameter now: milliseconds since the Unix epoch.
  func sentence(at now: Int) -> String {
    let end = WallTime(milliseconds: now + duration.wholeMilliseconds)
    return "waits until \(end.description.dropFirst(11).prefix(8))Z: \(reason)"
  }

  /// The pause for all requests with the same credential to the host, from the fields of any answer.
  ///
  /// - Parameters:
  ///   - fields: the values of the fields with a name.
  ///   - now: milliseconds since the Unix epoch.
  /// - Returns: nil: requests are left, or nothing is said.
  static func rateLimit(_ fields: (String) -> [String], at now: Int) -> Duration? {
    var pauses = fields("RateLimit").flatMap { limits(in: $0) }
    if isUsedUp(fields("RateLimit-Remaining")), let reset = number(fields("RateLimit-Reset").first) {
      pauses.append(seconds(reset))
    }
    if isUsedUp(fields("X-RateLimit-Remaining")), let text = fields("X-RateLimit-Reset").first {
      pauses += [resetTime(text, at: now)].compactMap(\.self)
    }
    return pauses.filter { $0 > .zero }.max()
  }

  /// The pause for the next request of one source, from `X-Poll-Interval`, and from `max-age` if that is obeyed.
  static func poll(_ fields: (String) -> [String], obeysMaximumAge: Bool, host: String) -> RequestPause? {
    var pauses: [RequestPause] = []
    if let interval = number(fields("X-Poll-Interval").first) {
      pauses.append(RequestPause(duration: seconds(interval), reason: "X-Poll-Interval of \(host)"))
    }
    if obeysMaximumAge, let age = maximumAge(fields("Cache-Control")) {
      let rest = age - (number(fields("Age").first) ?? 0)
      pauses.append(RequestPause(duration: seconds(rest), reason: "max-age of \(host)"))
    }
    return pauses.filter { $0.duration > .zero }.max { $0.duration < $1.duration }
  }

  /// The times of the policies of which nothing is left. Source: draft-ietf-httpapi-ratelimit-headers-10, section 4.
  private static func limits(in field: String) -> [Duration] {
    members(of: field).compactMap { member in
      let parameters = member.split(separator: ";").dropFirst().map { $0.filter { $0 != " " && $0 != "\t" } }
      func value(_ name: String) -> Double? {
        number(parameters.last { $0.hasPrefix(name + "=") }?.dropFirst(name.count + 1).description)
      }
      guard let left = value("r"), left <= 0, let time = value("t") else { return nil }
      return seconds(time)
    }
  }

  /// The members of a list. Commas in texts separate none.
  private static func members(of field: String) -> [String] {
    var (members, isText, isEscaped) = ([""], false, false)
    for character in field {
      if !isText, character == "," {
        members.append("")
        continue
      }
      if character == "\"", !isEscaped { isText.toggle() }
      isEscaped = isText && character == "\\" && !isEscaped
      // A text is of no interest, and may have a semicolon.
      if !isText { members[members.count - 1].append(character) }
    }
    return members
  }

  private static func isUsedUp(_ values: [String]) -> Bool { number(values.first).map { $0 <= 0 } ?? false }

  /// Seconds from now on, or a time: in seconds or milliseconds since the Unix epoch, or of RFC 3339.
  private static func resetTime(_ text: String, at now: Int) -> Duration? {
    guard let number = number(text) else {
      var time = RFC3339Time(text)
      return time.microsecondsSinceEpoch().map { .milliseconds(Int64($0 / 1000 - now)) }
    }
    switch number {
    case ..<1e9: return seconds(number)
    case ..<1e11: return seconds(number - Double(now) / 1000)
    default: return seconds((number - Double(now)) / 1000)
    }
  }

  private static func maximumAge(_ fields: [String]) -> Double? {
    for part in fields.flatMap({ $0.split(separator: ",") }) {
      let words = part.split(separator: "=", maxSplits: 1).map { $0.filter { $0 != " " && $0 != "\"" }.lowercased() }
      if words.count == 2, words[0] == "max-age" { return number(words[1]) }
    }
    return nil
  }

  /// A number of digits and at most one point; nil for anything else.
  private static func number(_ text: String?) -> Double? {
    guard let text, !text.isEmpty, text.utf8.count <= 32, text.utf8.allSatisfy({ 0x30...0x39 ~= $0 || $0 == 0x2E })
    else { return nil }
    return Double(text)
  }

  /// A day at most.
  private static func seconds(_ seconds: Double) -> Duration {
    min(.milliseconds(Int64(min(max(0, seconds), 1e9) * 1000)), UpstreamHost.longestRest)
  }
}

/// Keeps the times before which upstreams want no request for the next process.
public struct PauseStore: Sendable {
  /// The former process' times, in milliseconds since the Unix epoch, by their names.
  let load: @Sendable () -> [String: Int]
  /// Takes all times. Called on the source thread.
  let save: @Sendable ([String: Int]) -> Void

  /// Both are called on the source thread.
  public init(load: @escaping @Sendable () -> [String: Int], save: @escaping @Sendable ([String: Int]) -> Void) {
    (self.load, self.save) = (load, save)
  }
}

/// The pauses of more than 10 s that upstreams have asked for, by the name of what waits. Confined to the source thread.
final class PauseBook {
  private let store: PauseStore?
  /// In milliseconds since the Unix epoch.
  private var ends: [String: Int]

  private static let least = Duration.seconds(10)
  /// The name of a source whose last request is not repeated begins with this. Its time never comes, and is the request's digest.
  private static let halted = "halted "
  /// The most names. A source above it begins again after a restart.
  private static let mostNames = 1 << 14

  init(_ store: PauseStore? = nil) {
    self.store = store
    ends = store?.load() ?? [:]
  }

  /// What is left of a pause; nil: nothing.
  func rest(of name: String, at now: Int = WallTime.now.milliseconds) -> Duration? {
    guard let end = ends[name], end > now else { return nil }
    return min(.milliseconds(Int64(end - now)), UpstreamHost.longestRest)
  }

  /// - Parameter duration: from now on; nil: no pause.
  func note(_ duration: Duration?, of name: String, at now: Int = WallTime.now.milliseconds) {
    guard !ends.isEmpty || duration ?? .zero > Self.least else { return }
    let former = ends
    ends = ends.filter { $0.value > now }
    ends[name] = duration.flatMap { $0 > Self.least ? now + $0.wholeMilliseconds : nil }
    if ends != former { store?.save(ends) }
  }

  /// Whether the last request of a source is not repeated, because the upstream may have acted on it.
  func isHalted(_ source: String, _ request: BodyDigest) -> Bool {
    ends[Self.halted + source] == Self.time(of: request)
  }

  /// Notes whether the last request of a source is not repeated.
  func setHalted(_ isHalted: Bool, _ source: String, _ request: BodyDigest) {
    var new = ends
    new[Self.halted + source] = isHalted && ends.count < Self.mostNames ? Self.time(of: request) : nil
    replace(with: new)
  }

  private static func time(of request: BodyDigest) -> Int { Int(request.value >> 2) | 1 << 62 }

  /// Ends all pauses.
  func clear() { replace(with: ends.filter { $0.key.hasPrefix(Self.halted) }) }

  private func replace(with new: [String: Int]) {
    guard new != ends else { return }
    ends = new
    store?.save(ends)
  }
}
