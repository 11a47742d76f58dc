import Fleet

/// The names that a fleet uses in NATS. Every subject begins with `streamd.NAME.`, so that one permission covers all of
/// them, besides JetStream's API.
struct JetStreamNames {
  private let prefix: String
  private let streamPrefix: String
  /// The prefix of the subjects of answers to this engine; a number follows.
  let inbox: String

  /// - Parameter inbox: 32 hexadecimal digits.
  init(fleet: String, inbox: String) {
    prefix = "streamd.\(fleet)."
    streamPrefix = "streamd-\(fleet)-"
    self.inbox = "streamd.\(fleet).answer.\(inbox)."
  }

  /// The JetStream stream of a shard.
  func stream(_ shard: Int) -> String { "\(streamPrefix)\(shard)" }
  /// The subjects that a shard's stream stores.
  func log(_ shard: Int) -> String { "\(prefix)log.\(shard).>" }
  func claims(_ shard: Int) -> String { "\(prefix)log.\(shard).claim" }
  func parts(_ shard: Int) -> String { "\(prefix)log.\(shard).part" }
  /// The subjects under which a shard's stored entries are published again.
  func tail(_ shard: Int) -> String { "\(prefix)tail.\(shard).>" }
  /// The subjects of all shards' tails.
  var tails: String { "\(prefix)tail.*.*" }

  /// The shard of a subject of a tail.
  func shard(ofTail subject: String) -> Int? {
    let parts = subject.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 5 else { return nil }
    return Decimal.number(parts[3].utf8).flatMap(Int.init(exactly:))
  }

  /// Whether an answer may be sent to this subject. Any client can ask a question, and must not make this host write to
  /// JetStream's API or to a log.
  func mayAnswer(to subject: String) -> Bool { subject.hasPrefix("\(prefix)answer.") }

  func subject(_ subject: FleetSubject) -> String {
    switch subject {
    case .heartbeats: "\(prefix)heartbeats"
    case .positions(let shard): "\(prefix)positions.\(shard)"
    case .interest(let shard, let stream): "\(prefix)interest.\(shard).\(Self.token(stream))"
    case .host(let host): "\(prefix)host.\(host)"
    }
  }

  static func hexadecimal(_ bytes: [UInt8]) -> String {
    bytes.map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
  }

  /// A text as a part of a subject: letters, digits, "-" and "_" stay, each other byte becomes "=" and two hexadecimal
  /// digits. Different texts have different tokens.
  static func token(_ text: String) -> String {
    guard !text.isEmpty else { return "=" }
    return text.utf8.map { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
        String(UnicodeScalar(byte))
      case _: "=" + hexadecimal([byte])
      }
    }.joined()
  }
}
