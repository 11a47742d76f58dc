/// How a subscription begins and what becomes of it when it lags.
public struct SubscribeOptions: Equatable, Sendable {
  /// The first event that is wanted.
  public enum Start: Equatable, Sendable {
    /// As many of the last events as the stream replays to a newcomer, then live.
    case replay
    /// The newest event, then live.
    case latest
    /// Live only.
    case new
    /// Everything after this id that is still held.
    case after(id: UInt64)
    /// Everything still held since an RFC 3339 time, or since a span ago: `"-5m"`.
    case since(String)
  }

  /// What happens when events are dropped before the subscriber's demand has reached them.
  public enum LagPolicy: String, CaseIterable, Sendable {
    /// Goes on with the oldest event still held; the ids show the gap.
    case skip
    /// Goes on with the newest event.
    case latest
    /// Ends with ``StreamError/lagged(_:)``.
    case fail
  }

  /// Where to begin.
  public var from: Start
  /// `nil`: as the stream is configured.
  public var onLag: LagPolicy?
  /// Whether events carry their id and time; 16 bytes each on the wire.
  public var ids: Bool

  /// The defaults are the server's.
  public init(from: Start = .replay, onLag: LagPolicy? = nil, ids: Bool = true) {
    self.from = from
    self.onLag = onLag
    self.ids = ids
  }

  /// The request data: a JSON object of what is not at its default, and nothing when all is.
  /// - Parameter gaps: whether events are to tell what is missing before them.
  func json(gaps: Bool) -> [UInt8] {
    var members: [String] = []
    switch from {
    case .replay: break
    case .latest: members.append(#""from":"latest""#)
    case .new: members.append(#""from":"new""#)
    case .after(let id): members.append(#""from":\#(id)"#)
    case .since(let time): members.append(#""from":\#(Self.quoted(time))"#)
    }
    if let onLag { members.append(#""on_lag":"\#(onLag.rawValue)""#) }
    if !ids { members.append(#""ids":false"#) } else if gaps { members.append(#""gaps":true"#) }
    return members.isEmpty ? [] : Array("{\(members.joined(separator: ","))}".utf8)
  }

  /// `text` as a JSON string: RFC 8259 wants quotes, backslashes and control characters escaped.
  private static func quoted(_ text: String) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": result += "\\\(scalar)"
      case "\u{0}"..."\u{1F}":
        let digits = String(scalar.value, radix: 16)
        result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result + "\""
  }
}
