/// What a subscription may ask for with `where`: one of few filters, so that some are shared.
enum Filter: CaseIterable {
  case key, keys, quarters, numbers, gone, notGone, text, json, nothing

  /// One that something fits.
  static func random(_ random: inout Random) -> Self { random.pick(allCases.filter { $0 != .nothing }) }

  /// As on the wire.
  func json(for stream: String) -> String {
    switch self {
    case .key: #"{"/k":"k1"}"#
    case .keys: #"{"/k":{"in":[7,"k0","k2"]}}"#
    case .quarters: #"{"/m":{"gt":0.20,"le":1}}"#
    case .numbers: #"{"/k":{"prefix":"k"},"/n":{"ge":20}}"#
    case .gone: #"{"/gone":true}"#
    case .notGone: #"{"/gone":{"exists":false}}"#
    case .text: #"{"":{"prefix":"\#(Self.prefix(of: stream))"}}"#
    case .json: #"{"":{"exists":true}}"#
    case .nothing: #"{"/none":null}"#
    }
  }

  /// A prefix of nearly half of the upstream's values, or of those that are published over HTTP.
  private static func prefix(of stream: String) -> String {
    switch stream.first {
    case "p"?: "w"
    // A derived stream, or a mirror, has the events of the upstream with its number.
    case "d"?, "m"?: "s\(stream.dropFirst()) 0 1"
    default: "\(stream) 0 1"
    }
  }

  /// Whether an event of the stream fits.
  func fits(_ content: Content, of stream: String) -> Bool {
    let isObject = content.form == .object
    switch self {
    case .key: return isObject && content.key == "k1"
    case .keys: return isObject && ["k0", "k2"].contains(content.key)
    case .quarters: return isObject && 1...4 ~= content.quarters
    case .numbers: return isObject && content.number >= 20
    case .gone: return isObject && content.isGone
    case .notGone: return isObject && !content.isGone || content.form == .string
    case .text: return content.form == .string && content.text.hasPrefix(Self.prefix(of: stream))
    case .json: return content.form != .plain
    case .nothing: return false
    }
  }
}
